"""Callers that send and receive by themselves: turns, what is left in them, and a heart that beats on."""

import errno
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fencehold
from fencehold import Client, State
from fencehold.client.blocking.portal import DirectPortal
from fencehold.client.direct import exchange, turns
from fencehold.client.direct.line import Line
from fencehold.client.direct.spin import Spin
from fencehold.client.direct.turns import Call
from fencehold.client.protocol.requests import Acquire
from fencehold.locks.terms import Terms
from fencehold.security.tls import Clients
from fencehold.testing import Service
from tests.unit.client.service import service_on_a_thread, until_true
from tests.unit.security.authority import Authority, tls_of


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with service_on_a_thread() as url:
        yield url


@pytest.fixture
def client(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """One whose callers try a turn each time, whatever came before."""
    monkeypatch.setattr(exchange, "COMPANY", 0)
    # A busy machine is slow to answer: a test that says so sets another.
    monkeypatch.setattr("fencehold.client.direct.line.PATIENCE_S", 0.9)
    with fencehold.connect(url, ttl=1.5) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[Client]:
    with fencehold.connect(url) as client:
        yield client


def portal_of(client: Client) -> DirectPortal:
    portal = client.portal()
    assert isinstance(portal, DirectPortal)
    return portal


def line_of(client: Client) -> Line:
    line = portal_of(client)._driver.line()  # type: ignore[attr-defined]
    assert line is not None
    return line  # type: ignore[no-any-return]


def noted(line: Line) -> list[str]:
    """What this thread does to a line from now on."""
    here, seen = threading.get_ident(), list[str]()

    def noting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def note(*args: Any) -> Any:
            if threading.get_ident() == here:
                seen.append(name)
            return call(*args)

        return note

    line.send, line.receive = noting("send", line.send), noting("receive", line.receive)
    return seen


def is_done_by_itself(client: Client, ttl: float | None) -> bool:
    """Whether a thread acquires and releases by one send and one receive each. Not if the loop has its turn."""
    seen = noted(line_of(client))
    with client.lock("alone", ttl=ttl) as hold:
        hold.check()
    assert hold.state is State.RELEASED
    return seen == ["send", "receive"] * 2


def until_interrupted(call: Callable[[], object], by: type[BaseException] = KeyboardInterrupt) -> None:
    """Call until it is interrupted: it is not if the loop has its turn."""

    def is_interrupted() -> bool:
        try:
            call()
        except by:
            return True
        return False

    until_true(is_interrupted)


def interrupt(line: Line, what: str, where: str, by: type[BaseException] = KeyboardInterrupt) -> None:
    """Have this thread interrupted in a system call, before it has done anything or after."""
    call, here = getattr(line, what), threading.get_ident()

    def interrupted(*args: Any) -> Any:
        if threading.get_ident() != here:
            return call(*args)
        if where == "after":
            call(*args)
        raise by

    setattr(line, what, interrupted)


def session_of(client: Client) -> Any:
    return portal_of(client).protocol.session


def test_a_lone_caller_sends_once_and_receives_once_on_its_own_thread(client: Client) -> None:
    until_true(lambda: is_done_by_itself(client, None))


def test_a_lone_caller_speaks_tls_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What TLS has to say besides is left to the loop's thread, as anything else that is no answer."""
    monkeypatch.setattr(exchange, "COMPANY", 0)
    monkeypatch.setattr("fencehold.client.direct.line.PATIENCE_S", 0.9)
    with Service(tls=tls_of(Authority(tmp_path), clients=Clients.OPTIONAL)) as service:
        with fencehold.connect(service.url) as client:
            until_true(lambda: is_done_by_itself(client, 30))
            with fencehold.connect(service.url) as other, other.lock("theirs"):
                assert client.lock("theirs", timeout=0).acquire() is None
                assert client.lock("theirs", timeout=0.01).acquire() is None


def test_threads_by_lot_exclude_one_another(client: Client, other: Client) -> None:
    """With every kind of end: granted, tried in vain, timed out, with a ttl of its own; nothing stays behind."""
    inside = dict.fromkeys("abcd", 0)
    clients = [client, other]

    def work(seed: int) -> int:
        draw, granted = random.Random(seed), 0
        for _ in range(40):
            name, timeout = draw.choice("abcd"), draw.choice([0, 0.001, 5, None])
            lock = draw.choice(clients).lock(name, timeout=timeout, ttl=draw.choice([None, 30]))
            hold = lock.acquire()
            if hold is not None:
                inside[name] += 1
                assert inside[name] == 1
                hold.check()
                inside[name] -= 1
                hold.release()
                granted += 1
        return granted

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) >= 80
    for name in "abcd":
        seen = other.explain(name)
        assert (seen.holders, seen.queue) == ((), ())
    assert not session_of(client).holds
    assert not session_of(client).waiting


def test_a_caller_that_waits_keeps_nobody_from_anything(client: Client, other: Client) -> None:
    """Neither the other threads of its client nor its heart, and a loss is told while all threads wait."""
    mine = client.lock("mine").acquire()
    told = threading.Event()
    mine.lost.add_callback(lambda _: told.set())
    with ThreadPoolExecutor(4) as pool:
        with other.lock("theirs"):
            waiting = [pool.submit(lambda: client.lock("theirs").acquire().release()) for _ in range(4)]
            until_true(lambda: len(other.explain("theirs").queue) == 4)
            end = session_of(client).trust.end
            with client.lock("free"):
                pass
            until_true(lambda: session_of(client).trust.end > end)
            other.break_hold("mine")
            assert told.wait(60)
        for each in waiting:
            each.result(60)
    assert "force-released" in mine.lost.reason


def test_a_loss_is_told_while_nobody_calls(client: Client, other: Client) -> None:
    """Also right after many calls, when the ear was stopped from one to the next."""
    for _ in range(3):
        hold = client.lock("told").acquire()
        for _ in range(50):
            client.lock("often").acquire().release()
        other.break_hold("told")
        assert hold.lost.wait(60)


def test_an_answer_that_is_slow_is_left_to_the_loops_thread(
    url: str, monkeypatch: pytest.MonkeyPatch, other: Client
) -> None:
    """A caller gives its turn back after a while: those who come later do not wait for its answer."""
    monkeypatch.setattr("fencehold.client.direct.line.PATIENCE_S", 0.001)
    monkeypatch.setattr(exchange, "COMPANY", 0)
    with fencehold.connect(url) as client:
        line = line_of(client)
        send, held = line.send, list[bytes]()

        def kept_back(words: Any, flag: int = 0, /) -> int:
            held.append(bytes(words))
            return len(words)

        line.send = kept_back
        with ThreadPoolExecutor(2) as pool:
            asked = pool.submit(client.lock("slow").acquire)
            until_true(lambda: bool(portal_of(client).protocol.pipeline.expected))
            later = pool.submit(client.lock("later").acquire)
            until_true(lambda: len(held) == 2)
            line.send = send
            send(b"".join(held), 0)
            asked.result(60).release()
            later.result(60).release()
        assert not other.lock("slow").locked()


@pytest.mark.parametrize("by", [KeyboardInterrupt, TimeoutError, BlockingIOError])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("what", ["send", "receive"])
def test_an_interrupt_inside_a_system_call_costs_a_connection_but_no_hold(
    client: Client, other: Client, what: str, where: str, by: type[BaseException]
) -> None:
    """What was sent or read is not known then: the session goes on, on another connection."""
    kept = client.lock("kept").acquire()
    session, line = session_of(client).id, line_of(client)
    interrupt(line, what, where, by)
    until_interrupted(lambda: client.lock("gone").acquire().release(), by)
    assert client.explain("gone").holders == ()
    assert line_of(client) is not line
    assert session_of(client).id == session
    kept.check()
    assert other.explain("kept").holders[0].fence == kept.fence
    kept.release()


@pytest.mark.parametrize("by", [TimeoutError, BlockingIOError])
def test_a_reply_that_an_interrupt_lost_is_not_followed_by_the_next_in_its_place(
    client: Client, other: Client, by: type[BaseException]
) -> None:
    """As of a time limit: what its handler raises is an OSError, as if the reply were late."""
    with other.lock("theirs"):
        interrupt(line_of(client), "receive", "after", by)
        until_interrupted(lambda: client.lock("theirs", timeout=0).acquire(), by)
        mine = client.lock("mine").acquire()
        assert [holder.fence for holder in other.explain("mine").holders] == [mine.fence]
        assert client.lock("theirs", timeout=0).acquire() is None
        assert list(session_of(client).holds) == [mine.fence]
    mine.release()


def test_an_interrupt_between_a_reply_and_its_record_costs_a_connection(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, learn = threading.get_ident(), Spin._learn

    def interrupted(spin: Spin, is_in_time: bool) -> None:
        learn(spin, is_in_time)
        if threading.get_ident() == here:
            raise TimeoutError

    line = line_of(client)
    line.receive = Spin(line.socket.recv).receive
    with monkeypatch.context() as patched:
        patched.setattr(Spin, "_learn", interrupted)
        until_interrupted(lambda: client.lock("gone").acquire().release(), TimeoutError)
    with other.lock("gone", timeout=60):
        assert not session_of(client).holds
    assert line_of(client) is not line


@pytest.mark.parametrize("what", ["send", "receive"])
def test_a_connection_that_breaks_in_a_call_is_replaced_and_the_call_succeeds(
    client: Client, other: Client, what: str
) -> None:
    line = line_of(client)

    def broken(*_: Any) -> Any:
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    setattr(line, what, broken)
    with client.lock("kept", timeout=60) as hold:
        assert [holder.fence for holder in other.explain("kept").holders] == [hold.fence]


def test_an_interrupted_release_is_done(client: Client, other: Client) -> None:
    line, receive = line_of(client), line_of(client).receive

    def give_back() -> None:
        line.receive = receive
        hold = client.lock("given back").acquire()
        interrupt(line, "receive", "after")
        try:
            hold.release()
        finally:
            assert hold.state is State.RELEASED

    until_interrupted(give_back)
    assert client.explain("given back").holders == ()


@pytest.mark.parametrize("what", ["send", "receive"])
def test_a_handler_that_uses_the_client_in_the_middle_of_a_call_waits_for_nothing(
    client: Client, what: str
) -> None:
    """As one of a signal may: the call it came into is carried on by the loop's thread."""
    line = line_of(client)
    call, used = getattr(line, what), list[int]()

    def handled(*args: Any) -> Any:
        if threading.get_ident() != here:
            return call(*args)
        setattr(line, what, call)
        with client.lock("handler") as hold:
            used.append(hold.fence)
        return call(*args)

    setattr(line, what, handled)
    here = threading.get_ident()

    def is_handled() -> bool:
        with client.lock("outer") as outer:
            outer.check()
            assert client.explain("outer").holders[0].fence == outer.fence
        return bool(used)

    until_true(is_handled)
    assert len(used) == 1
    assert client.explain("outer").holders == ()
    with client.lock("outer"):
        pass


def test_a_turn_whose_thread_is_gone_is_taken_over(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was interrupted twice may not have said that it left."""
    monkeypatch.setattr(turns, "LOST_S", 0.1)
    portal = portal_of(client)
    call = Call()

    def take() -> None:
        call.thread = threading.get_ident()
        call.request = Acquire(Terms(("lost",)), b"$5\r\nOWNER\r\n$1\r\nx\r\n", call, portal.channel.clock())
        until_true(lambda: portal._turns.take(call))

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    with client.lock("found") as hold:
        hold.check()
    call.wait()
    client.break_hold("lost")


def test_the_loop_goes_first(client: Client) -> None:
    """While it waits for its turn no caller begins another, however many are at it."""
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            client.lock(f"busy:{threading.get_ident()}").acquire().release()

    with ThreadPoolExecutor(3) as pool:
        calling = [pool.submit(call) for _ in range(3)]
        end = session_of(client).trust.end
        until_true(lambda: session_of(client).trust.end > end)
        assert client.explain("busy").holders == ()
        stop.set()
        for each in calling:
            each.result(60)


def test_the_loop_does_not_sleep_on_a_turn_that_ended_before_it_was_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its caller saw that nobody wants it, and told nobody."""
    monkeypatch.setattr(turns, "LOOK_S", 600)
    call, here = Call(), turns.Turns()

    class Ending(dict[str, Any]):
        def setdefault(self, name: str, value: Any = None) -> Any:
            found = super().setdefault(name, value)
            if found is call:
                here.end(call)
            return found

    here._holder = Ending()
    assert here.take_at_once()
    here.__exit__()
    here._holder["turn"] = call

    def enter() -> bool:
        with here:
            return True

    with ThreadPoolExecutor(1) as pool:
        entered = pool.submit(enter)
        try:
            assert entered.result(60)
        finally:
            here._tell()
