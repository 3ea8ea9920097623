"""Snapshots: written apart in chunks, made current by one transaction; and trimming what the current one made
unnecessary.

1. A snapshot is current when the pointer names it. The pointer is set only if no other node has set it since this
   one was begun: so it is current whole, and no older one can come after it.
2. The name of each is unique: which one is current after a lost reply is found by reading the pointer.
3. A chunk that is missing was removed because a newer snapshot is current: a reader starts again with that one.
4. Entries are trimmed oldest first, a bounded number at a time, and the one at the snapshot's position stays. So
   what is left is one stretch, and its last position is the end of the journal.
5. The name of a snapshot carries the version of the pointer with which it is current. One with a version up to the
   pointer's, which the pointer does not name, can never be current again, and is removed. A later one may be under
   way.
6. Several may trim at once: what is missing already is as good as removed.
"""

import asyncio
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from kazoo.exceptions import NoNodeError, NotEmptyError

from fencehold.drivers.zookeeper.client import Request
from fencehold.engines.zookeeper.layout import (
    BUCKET,
    STUB,
    Digest,
    Layout,
    Pointed,
    Pointer,
    generation,
    pointed,
    snapshot_name,
)
from fencehold.engines.zookeeper.retries import (
    STEP_S,
    FailedTransaction,
    Operations,
    RetryingClient,
    failed,
    transaction,
)
from fencehold.errors import Damaged, OutcomeUnknown, Unavailable, UsageError
from fencehold.journal.port import Snapshot
from fencehold.runtime.ids import new_secret
from fencehold.types import BEGINNING, Position

_CHUNK_BYTES = 256 << 10
"""An append that comes just after a chunk waits for it: on the connection, and in the log of every server."""
_PAGE = 8
_LOADS_MAX = 8
_BATCH = 250


class ZookeeperSnapshots:
    """The snapshots of one journal."""

    def __init__(self, retries: RetryingClient, layout: Layout) -> None:
        self._retries = retries
        self._layout = layout

    async def pointed(self) -> Pointed:
        """Which one is current, as far as this handle has seen."""
        return pointed(await self._retries.read_one(lambda client: client.get_async(self._layout.pointer)))

    async def load(self) -> Snapshot | None:
        """The current one, whole."""
        seen = await self.pointed()
        for _ in range(_LOADS_MAX):
            if seen.pointer is None:
                return None
            data = await self._data(seen.pointer)
            if data is not None:
                return Snapshot(seen.position, data)
            before, seen = seen, await self.pointed()
            if before == seen:
                raise Damaged(f"the snapshot at {seen.position} lacks a chunk: something was removed from it")
        raise Unavailable(
            f"{self._retries.client.address}: each snapshot was replaced while it was read: try again"
        )

    async def save(self, position: Position, chunks: Iterable[bytes], end: Position) -> None:
        """See the port."""
        seen = await self.pointed()
        _check_place(position, seen, end)
        pointer = await self._drawn(position, seen.version + 1, chunks)
        failed = await self._publish("save", pointer, lambda request: self._point(request, pointer, seen.version))
        if failed is not None:
            _check_place(position, await self.pointed(), end)
            raise Unavailable(f"{self._retries.client.address}: another snapshot was saved at the same time")

    async def seed(self, position: Position, chunks: Iterable[bytes], end: Position) -> None:
        """See the port."""
        if position <= BEGINNING:
            raise UsageError(f"a journal is seeded at a position above 0, not {position}")
        seen = await self.pointed()
        if end or seen.pointer is not None:
            raise _not_empty()
        pointer = await self._drawn(position, seen.version + 1, chunks)
        failed = await self._publish("seed", pointer, lambda request: self._begin(request, pointer, seen.version))
        if failed is not None:
            raise _not_empty()

    async def _data(self, pointer: Pointer) -> bytes | None:
        digest, data = Digest(), bytearray()
        for first in range(0, pointer.chunks, _PAGE):
            page = range(first, min(first + _PAGE, pointer.chunks))
            for answer in await self._retries.read(*(self._get(pointer, number) for number in page)):
                if answer.is_missing:
                    return None
                digest.add(chunk := answer.unwrap()[0])
                data += chunk
        if not digest.fits(pointer):
            raise Damaged(f"the snapshot at {pointer.position} is not what was saved: its checksum differs")
        return bytes(data)

    def _get(self, pointer: Pointer, number: int) -> Request:
        path = self._layout.chunk(pointer.name, number)
        return lambda client: client.get_async(path)

    async def _drawn(self, position: Position, generation: int, chunks: Iterable[bytes]) -> Pointer:
        """Write all chunks apart, and return the pointer that makes them current."""
        name, digest, gathered = snapshot_name(generation, new_secret()), Digest(), bytearray()
        await self._retries.make(self._layout.snapshot(name), b"")
        for chunk in chunks:
            gathered += chunk
            while len(gathered) >= _CHUNK_BYTES:
                await self._put(name, digest, bytes(gathered[:_CHUNK_BYTES]))
                del gathered[:_CHUNK_BYTES]
            # The making of the snapshot shares the loop with the node's work: let that run after every step.
            await asyncio.sleep(0)
        if gathered:
            await self._put(name, digest, bytes(gathered))
        return Pointer(position, name, digest.chunks, digest.size, digest.crc32)

    async def _put(self, name: str, digest: Digest, chunk: bytes) -> None:
        await self._retries.make(self._layout.chunk(name, digest.chunks), chunk)
        digest.add(chunk)

    async def _publish(self, point: str, pointer: Pointer, operations: Operations) -> FailedTransaction | None:
        """Make a snapshot current; returns why it is not."""
        written = await self._retries.write(point, operations, self._retries.client.deadline_at(STEP_S))
        if written.failed is None or not written.doubtful:
            return written.failed
        try:
            seen = await self.pointed()
        except (Unavailable, Damaged) as error:
            raise OutcomeUnknown("the pointer to the snapshot could not be read after a lost answer") from error
        if seen.pointer != pointer:
            raise OutcomeUnknown(f"whether the snapshot at {pointer.position} was saved cannot be known")
        return None

    def _point(self, request: Any, pointer: Pointer, version: int) -> None:
        request.set_data(self._layout.pointer, pointer.encode(), version)

    def _begin(self, request: Any, pointer: Pointer, version: int) -> None:
        """Set the pointer, and put a stub at its position in place of the one at 0, if there is no entry."""
        layout, bucket = self._layout, pointer.position // BUCKET
        self._point(request, pointer, version)
        # ZooKeeper has no condition that a node is missing: making it and removing it again is one.
        request.create(layout.entry(1), STUB)
        request.delete(layout.entry(1))
        request.delete(layout.entry(BEGINNING))
        if bucket:
            request.delete(layout.bucket(0))
            request.create(layout.bucket(bucket))
        request.create(layout.entry(pointer.position), STUB)


def _check_place(position: Position, seen: Pointed, end: Position) -> None:
    if position > end:
        raise UsageError(f"a snapshot at {position} would be after the end of the journal, {end}")
    if position < seen.position:
        raise UsageError(f"a snapshot at {position} would be older than the one at {seen.position}")


def _not_empty() -> UsageError:
    return UsageError("only an empty journal can be seeded, and this one has entries or a snapshot")


class ZookeeperTrimmer:
    """Makes room in one journal."""

    def __init__(self, retries: RetryingClient, layout: Layout) -> None:
        self._retries = retries
        self._layout = layout

    async def trim(self, seen: Pointed) -> None:
        """Remove what the snapshot that was seen made unnecessary."""
        if seen.pointer is not None:
            await self._trim_entries(seen.position)
            await self._trim_snapshots(seen.version, seen.pointer.name)

    async def _trim_entries(self, kept: Position) -> None:
        for number in sorted(map(int, await self._children(self._layout.entries))):
            if number <= kept // BUCKET:
                await self._empty(self._layout.bucket(number), kept)
            if number < kept // BUCKET:
                await self._remove([self._layout.bucket(number)])

    async def _trim_snapshots(self, version: int, standing: str) -> None:
        for name in await self._children(self._layout.snapshots):
            number = generation(name)
            if number is not None and number <= version and name != standing:
                await self._empty(self._layout.snapshot(name))
                await self._remove([self._layout.snapshot(name)])

    async def _empty(self, path: str, below: float = inf) -> None:
        """Remove the children of a node whose number is below another, the smallest first."""
        while names := [name for name in await self._children(path) if int(name) < below]:
            await self._remove([f"{path}/{name}" for name in names[:_BATCH]])

    async def _children(self, path: str) -> list[str]:
        answer = await self._retries.read_one(lambda client: client.get_children_async(path))
        # All have digits of equal number in front, so the order of names is that of numbers.
        return [] if answer.is_missing else sorted(answer.unwrap())

    async def _remove(self, paths: Sequence[str]) -> None:
        def fill(request: Any) -> None:
            for path in paths:
                request.delete(path)

        answer = await self._retries.read_one(transaction(fill))
        problem = failed(answer.value)
        # Another node that trims was first. What was left by it is found by the next look.
        if problem is not None and not problem.is_a((NoNodeError, NotEmptyError)):
            raise self._retries.client.refusal(problem.error)
