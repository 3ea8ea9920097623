"""Snapshots in etcd, and trimming what the newest one made unnecessary.

1. Chunks come first, one by one, then one transaction that makes them the snapshot. They are under a unique name,
   which begins with the position. Until the pointer names it, a snapshot is not there; so one that was aborted
   half-way is only garbage.
2. The pointer moves in one transaction, from the one that was seen to a newer, and only while the chunks are
   there. Positions of snapshots never go back.
3. Chunks of positions before the pointer's are of no use, not even to a node that is still writing them: they may
   be deleted at any time. A name's chunks are deleted at once or not at all, so the first one stands for all of
   them.
4. Entries are trimmed from the first on, in steps, so there is never a gap, and no step holds up appends for long.
   The entry at the snapshot's position stays: the next append wants its predecessor present, and a late request
   for a position that is gone must find none.
5. etcd keeps what was deleted until a compaction. Each trim compacts up to where the one before it ended: a reader
   or watcher a little behind loses nothing, and the database holds about two snapshots' worth of entries. Where
   room is scarce it compacts up to its own end: a reader just behind reads on by the page, or begins with the
   snapshot.
"""

import asyncio
from collections.abc import Iterable
from zlib import crc32

import msgspec

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.client import Compacted, EtcdClient
from fencehold.drivers.etcd.transactions import (
    Message,
    count,
    count_in,
    delete,
    first_of,
    get,
    is_absent,
    is_present,
    is_unchanged,
    put,
    revision_in,
    transaction,
    value_in,
)
from fencehold.engines.etcd.layout import POSITION_MAX, JournalKeys, encode_beginning
from fencehold.errors import Damaged, OutcomeUnknown, Unavailable, UsageError
from fencehold.journal.port import Snapshot
from fencehold.runtime.ids import new_secret
from fencehold.types import BEGINNING, Position

CHUNK_BYTES = 256 << 10
"""An append may wait behind a chunk, so a chunk is small."""
_TURNS_MAX = 16
"""How often the pointer may move while one saver tries to move it."""
STEP_ENTRIES = 1_000


class Pointer(msgspec.Struct, frozen=True):
    """Which snapshot is the current one, and how to check that it is whole."""

    position: int
    name: str
    chunks: int
    size_bytes: int
    crc: int


def pointer_of(answer: Message) -> Pointer | None:
    """What a `get` of the pointer found.

    Raises:
        Damaged: it is not one.
    """
    value = value_in(answer)
    try:
        return None if value is None else msgspec.json.decode(value, type=Pointer)
    except msgspec.DecodeError as error:
        raise Damaged(f"the pointer to the snapshot cannot be read from etcd: {error}") from error


async def pointer_at(cluster: EtcdClient, keys: JournalKeys) -> Pointer | None:
    """The current snapshot."""
    found = await cluster.read(transaction(then=[get(keys.snapshot)]))
    return pointer_of(found.responses[0])


async def load(cluster: EtcdClient, keys: JournalKeys, pointer: Pointer) -> Snapshot | None:
    """The snapshot itself; None if it is not all there, as when a newer one replaced it meanwhile.

    Raises:
        Damaged: it is all there, and not what was saved.
    """
    data = bytearray()
    for number in range(pointer.chunks):
        found = await cluster.read(messages.RangeRequest(key=keys.chunk(pointer.name, number)))
        if not found.kvs:
            return None
        data += found.kvs[0].value
    if (len(data), crc32(data)) != (pointer.size_bytes, pointer.crc):
        raise Damaged(f"the snapshot at position {pointer.position} is not as it was saved")
    return Snapshot(Position(pointer.position), bytes(data))


async def save(cluster: EtcdClient, keys: JournalKeys, position: Position, chunks: Iterable[bytes]) -> None:
    """As the port says."""
    if not BEGINNING <= position <= POSITION_MAX:
        raise UsageError(f"a snapshot at {position} would be outside of every journal")
    # Entries have no gaps, so there is one at the position unless it is before the snapshot or after the end.
    look = [get(keys.snapshot), count(keys.entry(position))]
    stands, entry = (await cluster.read(transaction(then=look))).responses
    _refuse_older(position, pointer_of(stands))
    if not count_in(entry):
        raise UsageError(f"a snapshot at {position} would be after the end of the journal")
    draft = SnapshotDraft(cluster, keys, position)
    await draft.write(chunks)
    await draft.publish(revision_in(stands))


async def seed(cluster: EtcdClient, keys: JournalKeys, position: Position, chunks: Iterable[bytes]) -> None:
    """As the port says."""
    if not BEGINNING < position <= POSITION_MAX:
        raise UsageError(f"a journal is seeded at a position above 0, not {position}")
    await _refuse_unless_empty(cluster, keys)
    draft = SnapshotDraft(cluster, keys, position)
    await draft.write(chunks)
    await draft.begin()


class SnapshotDraft:
    """A snapshot under way, under a name of its own."""

    def __init__(self, cluster: EtcdClient, keys: JournalKeys, position: Position) -> None:
        self._cluster = cluster
        self._keys = keys
        self._position = position
        self._name = f"{position:020d}-{new_secret()}"
        self._chunks = self._size_bytes = self._crc = 0

    async def write(self, chunks: Iterable[bytes]) -> None:
        """Write the chunks, in pieces of one size."""
        gathered = bytearray()
        for chunk in chunks:
            gathered += chunk
            while len(gathered) >= CHUNK_BYTES:
                await self._add(bytes(gathered[:CHUNK_BYTES]))
                del gathered[:CHUNK_BYTES]
            # The making of the snapshot shares the loop with the node's work: let that run after every step.
            await asyncio.sleep(0)
        # The last piece may be empty: then the first one is, and there is one to check by.
        await self._add(bytes(gathered))

    async def publish(self, seen_revision: int) -> None:
        """Make it the current snapshot, in place of the one last changed at that revision, or an older."""
        for _ in range(_TURNS_MAX):
            so = [is_unchanged(self._keys.snapshot, seen_revision), is_present(self._first_chunk)]
            then = [put(self._keys.snapshot, self._pointer())]
            answer = await self._cluster.transact(transaction(so, then, [get(self._keys.snapshot)]))
            if answer.message.succeeded:
                return
            found = answer.message.responses[0]
            stands = pointer_of(found)
            if stands is not None and self._is_settled(stands, answer.doubted):
                return
            _refuse_older(self._position, stands)
            seen_revision = revision_in(found)
        raise Unavailable(f"others save snapshots so often that the one at {self._position} found no turn")

    async def begin(self) -> None:
        """Make it the beginning of an empty journal."""
        keys = self._keys
        start = keys.entry(BEGINNING)
        so = [
            is_absent(keys.snapshot),
            is_present(start),
            is_absent(keys.entry(Position(BEGINNING + 1))),
            is_present(self._first_chunk),
        ]
        then = [
            put(keys.snapshot, self._pointer()),
            put(keys.entry(self._position), encode_beginning(self._position)),
            delete(start),
        ]
        answer = await self._cluster.transact(transaction(so, then, [get(keys.snapshot)]))
        if not answer.message.succeeded:
            stands = pointer_of(answer.message.responses[0])
            if stands is None or stands.name != self._name:
                raise _not_empty() if not answer.doubted else OutcomeUnknown("there is another snapshot by now")

    def _is_settled(self, stands: Pointer, is_doubted: bool) -> bool:
        # An earlier try published it; if another is the current one by now, that came later and is as new or
        # newer.
        return stands.name == self._name or (is_doubted and stands.position >= self._position)

    @property
    def _first_chunk(self) -> bytes:
        return self._keys.chunk(self._name, 0)

    async def _add(self, piece: bytes) -> None:
        try:
            await self._cluster.put(self._keys.chunk(self._name, self._chunks), piece)
        except OutcomeUnknown as error:
            raise Unavailable(f"the snapshot was aborted: {error}") from error
        self._chunks += 1
        self._size_bytes += len(piece)
        self._crc = crc32(piece, self._crc)

    def _pointer(self) -> bytes:
        return msgspec.json.encode(Pointer(self._position, self._name, self._chunks, self._size_bytes, self._crc))


def _refuse_older(position: Position, stands: Pointer | None) -> None:
    if stands is not None and position < stands.position:
        raise UsageError(f"a snapshot at {position} would be older than the one at {stands.position}")


async def _refuse_unless_empty(cluster: EtcdClient, keys: JournalKeys) -> None:
    look = [count(keys.snapshot), count(keys.entry(BEGINNING)), count(keys.entry(Position(BEGINNING + 1)))]
    found = await cluster.read(transaction(then=look))
    if [count_in(answer) for answer in found.responses] != [0, 1, 0]:
        raise _not_empty()


def _not_empty() -> UsageError:
    return UsageError("only an empty journal can be seeded, and this one has entries or a snapshot")


class EtcdTrimmer:
    """Trims one journal, at each call."""

    def __init__(self, cluster: EtcdClient, keys: JournalKeys, *, compacts: bool) -> None:
        self._cluster = cluster
        self._keys = keys
        self._compacts = compacts
        self._trimmed_at = 0
        """The revision after the last trim."""

    async def trim(self, *, urgent: bool = False) -> None:
        """As the port says."""
        try:
            await self._trim(urgent)
        except OutcomeUnknown as error:
            # Deleting what is unnecessary does no harm whenever it happens.
            raise Unavailable(str(error)) from error

    async def _trim(self, urgent: bool) -> None:
        keys = self._keys
        look = transaction(then=[get(keys.snapshot), first_of(keys.entries_start, keys.entries_end)])
        found = await self._cluster.read(look)
        pointer = pointer_of(found.responses[0])
        if pointer is None:
            return
        first = keys.position(found.responses[1].response_range.kvs[0].key)
        await self._delete_entries(first, Position(pointer.position))
        revision = await self._cluster.delete(*keys.snapshots_before(Position(pointer.position)))
        await self._compact(revision, urgent)

    async def _delete_entries(self, first: Position, up_to: Position) -> None:
        while first < up_to:
            first = Position(min(first + STEP_ENTRIES, up_to))
            await self._cluster.delete(self._keys.entries_start, self._keys.entry(first))

    async def _compact(self, revision: int, urgent: bool) -> None:
        before, self._trimmed_at = self._trimmed_at, revision
        if urgent:
            before = revision
        if not self._compacts or not before:
            return
        try:
            await self._cluster.compact(before)
        except Compacted:
            # Another node trims as well, or etcd compacts by itself.
            return
