"""The parts of the simulated world do what the real ones do."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from fencehold.errors import FenceholdError, OutcomeUnknown, Sealed, Unavailable
from fencehold.types import Epoch, Position
from tests.simulation.network import Network, Weather
from tests.simulation.process import Drift, Process
from tests.simulation.scheduler import SECOND, Scheduler
from tests.simulation.store import HOST, Mood, SimulatedJournal, Store

PORT = 1


class Ear(asyncio.Protocol):
    """An end that remembers what it was told, and says something first if it has something to say."""

    def __init__(self, say: bytes = b"") -> None:
        self.heard = b""
        self.lost: list[Exception | None] = []
        self.transport: Any = None
        self._say = say

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self._say:
            self.transport.write(self._say)

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Place:
    """A network with two machines, `a` and `b`, and whatever is asked of them."""

    def __init__(self, **weather: float) -> None:
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(1), Weather(**weather), lambda *_: None)
        self.complaints: list[str] = []
        self.a, self.b = self.process("a"), self.process("b")
        self.server, self.client = Ear(), Ear(b"hello")

    def process(self, host: str) -> Process:
        process = Process(self.scheduler, host, Drift(500.0, 1.0), self.complaints.append)
        process.loop.network = self.network
        return process

    def run(self, process: Process, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = process.spawn(coroutine, "test")
        self.go_on(0)
        return task

    def go_on(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now_ns + int(seconds * SECOND))

    def connect(self) -> "asyncio.Task[Any]":
        """`b` listens, `a` connects."""
        self.run(self.b, self.b.loop.create_server(lambda: self.server, "", PORT))
        return self.run(self.a, self.a.loop.create_connection(lambda: self.client, "b", PORT))

    def end(self) -> None:
        self.scheduler.leave()
        for process in (self.a, self.b):
            process.bury()
        assert self.complaints == []


def test_what_is_written_arrives_in_order_however_it_is_cut() -> None:
    """Pieces are split and merged, and none overtakes another."""
    place = Place(split_share=0.9, spike_share=0.5)
    place.connect()
    place.go_on(1)
    for number in range(200):
        place.a.do(place.client.transport.write, b"%d." % number)
    place.go_on(10)
    assert place.server.heard == b"hello" + b"".join(b"%d." % number for number in range(200))
    place.end()


def test_a_blocked_way_holds_back_and_lets_go() -> None:
    """What was written meanwhile arrives when the way is open; the other direction is not affected."""
    place = Place()
    place.connect()
    place.go_on(1)
    place.network.block(("a", "b"))
    place.a.do(place.client.transport.write, b" there")
    place.b.do(place.server.transport.write, b"back")
    place.go_on(5)
    assert (place.server.heard, place.client.heard) == (b"hello", b"back")
    place.network.unblock(("a", "b"))
    place.go_on(2)
    assert place.server.heard == b"hello there"
    place.end()


def test_a_server_gives_up_on_a_client_that_cannot_hear_it() -> None:
    """After the user timeout the server's end is lost, by no doing of the client's; who writes to it is told."""
    place = Place()
    place.connect()
    place.go_on(1)
    place.network.block(("b", "a"))
    place.go_on(31)
    assert isinstance(place.server.lost[0], TimeoutError)
    place.network.unblock(("b", "a"))
    place.a.do(place.client.transport.write, b"anyone?")
    place.go_on(3)
    assert isinstance(place.client.lost[0], ConnectionResetError)
    place.end()


def test_the_kernel_closes_for_a_killed_process() -> None:
    """The other end hears of it, and the port refuses."""
    place = Place()
    place.connect()
    place.go_on(1)
    place.b.kill()
    place.network.on_killed(place.b, silently=False)
    place.go_on(1)
    assert place.client.lost == [None]
    again = place.run(place.a, place.a.loop.create_connection(Ear, "b", PORT))
    place.go_on(1)
    assert isinstance(again.exception(), ConnectionRefusedError)
    place.end()


def test_a_lost_machine_says_nothing() -> None:
    """Until it is back and somebody writes to what it has forgotten."""
    place = Place()
    place.connect()
    place.go_on(1)
    ways = (("a", "b"), ("b", "a"))
    place.b.kill()
    place.network.block(*ways)
    place.network.on_killed(place.b, silently=True)
    place.a.do(place.client.transport.write, b"anyone?")
    place.go_on(10)
    assert place.client.lost == []
    place.network.unblock(*ways)
    place.go_on(3)
    assert isinstance(place.client.lost[0], ConnectionResetError)
    place.end()


def test_a_stopped_process_is_reached_and_acts_later() -> None:
    """Its kernel takes connections and bytes; its timers go off when it goes on; its clock has gone on."""
    place = Place()
    place.b.stop()
    rung: list[float] = []
    place.b.loop.call_later(1.0, lambda: rung.append(place.b.seconds()))
    place.b.go_on(Random(1))
    place.connect()
    place.b.stop()
    place.go_on(5)
    assert place.client.transport is not None
    assert (place.server.heard, rung) == (b"", [])
    place.b.go_on(Random(1))
    place.go_on(0)
    assert place.server.heard == b"hello"
    assert rung == [505.0]
    place.end()


def test_a_timer_never_goes_off_early_by_a_drifting_clock() -> None:
    """Whatever the rate, the clock shows what was waited for."""
    place = Place()
    process = Process(place.scheduler, "c", Drift(12_345.678, 0.991), place.complaints.append)
    shown: list[tuple[float, float]] = []
    for number in range(50):
        when = process.seconds() + number * 0.0371
        process.loop.call_at(when, lambda when=when: shown.append((when, process.seconds())))
    place.go_on(10)
    assert len(shown) == 50
    assert all(0 <= now - when < 1e-6 for when, now in shown)
    place.end()


def test_a_killed_process_does_nothing_more() -> None:
    """Neither its tasks nor their `finally` run, until the run is over."""
    place = Place()
    done: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            done.append("worked")
        finally:
            done.append("cleared away")

    place.run(place.a, work())
    place.a.kill()
    place.go_on(10)
    assert done == []
    place.end()
    assert done == ["cleared away"]


class Stored:
    """A store, and the journal of a node at it."""

    def __init__(self) -> None:
        self.place = Place()
        self.store = Store(self.place.network, Random(1))
        self.journal = SimulatedJournal(self.store, self.place.a, timeout_s=1.0)

    def outcome(self, coroutine: Coroutine[Any, Any, Any], seconds: float = 5.0) -> Any:
        """What a call returns, or raises."""
        task = self.place.run(self.place.a, coroutine)
        self.place.go_on(seconds)
        return task.exception() or task.result()

    def lead(self) -> Epoch:
        self.outcome(self.journal.open())
        return Epoch(self.outcome(self.journal.lead()))

    def append(self, epoch: Epoch, position: int) -> FenceholdError | None:
        call = self.journal.append(b"entry", epoch=epoch, position=Position(position))
        failed: FenceholdError | None = self.outcome(call)
        return failed


def test_an_append_is_stored_and_answered() -> None:
    """Without faults it is as with any engine."""
    stored = Stored()
    assert stored.append(stored.lead(), 1) is None
    assert [record.data for record in stored.store.log] == [b"entry"]
    stored.place.end()


def test_a_refused_append_is_never_stored() -> None:
    """`Unavailable` is a promise."""
    stored = Stored()
    epoch = stored.lead()
    stored.store.condition.mood = Mood(refused=1.0)
    assert isinstance(stored.append(epoch, 1), Unavailable)
    stored.place.go_on(60)
    assert stored.store.log == []
    stored.place.end()


def test_an_append_whose_answer_is_lost_is_stored() -> None:
    """The caller does not know."""
    stored = Stored()
    epoch = stored.lead()
    stored.store.condition.mood = Mood(unanswered=1.0)
    assert isinstance(stored.append(epoch, 1), OutcomeUnknown)
    assert len(stored.store.log) == 1
    stored.place.end()


def test_an_append_held_back_meets_the_epoch_check() -> None:
    """It may arrive after its caller gave up; if a newer epoch was taken meanwhile, nothing is stored."""
    stored = Stored()
    epoch = stored.lead()
    outcomes = []
    for position in range(1, 40):
        stored.place.network.block(("a", HOST))
        outcomes.append(type(stored.append(epoch, position)))
        stored.store.lead("b")
        stored.place.network.unblock(("a", HOST))
        stored.place.go_on(5)
    assert set(outcomes) == {Unavailable, OutcomeUnknown}
    assert stored.store.log == []
    assert isinstance(stored.append(epoch, 1), Sealed)
    stored.place.end()


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_tail_hears_of_entries_and_fails_when_it_is_cut_off(is_cut: bool) -> None:
    """In order; and not for ever when the store cannot be heard."""
    stored = Stored()
    epoch = stored.lead()
    heard: list[int] = []

    async def follow() -> None:
        async for record in stored.journal.tail(Position(0)):
            heard.append(record.position)

    following = stored.place.run(stored.place.a, follow())
    for position in (1, 2, 3):
        stored.append(epoch, position)
    assert heard == [1, 2, 3]
    if is_cut:
        stored.place.network.block((HOST, "a"))
        stored.store.append("b", b"entry", epoch, Position(4))
        stored.place.go_on(10)
        assert isinstance(following.exception(), Unavailable)
    assert heard == [1, 2, 3]
    stored.place.end()
