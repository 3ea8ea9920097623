"""The log: what is told, at which level, how often at the most, and what never is."""

import asyncio
import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

import fencehold
from fencehold import EFFICIENCY, aio
from fencehold.client.driver import ConnectionLog
from fencehold.client.endpoints import Rotation
from fencehold.client.protocol.connection import NodeConnection
from fencehold.client.protocol.ledger import Session
from fencehold.drivers.address import service_address
from fencehold.locks.log import PER_MINUTE, Teller
from fencehold.locks.terms import Terms
from fencehold.locks.views import Explanation
from fencehold.locks.waits import LongWaits
from tests.unit.client.service import PATIENCE_S, Cable, run, service, service_on_a_thread, until, until_true


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Everything but what is only for debugging."""
    caplog.set_level(logging.INFO, "fencehold")
    return caplog


def told(log: pytest.LogCaptureFixture, name: str) -> list[tuple[str, str]]:
    """The level and the words of each record of a logger."""
    return [(record.levelname, record.getMessage()) for record in list(log.records) if record.name == name]


# How often.


def test_a_kind_is_told_so_often_and_no_oftener(log: pytest.LogCaptureFixture) -> None:
    """Then once that more are left out; and the first of the next minute says how many were."""
    now = [100.0]
    teller = Teller("fencehold.test", per_minute=2, clock=lambda: now[0])
    for each in range(5):
        teller.tell(logging.INFO, "%d", each)
        now[0] += 1
    assert not teller.would_tell(logging.INFO)
    now[0] += 55
    assert teller.would_tell(logging.INFO)
    teller.tell(logging.WARNING, "%s", "next")
    teller.tell(logging.DEBUG, "not heard, so not counted")
    assert told(log, "fencehold.test") == [
        ("INFO", "0"),
        ("INFO", "1"),
        ("INFO", "more messages of this kind are left out for 58 s"),
        ("WARNING", "next (3 more such messages were left out)"),
    ]


def test_facts_go_with_a_record_and_say_how_many_were_left_out(log: pytest.LogCaptureFixture) -> None:
    """For a log that is made of fields: the server's."""
    now = [0.0]
    teller = Teller("fencehold.facts", per_minute=1, clock=lambda: now[0])
    for number in range(3):
        teller.tell(logging.WARNING, "expired", facts={"number": number})
    now[0] = 61.0
    teller.tell(logging.WARNING, "expired", facts={"number": 9})
    assert [getattr(record, "facts", None) for record in log.records] == [
        {"number": 0},
        None,
        {"number": 9, "left_out_before": 2},
    ]


def test_nothing_is_written_unless_logging_is_configured() -> None:
    """Python's last resort, which writes warnings to stderr, is not taken for that."""
    program = "import fencehold.aio, logging; logging.getLogger('fencehold.hold').error('lost')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stderr == ""


def test_many_holds_lost_at_once_are_told_of_in_few_words(log: pytest.LogCaptureFixture) -> None:
    """The rest is counted."""
    with service_on_a_thread() as url, fencehold.connect(url) as one, fencehold.connect(url) as other:
        holds = [one.lock(f"a{each}").acquire() for each in range(3 * PER_MINUTE)]
        for hold in holds:
            other.break_hold(hold.name)
        until_true(lambda: all(hold.safe_for() == 0 for hold in holds))
        assert len(told(log, "fencehold.hold")) == PER_MINUTE + 1


async def test_a_flapping_connection_does_not_flood_the_log(log: pytest.LogCaptureFixture) -> None:
    """However often it is lost and made again."""
    async with service() as url, Cable(url) as cable, aio.connect(cable.url) as client:
        for each in range(2 * PER_MINUTE):
            cable.cut()
            await until(lambda each=each: cable.connections > each + 1)  # type: ignore[misc]
            await client.explain("a")
    assert len(told(log, "fencehold.connection")) == PER_MINUTE + 1


# Losses.


def test_a_lost_hold_is_an_error_and_a_lost_claim_a_warning(any_url: str, log: pytest.LogCaptureFixture) -> None:
    """Each is told once, with its fence and the reason; whether or not anybody is inside a body."""
    with fencehold.connect(any_url, ttl=1) as one, fencehold.connect(any_url) as other:
        hold = one.lock("plain").acquire()
        claim = one.lock("claim", tier=EFFICIENCY).acquire()
        other.break_hold("plain")
        other.break_hold("claim", tier=EFFICIENCY)
        assert claim.lost.wait(PATIENCE_S)
        until_true(lambda: len(told(log, "fencehold.hold")) == 2)
        is_fenced = one.lock("claim", tier=EFFICIENCY).guarantees.fenced
        levels = {words.split()[0]: level for level, words in told(log, "fencehold.hold")}
        assert levels == {"'plain'": "ERROR", "'claim'": "ERROR" if is_fenced else "WARNING"}
        words = next(words for _, words in told(log, "fencehold.hold") if words.startswith("'plain'"))
        assert words.startswith(f"'plain' with fence {hold.fence} is lost: ")
        with pytest.raises(fencehold.HoldLost), one.lock("body") as hold:
            other.break_hold("body")
            assert hold.lost.wait(PATIENCE_S)
        until_true(lambda: len(told(log, "fencehold.hold")) == 3)


async def test_a_task_that_loses_its_hold_is_told_of_once(any_url: str, log: pytest.LogCaptureFixture) -> None:
    """Though its body is cancelled and `HoldLost` raised, too."""
    async with aio.connect(any_url, ttl=1) as one, aio.connect(any_url) as other:
        with pytest.raises(fencehold.HoldLost):
            async with one.lock("a") as hold:
                hold.lost.add_callback(lambda _: None)
                await other.break_hold("a")
                await asyncio.Event().wait()
    assert [level for level, _ in told(log, "fencehold.hold")] == ["ERROR"]


def test_what_ends_with_its_client_is_no_alarm(any_url: str, log: pytest.LogCaptureFixture) -> None:
    """Whoever closes it knows what it holds."""
    with fencehold.connect(any_url) as client:
        hold = client.lock("a").acquire()
    with pytest.raises(fencehold.HoldLost):
        hold.check()
    assert [level for level, _ in told(log, "fencehold.hold")] == ["INFO"]


def test_what_is_released_is_not_told(any_url: str, log: pytest.LogCaptureFixture) -> None:
    """Nor is anything else that goes well."""
    with fencehold.connect(any_url) as client, client.lock("a"), client.lock("b") as hold:
        hold.release()
    assert log.records == []


# Connections.


async def test_a_session_that_is_resumed_is_told(log: pytest.LogCaptureFixture) -> None:
    """That the connection was lost, why, and that it is back."""
    async with service() as url, Cable(url) as cable, aio.connect(cable.url) as client:
        async with client.lock("a") as hold:
            cable.cut()
            await until(lambda: cable.connections == 2)
            await client.explain("a")
            hold.check()
        node = cable.url.removeprefix("fencehold://")
        lost, resumed = told(log, "fencehold.connection")
        assert lost == ("INFO", f"connection to {node} lost: {lost[1].partition(' lost: ')[2]}")
        assert resumed[0] == "INFO"
        assert resumed[1].startswith("session ")
        assert f"resumed on {node} after " in resumed[1]


def test_a_session_that_is_not_resumed_is_a_warning(log: pytest.LogCaptureFixture) -> None:
    """A server that forgot it has forgotten what it held."""
    with service_on_a_thread() as url:
        port = int(url.rpartition(":")[2])
        client = fencehold.connect(url)
        hold = client.lock("a").acquire()
    with service_on_a_thread(port), client:
        client.explain("a")
        assert hold.safe_for() == 0
        (_, (level, words)) = told(log, "fencehold.connection")
        assert level == "WARNING"
        assert "has ended and all it held is lost; session " in words
        assert [level for level, _ in told(log, "fencehold.hold")] == ["ERROR"]


def test_an_outage_is_told_ever_more_rarely(log: pytest.LogCaptureFixture) -> None:
    """When it begins, when calls give up, and each time it has lasted twice as long."""
    reach = NodeConnection(Rotation(service_address("fencehold://u:secret@h").endpoints, lambda: 0.5), 5.0)
    written = ConnectionLog(Teller("fencehold.test"))
    written.on_down(reach, 0.0)
    session = Session(30, 1)
    session.id = 7
    written.on_up(reach, session, 1.0)
    reach.on_trouble("Connection refused")
    for second in range(10, 61):
        written.on_down(reach, second)
    written.on_up(reach, session, 61.0)
    words = [words for _, words in told(log, "fencehold.test")]
    assert words[0] == "connection to h:7420 lost: Connection refused"
    assert [each.partition(":")[0] for each in words[1:-1]] == [
        f"not connected for {each} s" for each in (5, 10, 20, 40)
    ]
    assert words[1].partition(": ")[2].startswith("cannot reach fencehold://h:7420 within 5 s: Connection refused")
    assert words[-1] == "session 7 resumed on h:7420 after 51.0 s"
    assert "secret" not in log.text


def test_a_breaker_tells_no_password(log: pytest.LogCaptureFixture) -> None:
    """Of a backend that is not reached."""
    url = "redis://someone:secret@127.0.0.1:1"
    with fencehold.connect(url, lazy=True, connect_timeout=0.05) as client:
        for _ in range(4):
            with pytest.raises(fencehold.Unavailable):
                client.lock("a", tier=EFFICIENCY).acquire()
    ((level, words),) = told(log, "fencehold.breaker")
    assert (level, words.split(";")[0]) == ("WARNING", "redis:// cannot be reached")
    assert "secret" not in log.text


# Waits.


def test_a_long_wait_is_told_with_who_holds_the_name(any_url: str, log: pytest.LogCaptureFixture) -> None:
    """All who wait for the same name at once, and again when it has taken twice as long."""
    options: dict[str, Any] = {"long_wait": "50ms", "connect_timeout": "10s"}
    with fencehold.connect(any_url, name="holder") as holder, fencehold.connect(any_url, **options) as client:
        with holder.lock("a"):
            waiters = [threading.Thread(target=_take, args=(client,)) for _ in range(3)]
            for waiter in waiters:
                waiter.start()
            until_true(lambda: len(told(log, "fencehold.wait")) >= 2)
            until_true(lambda: "(3 requests)" in told(log, "fencehold.wait")[-1][1])
            # Later on they may wait for one another.
            heard = told(log, "fencehold.wait")
        for waiter in waiters:
            waiter.join()
    for level, words in heard:
        assert level == "WARNING"
        assert words.startswith("waiting for 'a' for ")
        assert "'a' is held by holder on " in words


def _take(client: fencehold.Client) -> None:
    with client.lock("a"):
        pass


async def test_a_task_that_waits_for_long_is_told_of(any_url: str, log: pytest.LogCaptureFixture) -> None:
    """And leaves no task behind when it is cancelled, or its client closed."""
    async with aio.connect(any_url, name="holder") as holder, holder.lock("a"):
        async with aio.connect(any_url, long_wait=0.05) as client:
            waiting = asyncio.create_task(client.lock("a").acquire())
            await until(lambda: bool(told(log, "fencehold.wait")))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with aio.connect(any_url, long_wait=0) as client:
            before = len(told(log, "fencehold.wait"))
            assert await client.lock("a").acquire(timeout="100ms") is None
            assert len(told(log, "fencehold.wait")) == before


def test_who_does_not_wait_is_not_told_of(any_url: str, log: pytest.LogCaptureFixture) -> None:
    """However often it asks."""
    with (
        fencehold.connect(any_url) as holder,
        fencehold.connect(any_url, long_wait="10ms") as client,
        holder.lock("a"),
    ):
        for _ in range(5):
            assert client.lock("a").acquire(blocking=False) is None
        assert told(log, "fencehold.wait") == []


def test_waits_are_told_by_names_and_ever_more_rarely(log: pytest.LogCaptureFixture) -> None:
    """The longest of those for the same names; one that is over is forgotten."""
    asked: list[str] = []

    async def explain(name: str) -> Explanation:
        asked.append(name)
        if name == "unknown":
            raise fencehold.Unavailable("nobody answers")
        return Explanation(name, (), (), 0.0)

    async def main() -> None:
        waits = LongWaits(explain, 10.0)
        one, same, unknown = Terms(("a",)), Terms(("a",)), Terms(("unknown",))
        for now in (5.0, 12.0, 14.0, 23.0, 24.0, 30.0):
            waits.look([(one, 0.0), (same, 3.0)], now)
        waits.look([], 31.0)
        waits.look([(same, 20.0)], 33.0)
        waits.look([(unknown, 0.0)], 34.0)
        await until(lambda: len(told(log, "fencehold.wait")) == 4)
        waits.stop()
        await waits.stopped()

    run(main())
    assert asked == ["a", "a", "a", "unknown"]
    words = [words for _, words in told(log, "fencehold.wait")]
    assert words[0].startswith("waiting for 'a' for 12.0 s: ")
    assert words[1].startswith("waiting for 'a' for 24.0 s (2 requests): ")
    assert words[2].startswith("waiting for 'a' for 13.0 s: ")
    assert words[3] == "waiting for 'unknown' for 34.0 s: who holds it is not known"


# Elections.


def test_a_campaign_that_failed_is_told(log: pytest.LogCaptureFixture) -> None:
    """The candidate waits for the service, and whoever reads the log knows what for."""
    with service_on_a_thread() as url:
        port = int(url.rpartition(":")[2])
        client = fencehold.connect(url, connect_timeout=0.1)
        terms = client.election("e").terms()
        with next(terms):
            pass
    threading.Thread(target=_serve_when_told, args=(port, log)).start()
    with client, next(terms) as term:
        assert term.epoch > 0
        terms.close()
        _SERVED.set()
    level, words = told(log, "fencehold.election")[0]
    assert level == "WARNING"
    assert words.startswith("the campaign for 'e' failed, and is tried again: ")


_SERVED = threading.Event()


def _serve_when_told(port: int, log: pytest.LogCaptureFixture) -> None:
    until_true(lambda: bool(told(log, "fencehold.election")))
    with service_on_a_thread(port):
        _SERVED.wait(PATIENCE_S)
