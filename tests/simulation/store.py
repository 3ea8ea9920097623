"""The simulated journal: one store far away, and each node's way to it.

The store is the memory engine itself, so what it decides is what that engine decides. In between lies a network:

1. A request may be refused on the way (`Unavailable`: it certainly never arrives), get there late, even after its
   caller gave up, or get there and lose its answer (`OutcomeUnknown`). A late append meets the epoch check.
2. Where the way to the store is blocked, or the store has no quorum, requests are refused or held back.
3. A tail hears of entries in order, some time later; it fails when it was cut off for long.
4. The log keeps everything that ever was stored, with the true time: trimming is for nodes only.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from random import Random
from typing import Any, NamedTuple, TypeVar

from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import FenceholdError, OutcomeUnknown, Trimmed, Unavailable, UsageError
from fencehold.journal.health import Health
from fencehold.journal.port import Declared, Opened, Record
from fencehold.journal.room import Room
from fencehold.types import Epoch, Position
from tests.simulation.network import Network
from tests.simulation.process import Process

HOST = "store"
PAGE = 64
"""Entries that are read by one request."""

Result = TypeVar("Result")


class Stored(NamedTuple):
    """An entry, from the moment it was durable."""

    at_ns: int
    position: int
    epoch: int
    node: str
    data: bytes


class Led(NamedTuple):
    """An epoch, from the moment it was taken."""

    at_ns: int
    epoch: int
    node: str


class Saved(NamedTuple):
    """A snapshot, from the moment it was kept."""

    at_ns: int
    position: int
    node: str
    data: bytes


class Mood(NamedTuple):
    """How often requests to the store go wrong."""

    refused: float = 0.0
    late: float = 0.0
    unanswered: float = 0.0


def step(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that waits for nothing."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


class Condition:
    """How the engine is doing, in which the stores of all shards are."""

    def __init__(self) -> None:
        self.mood = Mood()
        self.has_quorum = True
        self._waiting: list[Callable[[], None]] = []

    def lose_quorum(self) -> None:
        """Let nothing be asked until it is back."""
        self.has_quorum = False

    def find_quorum(self) -> None:
        self.has_quorum = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def when_asked(self, call: Callable[[], None]) -> None:
        """Call when it has a quorum."""
        if self.has_quorum:
            call()
        else:
            self._waiting.append(call)


class Store:
    """What all nodes share, of one shard."""

    def __init__(self, network: Network, random: Random, condition: Condition | None = None) -> None:
        self.network = network
        self.random = random
        self.condition = condition or Condition()
        self.memory = MemoryStore()
        self.log: list[Stored] = []
        self.leads: list[Led] = []
        self.snapshots: list[Saved] = []
        self.faults = 0
        """Requests that went wrong on purpose."""
        self.before_stored: Callable[[], None] = _nothing
        """Called when an entry is about to be durable."""
        self._engine = MemoryJournal(self.memory)
        self._tails: dict[Tail, None] = {}
        step(self._engine.open())

    @property
    def now_ns(self) -> int:
        return self.network.scheduler.now_ns

    def open(self) -> Opened:
        memory = self.memory
        return Opened(memory.snapshot, memory.epoch, memory.end)

    def lead(self, node: str, known: Epoch | None = None) -> Epoch:
        epoch = step(self._engine.lead(known))
        self.leads.append(Led(self.now_ns, epoch, node))
        return epoch

    def append(self, node: str, entry: bytes, epoch: Epoch, position: Position) -> None:
        end = self.memory.end
        self.before_stored()
        step(self._engine.append(entry, epoch=epoch, position=position))
        if self.memory.end > end:
            self.log.append(Stored(self.now_ns, position, epoch, node, entry))
            for tail in tuple(self._tails):
                tail.tell()

    def page(self, after: Position) -> list[Record]:
        memory = self.memory
        if after < memory.trimmed:
            raise Trimmed(f"entries up to {memory.trimmed} were trimmed")
        start = after - memory.trimmed
        return memory.records[start : start + PAGE]

    def save(self, node: str, position: Position, data: bytes) -> None:
        step(self._engine.save(position, [data]))
        self.snapshots.append(Saved(self.now_ns, position, node, data))

    def trim(self) -> None:
        step(self._engine.trim())

    def watch(self, tail: "Tail") -> None:
        self._tails[tail] = None

    def unwatch(self, tail: "Tail") -> None:
        self._tails.pop(tail, None)


def _nothing() -> None:
    """Nobody wants to know."""


class Call:
    """One request to the store, on its way there and back."""

    def __init__(self, store: Store, process: Process, act: Callable[[], Any], timeout_s: float) -> None:
        self.answer: asyncio.Future[Any] = process.loop.create_future()
        self._store = store
        self._process = process
        self._act = act
        self._timeout_s = timeout_s
        self._lost = False
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self._give_up: Callable[[], FenceholdError] = lambda: Unavailable("never sent")

    def send(self, give_up: Callable[[], FenceholdError]) -> None:
        store, network = self._store, self._store.network
        mood, draw = store.condition.mood, store.random.random()
        delay_ns = network.latency_ns()
        self._give_up = give_up
        self._until_s = self._process.seconds() + self._timeout_s
        if draw < mood.refused or self._is_refused():
            store.faults += 1
            self._process.loop.call_later(
                self._timeout_s * store.random.random() * 0.8, self._end, Unavailable("the store was not reached")
            )
            return
        if draw < mood.refused + mood.late:
            store.faults += 1
            delay_ns += int(2 * self._timeout_s * store.random.random() * 1e9)
            self._may_be_late()
        elif draw < mood.refused + mood.late + mood.unanswered:
            store.faults += 1
            self._lost = True
            self._may_be_late()
        network.scheduler.at(store.now_ns + delay_ns, None, self._arrive)

    def _may_be_late(self) -> None:
        """Set a timer. Not for every call: few need it, and it is to be had when something holds one up."""
        if self._timer is None and self._process.alive:
            self._timer = self._process.loop.call_at(self._until_s, self._end, self._give_up())

    def _is_refused(self) -> bool:
        """The way is closed, and the caller's own driver notices."""
        is_cut = self._store.network.is_blocked(self._process.host, HOST) or not self._store.condition.has_quorum
        return is_cut and self._store.random.random() < 0.7

    def _arrive(self) -> None:
        network, host = self._store.network, self._process.host
        if network.is_blocked(host, HOST):
            self._may_be_late()
            network.when_open(host, HOST, self._arrive)
        else:
            if not self._store.condition.has_quorum:
                self._may_be_late()
            self._store.condition.when_asked(self._carry_out)

    def _carry_out(self) -> None:
        result: Any = None
        error: FenceholdError | None = None
        try:
            result = self._act()
        except FenceholdError as failure:
            error = failure
        if not self._lost:
            network = self._store.network
            network.scheduler.at(self._store.now_ns + network.latency_ns(), None, self._return, result, error)

    def _return(self, result: Any, error: FenceholdError | None) -> None:
        network, host = self._store.network, self._process.host
        if network.is_blocked(HOST, host):
            self._may_be_late()
            network.when_open(HOST, host, lambda: self._return(result, error))
        elif self._process.stopped and self._store.random.random() < 0.5:
            # When it goes on it looks at its clock before it reads.
            self._may_be_late()
            self._store.network.scheduler.after(self._timeout_s, self._return, result, error)
        else:
            self._process.do(self._end, error, result)

    def _end(self, error: FenceholdError | None, result: Any = None) -> None:
        if self.answer.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(result)


class Tail:
    """How far one node has heard of the entries."""

    def __init__(self, store: Store, process: Process, after: Position) -> None:
        self._store = store
        self._process = process
        self._after = after
        self._under_way = False
        self._news: asyncio.Future[None] | None = None

    def tell(self) -> None:
        """There is something new at the store."""
        if not self._under_way:
            self._under_way = True
            network = self._store.network
            network.scheduler.at(network.scheduler.now_ns + network.latency_ns(), None, self._arrive)

    def _arrive(self) -> None:
        network, host = self._store.network, self._process.host
        if network.is_blocked(HOST, host):
            network.when_open(HOST, host, self._arrive)
        elif not self._store.condition.has_quorum:
            self._store.condition.when_asked(self._arrive)
        else:
            self._process.do(self.wake)

    def wake(self) -> None:
        """Look again."""
        self._under_way = False
        self._ring()

    async def next(self, timeout_s: float) -> list[Record]:
        """What is new; nothing after so long without any, or when it was woken for another reason."""
        if self._under_way or not (records := self._store.page(self._after)):
            await self._wait(timeout_s)
            if self._under_way:
                return []
            records = self._store.page(self._after)
        if records:
            self._after = records[-1].position
        return records

    async def _wait(self, timeout_s: float) -> None:
        loop = self._process.loop
        news = self._news = loop.create_future()
        timer = loop.call_later(timeout_s, self._ring)
        try:
            await news
        finally:
            timer.cancel()

    def _ring(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def is_cut_off(self) -> bool:
        return self._under_way


class SimulatedJournal:
    """One node's handle on the store."""

    declared = Declared(engine="simulated", durable=True, shared=True)

    def __init__(self, store: Store, process: Process, timeout_s: float = 1.0) -> None:
        self._store = store
        self._process = process
        self._timeout_s = timeout_s
        self._open = False
        self._appending: asyncio.Future[Any] | None = None
        self._tails: dict[Tail, None] = {}

    async def open(self) -> Opened:
        if self._open:
            raise UsageError("this journal is open already")
        opened = await self._ask(self._store.open, Unavailable)
        self._open = True
        return opened  # type: ignore[no-any-return]

    async def read(self, after: Position) -> AsyncIterator[Record]:
        self._check()
        end = (await self._ask(self._store.open, Unavailable)).end
        while after < end:
            self._check()
            start = after
            records: list[Record] = await self._ask(lambda: self._store.page(start), Unavailable)  # noqa: B023
            for record in records:
                if record.position <= end:
                    yield record
            after = records[-1].position

    async def tail(self, after: Position) -> AsyncIterator[Record]:
        self._check()
        tail = Tail(self._store, self._process, after)
        self._store.watch(tail)
        self._tails[tail] = None
        tail.tell()
        try:
            while self._open:
                records = await tail.next(3.0)
                for record in records:
                    yield record
                if not records and tail.is_cut_off():
                    raise Unavailable("the store was not heard of for too long")
        finally:
            self._store.unwatch(tail)
            self._tails.pop(tail, None)

    async def lead(self, known: Epoch | None = None) -> Epoch:
        self._check()
        node = self._process.host
        return await self._ask(lambda: self._store.lead(node, known), OutcomeUnknown)  # type: ignore[no-any-return]

    async def append(self, entry: bytes, *, epoch: Epoch, position: Position) -> None:
        self._check()
        node = self._process.host
        call = self._call(lambda: self._store.append(node, entry, epoch, position), OutcomeUnknown)
        self._appending = call
        try:
            await call
        finally:
            self._appending = None

    async def save(self, position: Position, chunks: Iterable[bytes]) -> None:
        self._check()
        data = bytearray()
        for chunk in chunks:
            data += chunk
            await asyncio.sleep(0)
        node = self._process.host
        await self._ask(lambda: self._store.save(node, position, bytes(data)), OutcomeUnknown)

    async def seed(self, position: Position, chunks: Iterable[bytes]) -> None:
        raise NotImplementedError

    async def trim(self, *, urgent: bool = False) -> None:
        self._check()
        await self._ask(self._store.trim, Unavailable)

    async def health(self, within_s: float) -> Health:
        return Health()

    async def room(self, within_s: float) -> Room:
        return Room()

    async def close(self) -> None:
        if self._appending is not None:
            await asyncio.wait([self._appending])
        self._open = False
        for tail in tuple(self._tails):
            tail.wake()

    def _check(self) -> None:
        if not self._open:
            raise Unavailable("this journal is not open: open it first")

    def _call(self, act: Callable[[], Any], late: type[FenceholdError]) -> "asyncio.Future[Any]":
        call = Call(self._store, self._process, act, self._timeout_s)
        call.send(lambda: late("the store did not answer in time"))
        return call.answer

    async def _ask(self, act: Callable[[], Any], late: type[FenceholdError]) -> Any:
        return await self._call(act, late)
