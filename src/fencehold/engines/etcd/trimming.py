"""Trimming: what the newest snapshot made needless is deleted, and etcd forgets that it was there.

1. Entries go from the first on, in steps, so there is never a gap, and no step holds up appends for long. The
   entry at the snapshot's position stays: the next append wants its predecessor present, and a late request for
   a position that is gone must find none.
2. Chunks of snapshots before the one that stands go, be they old, or given up, or still being written in vain.
3. etcd keeps what was deleted until it is told to compact. It is told so up to where the trim before this one
   ended: who reads or watches a little behind loses nothing, and the database holds about two snapshots' worth
   of entries. Where room is scarce it is told so up to this one: who was just behind reads on by the page, or
   begins with the snapshot.
"""

from fencehold.drivers.etcd.cluster import Cluster, Compacted
from fencehold.drivers.etcd.transactions import first_of, get, transaction
from fencehold.engines.etcd.keys import Keys
from fencehold.engines.etcd.snapshots import pointer_of
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.types import Position

STEP_ENTRIES = 1_000


class Trimmer:
    """Trims one journal, time and again."""

    def __init__(self, cluster: Cluster, keys: Keys, *, compacts: bool) -> None:
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
            # Deleting what is needless does no harm whenever it happens.
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
