"""The blocking client against a real server: every verb, threads, interrupts, and nothing left behind."""

import gc
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fencehold
from fencehold import Client, State
from fencehold.client.blocking.portal import portal_to
from fencehold.client.config import configured
from fencehold.durations import Duration
from fencehold.errors import Deadlock, HoldLost, NotOwner, SessionExpired, Unavailable, UsageError
from tests.unit.client.service import service_on_a_thread, until_true


def test_release_by_the_lock_is_of_this_threads_hold(client: Client) -> None:
    """A thread releases by the lock what it acquired; a hold itself may be released by any thread."""
    lock = client.lock("a")
    hold = lock.acquire()
    assert hold is not None
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(NotOwner):
            pool.submit(lock.release).result()
        pool.submit(hold.release).result()
    with pytest.raises(NotOwner, match="released before"):
        hold.release()
    with lock:
        lock.release()


def test_every_recipe_works(client: Client) -> None:
    """Several names, readers and writers, semaphores, re-entrant locks and decorators, as in the async client."""
    with client.multi(["b", "a"]) as hold:
        assert hold.names == ("a", "b")
        assert client.lock("b", timeout=0).acquire() is None
    readers = client.rwlock("rw")
    with readers.read(), readers.read():
        assert readers.write().acquire(timeout=0) is None
    with client.semaphore("s", 2), client.semaphore("s", 2):
        assert client.semaphore("s", 2).acquire(timeout=0) is None
    lock = client.rlock("r")
    with lock as outer, lock as inner:
        assert inner.fence == outer.fence
        assert lock.acquire() is outer
        lock.release()
        assert lock.owned()
    assert not lock.locked()
    with pytest.raises(NotOwner):
        lock.release()

    @client.lock("decorated")
    def locked() -> bool:
        return client.lock("decorated").locked()

    assert locked()


def test_explain_says_who_has_it(client: Client) -> None:
    """The explanation names the client and the thread."""
    with client.lock("a", meta={"trace": "t-9"}):
        (holder,) = client.explain("a").holders
        assert holder.party.client == "tests"
        assert holder.party.pid == os.getpid()
        assert threading.current_thread().name in holder.party.owner
        assert holder.trace == "t-9"
        assert holder.since is not None
        assert datetime.now(UTC) - holder.since < timedelta(minutes=1)


def test_a_lost_hold_is_told_at_the_end_of_its_body(client: Client) -> None:
    """In the body `check` raises and `lost` is set; at its end `HoldLost` comes out, unless it raised itself."""
    told = threading.Event()
    with pytest.raises(HoldLost, match="force-released"):
        with client.lock("a") as hold:
            hold.lost.add_callback(lambda _: told.set())
            client.break_hold("a")
            assert hold.lost.wait(10)
            with pytest.raises(HoldLost):
                hold.check()
    assert told.wait(10)
    assert hold.lost.reason == f"'a' was force-released by tests on {socket.gethostname()} (pid {os.getpid()})"
    late = threading.Event()
    hold.lost.add_callback(lambda _: late.set())
    assert late.wait(10)
    with pytest.raises(KeyError) as caught:
        with client.lock("a") as hold:
            client.break_hold("a", fence=hold.fence)
            hold.lost.wait(10)
            raise KeyError
    assert "is lost" in caught.value.__notes__[0]


def test_an_extended_hold_lives_longer(client: Client) -> None:
    """An extension moves the end of a hold with a ttl of its own."""
    with client.lock("a", ttl=5) as hold:
        assert hold.safe_for() < 5
        hold.extend(20)
        assert hold.safe_for() > 15
        assert hold.deadline() > 0


def test_an_interrupt_withdraws_the_acquire(client: Client, url: str) -> None:
    """A KeyboardInterrupt while waiting leaves nothing queued and nothing held."""
    with fencehold.connect(url) as other:
        with other.lock("a"):
            interrupter = threading.Thread(target=_interrupt_when_queued, args=(other,))
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                client.lock("a").acquire()
            interrupter.join()
            until_true(lambda: not other.explain("a").queue)
        assert not other.lock("a").locked()


def _interrupt_when_queued(client: Client) -> None:
    until_true(lambda: bool(client.explain("a").queue))
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def test_a_closed_client_refuses_and_leaves_no_thread(url: str) -> None:
    """After a close there is no thread, no socket, and nothing can be asked."""
    files = len(os.listdir("/proc/self/fd"))
    client = fencehold.connect(url)
    hold = client.lock("closing").acquire()
    assert hold is not None
    client.close()
    client.close()
    assert hold.state is State.LOST
    with pytest.raises(UsageError, match="closed"):
        client.lock("a").acquire()
    with pytest.raises(HoldLost):
        hold.release()
    assert "fencehold" not in [thread.name for thread in threading.enumerate()]
    until_true(lambda: len(os.listdir("/proc/self/fd")) <= files)


def test_what_was_forgotten_warns(url: str) -> None:
    """A client that was not closed and a hold that was not released are told of."""
    clients: list[Any] = [fencehold.connect(url)]
    portal = clients[0].portal()
    holds: list[Any] = [clients[0].lock("forgotten").acquire()]
    with pytest.warns(ResourceWarning, match="never released"):
        _collect(holds)
    with pytest.warns(ResourceWarning, match="not closed"):
        _collect(clients)
    portal.close()


def test_a_name_whose_time_was_over_can_be_asked_for_at_once(client: Client) -> None:
    """The client lets go a margin before the server does, and is not told that it waits for itself."""
    for _ in range(5):
        hold = client.lock("over", ttl=0.1).acquire()
        assert hold is not None
        assert hold.lost.wait(10)
        with client.lock("over", timeout=10) as again:
            assert again.fence > hold.fence


@pytest.mark.parametrize("limit", [0, -1, 1.5])
def test_a_semaphore_has_a_permit_or_more(client: Client, limit: Any) -> None:
    """None at all is no semaphore, and certainly no exclusive lock."""
    with pytest.raises(UsageError, match="limit is a whole number, 1 or more"):
        client.semaphore("s", limit)


def test_permits_that_one_thread_takes_for_others_are_waited_for(client: Client) -> None:
    """A producer takes a permit for each of its workers, who give them back: it waits for the next one."""
    slots = client.semaphore("workers", 2)
    holds = [slots.acquire() for _ in range(2)]
    with ThreadPoolExecutor(1) as pool:

        def work() -> None:
            until_true(lambda: bool(client.explain("workers").queue))
            holds[0].release()

        working = pool.submit(work)
        slots.acquire(timeout=60).release()  # type: ignore[union-attr]
        working.result(10)
    holds[1].release()


def test_who_has_the_only_permit_does_not_wait_for_itself(client: Client) -> None:
    """That is refused as a deadlock; another thread waits, and is granted what comes back."""
    slots = client.semaphore("slots", 1)
    hold = slots.acquire()
    with pytest.raises(Deadlock, match=r"holds 'slots' \(fence \d+\), and waits for itself: release it first$"):
        slots.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(slots.acquire)
        until_true(lambda: bool(client.explain("slots").queue))
        hold.release()
        granted = waiting.result(10)
        assert granted is not None
        granted.release()


@pytest.mark.parametrize("at_least", [0, 30])
def test_a_job_that_waits_for_itself_is_refused(client: Client, at_least: float) -> None:
    """A run belongs to its thread, whether or not its name is kept: the circle is seen."""

    @client.once("circle", at_most=60, at_least=at_least, busy="wait")
    def job() -> None:
        job()

    with pytest.raises(Deadlock):
        job()


def test_observing_ends_with_the_client(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was left open when its client was closed ends without a word, and a watch, too."""
    client = fencehold.connect(url)
    left, kept, watch = client.election("chair").observe(), client.election("chair").observe(), client.watch("x")
    assert next(left) is None
    assert next(kept) is None
    watch.__enter__()
    client.close()
    assert list(kept) == []
    assert list(watch) == []
    watch.close()
    del left
    gc.collect()
    assert capsys.readouterr().err == ""


def test_whoever_observes_is_told_when_the_client_is_closed(url: str) -> None:
    """A thread that waits for the next leader does not wait for ever."""
    client = fencehold.connect(url)
    with ThreadPoolExecutor(1) as pool, closing(client.election("chair").observe()) as seen:
        assert next(seen) is None
        rest = pool.submit(list, seen)
        client.close()
        assert rest.result(10) == []


def test_nobody_sleeps_on_a_client_that_is_closed(url: str) -> None:
    """Calls that cross a close are refused, at whatever moment they come."""

    def ask(client: Client) -> None:
        while True:
            client.explain("a")

    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            client = fencehold.connect(url)
            asking = [pool.submit(ask, client) for _ in range(3)]
            watching = pool.submit(list, client.watch("nothing:"))
            client.close()
            for call in asking:
                with pytest.raises((UsageError, SessionExpired), match="closed"):
                    call.result(10)
            assert isinstance(watching.exception(10), UsageError | SessionExpired | None)


def test_what_is_started_while_a_client_is_closed_is_ended(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tier that is first used when another thread closes the client leaves no thread and no session."""
    client = fencehold.connect(url)
    made: list[Any] = []

    def closing(source: Any) -> Any:
        portal = portal_to(source)
        made.append(portal)
        client.close()
        return portal

    monkeypatch.setattr("fencehold.client.blocking.client.portal_to", closing)
    with pytest.raises(UsageError, match="closed"):
        client.lock("a", tier=fencehold.EFFICIENCY).acquire(timeout=0)
    assert made[0].loop.is_closed()


def test_one_tier_that_cannot_be_closed_keeps_no_other_open(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = fencehold.connect(url)
    first = client.portal()
    with client.lock("a", tier=fencehold.EFFICIENCY) as claim:
        second = claim._portal
    close = first.close

    def interrupted() -> None:
        close()
        raise KeyboardInterrupt

    monkeypatch.setattr(first, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    assert first.loop.is_closed()  # type: ignore[attr-defined]
    assert second.loop.is_closed()  # type: ignore[attr-defined]


def test_a_portal_that_is_closed_leaves_no_question_behind(url: str) -> None:
    """Nothing is left that nobody awaits: that would be warned of."""
    with fencehold.connect(url) as client:
        portal = client.portal()
    with pytest.raises(UsageError, match="closed"):
        portal.explain("a")
    gc.collect()


def test_what_a_thread_left_behind_is_not_the_next_ones(client: Client) -> None:
    """A thread that gets the number of one that ended does not get its re-entrant lock."""
    lock = client.rlock("r3", timeout=0)
    holds: list[Any] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: holds.append(lock.acquire()))
        thread.start()
        thread.join()
    first, second = holds
    assert second is None
    first.release()


def test_without_a_url_the_environment_says_where(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL that is given wins; without one and without a variable it is this machine."""
    monkeypatch.setenv("FENCEHOLD_URL", url)
    with fencehold.connect(connect_timeout=10) as client:
        client.ready()
    with pytest.raises(Unavailable):
        fencehold.connect("fencehold://127.0.0.1:1", connect_timeout=0.05)
    with pytest.raises(UsageError):
        fencehold.connect("")
    for words in ({}, {"FENCEHOLD_URL": ""}):
        monkeypatch.setattr(os, "environ", words)
        assert configured().url == "fencehold://127.0.0.1:7420"


def _collect(things: list[Any]) -> None:
    things.clear()
    gc.collect()


@pytest.mark.parametrize("name", fencehold.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """All that the package says it exports can be had from it."""
    assert getattr(fencehold, name) is not None


@pytest.mark.parametrize("nothing", [0, "0s", timedelta(0), 0.0004])
def test_a_hold_is_not_extended_by_nothing(nothing: Duration) -> None:
    """That is no time, and must not be taken for all the time of its session."""
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        with client.lock("a", ttl=30) as hold:
            with pytest.raises(UsageError, match=r"ttl is at least 0.001 s"):
                hold.extend(nothing)
            assert client.explain("a").holders[0].left is not None
