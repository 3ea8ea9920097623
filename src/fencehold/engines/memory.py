"""The memory engine: a journal in a list, for tests and for a tier that may lose its state.

A `MemoryStore` is the shared thing; a `MemoryJournal` is one handle on it, and many may be open at once, as with
an engine across a network. The rules it obeys beyond those of the port:

1. The store outlives its handles but not the process: it declares itself shared, and not durable.
2. A call is one step of the event loop: nothing is awaited between deciding and recording, so handles of one
   loop can never interleave inside a call, and an append costs no more than a list's.
3. A store belongs to one event loop at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

from fencehold.errors import OutOfPlace, Sealed, Trimmed, Unavailable, UsageError
from fencehold.journal.health import Health
from fencehold.journal.port import Declared, Opened, Record, Snapshot
from fencehold.journal.room import Room
from fencehold.runtime.faults import NO_FAULTS, Faults
from fencehold.types import BEGINNING, Epoch, Position


class MemoryStore:
    """What all handles share: the entries after `trimmed`, the newest epoch, the newest snapshot."""

    __slots__ = ("epoch", "news", "records", "snapshot", "tails", "trimmed")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.trimmed: Position = BEGINNING
        self.epoch = Epoch(0)
        self.snapshot: Snapshot | None = None
        self.news = asyncio.Event()
        self.tails = 0

    @property
    def end(self) -> Position:
        return Position(self.trimmed + len(self.records))

    def wake(self) -> None:
        """Let every tail look again."""
        news, self.news = self.news, asyncio.Event()
        news.set()


class MemoryJournal:
    """A handle on a `MemoryStore`."""

    declared = Declared(engine="memory", durable=False, shared=True)

    def __init__(self, store: MemoryStore, *, faults: Faults = NO_FAULTS) -> None:
        self._store = store
        self._faults = faults
        self._open = False

    async def open(self) -> Opened:
        if self._open:
            raise UsageError("this journal is open already")
        self._open = True
        store = self._store
        return Opened(store.snapshot, store.epoch, store.end)

    async def read(self, after: Position) -> AsyncIterator[Record]:
        store = self._opened()
        end = store.end
        while after < end:
            record = self._at(Position(after + 1))
            yield record
            after = record.position

    async def tail(self, after: Position) -> AsyncIterator[Record]:
        store = self._opened()
        while self._open:
            if after < store.end:
                record = self._at(Position(after + 1))
                yield record
                after = record.position
            else:
                await self._hear(store)

    async def lead(self, known: Epoch | None = None) -> Epoch:
        store = self._opened()
        self._faults.reach("lead.before")
        if known is not None and store.epoch > known:
            raise Sealed(f"epoch {store.epoch} was taken before", newest=store.epoch)
        store.epoch = Epoch(store.epoch + 1)
        self._faults.reach("lead.stored")
        return store.epoch

    async def append(self, entry: bytes, *, epoch: Epoch, position: Position) -> None:
        MemoryJournal.append_here(self, entry, epoch=epoch, position=position)

    def append_here(self, entry: bytes, *, epoch: Epoch, position: Position) -> bool:
        store, faults = self._opened(), self._faults
        if faults is not NO_FAULTS:
            faults.reach("append.before")
        self._check(store, entry, epoch, position)
        store.records.append(Record(position, epoch, entry))
        if store.tails:
            store.wake()
        if faults is not NO_FAULTS:
            faults.reach("append.stored")
        return True

    async def save(self, position: Position, chunks: Iterable[bytes]) -> None:
        store = self._opened()
        _check_snapshot(store, position)
        data = await _drawn(chunks)
        store = self._opened()
        _check_snapshot(store, position)
        store.snapshot = Snapshot(position, data)

    async def seed(self, position: Position, chunks: Iterable[bytes]) -> None:
        store = self._opened()
        _check_empty(store, position)
        data = await _drawn(chunks)
        store = self._opened()
        _check_empty(store, position)
        store.snapshot, store.trimmed = Snapshot(position, data), position

    async def trim(self, *, urgent: bool = False) -> None:
        store = self._opened()
        if store.snapshot is not None and store.snapshot.position > store.trimmed:
            del store.records[: store.snapshot.position - store.trimmed]
            store.trimmed = store.snapshot.position

    async def health(self, within_s: float) -> Health:
        return Health()

    async def room(self, within_s: float) -> Room:
        return Room()

    async def close(self) -> None:
        self._open = False
        self._store.wake()

    def _opened(self) -> MemoryStore:
        if not self._open:
            raise Unavailable("this journal is not open: open it first")
        return self._store

    def _at(self, position: Position) -> Record:
        store = self._store
        if position <= store.trimmed:
            raise Trimmed(f"entries up to {store.trimmed} were trimmed, {position} with them")
        return store.records[position - store.trimmed - 1]

    async def _hear(self, store: MemoryStore) -> None:
        store.tails += 1
        try:
            await store.news.wait()
        finally:
            store.tails -= 1

    def _check(self, store: MemoryStore, entry: bytes, epoch: Epoch, position: Position) -> None:
        if not 0 < len(entry) <= self.declared.entry_bytes_max:
            raise UsageError(f"an entry has 1 to {self.declared.entry_bytes_max} bytes, not {len(entry)}")
        if epoch < store.epoch:
            raise Sealed(f"epoch {epoch} was sealed by epoch {store.epoch}")
        if epoch > store.epoch:
            raise UsageError(f"epoch {epoch} was never taken: the newest is {store.epoch}")
        if position != store.end + 1:
            raise OutOfPlace(f"the next position is {store.end + 1}, not {position}")


def _check_snapshot(store: MemoryStore, position: Position) -> None:
    if position > store.end:
        raise UsageError(f"a snapshot at {position} would be after the end of the journal, {store.end}")
    if store.snapshot is not None and position < store.snapshot.position:
        raise UsageError(f"a snapshot at {position} would be older than the one at {store.snapshot.position}")


def _check_empty(store: MemoryStore, position: Position) -> None:
    if store.end or store.snapshot is not None:
        raise UsageError(f"only an empty journal can be seeded, and this one ends at {store.end}")
    if position <= BEGINNING:
        raise UsageError(f"a journal is seeded at a position above 0, not {position}")


async def _drawn(chunks: Iterable[bytes]) -> bytes:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        # The making of the snapshot shares the loop with the node's work: let that run after every step.
        await asyncio.sleep(0)
    return bytes(data)
