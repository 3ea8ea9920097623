"""The map of slots to shards: a value with a version.

1. Every slot has one shard. The map that a service is made with gives each shard one range, all as long as
   one another but for one slot.
2. A map is replaced by one with a greater version, and by no other: what comes late is not believed.
"""

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from fencehold.errors import UsageError
from fencehold.placement.slots import SLOTS, slot_of

SHARDS_MAX = 1_024
"""A node keeps a journal open for each."""


class SlotRange(Struct, frozen=True, gc=False, array_like=True, order=True):
    """Slots next to one another, the last included, and their shard."""

    first: int
    last: int
    shard: int


class ShardMap(Struct, frozen=True, array_like=True):
    """Which shard every slot belongs to."""

    version: int
    shards: int
    ranges: tuple[SlotRange, ...]
    """In the order of the slots, without gaps."""

    def shard_of(self, slot: int) -> int:
        """The home of a slot."""
        return self.ranges[bisect_right(self.ranges, slot, key=_first) - 1].shard

    def shard_of_name(self, name: str) -> int:
        """The home of a name."""
        return self.shard_of(slot_of(name))

    def ranges_of(self, shard: int) -> tuple[SlotRange, ...]:
        """The slots of one shard."""
        return tuple(each for each in self.ranges if each.shard == shard)

    def newest(self, other: "ShardMap") -> "ShardMap":
        """The newer one of two."""
        return other if other.version > self.version else self

    def changes_to(self, before: "ShardMap") -> "list[SlotRange]":
        """The slots that have another shard than in the map before, in order, and the shard they have here."""
        changes: list[SlotRange] = []
        others = iter(before.ranges)
        other = next(others)
        for each in self.ranges:
            first = each.first
            while first <= each.last:
                while other.last < first:
                    other = next(others)
                last = min(each.last, other.last)
                if other.shard != each.shard:
                    changes.append(SlotRange(first, last, each.shard))
                first = last + 1
        return changes

    def is_whole(self) -> bool:
        """Whether it says of each slot, once, which of its shards it belongs to."""
        follows = 0
        for each in self.ranges:
            if each.first != follows or each.last < each.first or not 0 <= each.shard < self.shards:
                return False
            follows = each.last + 1
        return follows == SLOTS

    def moved(self, slots: Iterable[int], shard: int) -> "ShardMap":
        """The next map, in which these slots are a shard's.

        Raises:
            UsageError: there is no such slot or shard.
        """
        homes = [each.shard for each in self.ranges for _ in range(each.first, each.last + 1)]
        for slot in slots:
            if not 0 <= slot < SLOTS or not 0 <= shard < self.shards:
                raise UsageError(f"slots are 0 to {SLOTS - 1}, shards 0 to {self.shards - 1}: not {slot}, {shard}")
            homes[slot] = shard
        return ShardMap(self.version + 1, self.shards, _ranges_in(homes))


@lru_cache(maxsize=8)
def even_map(shards: int) -> ShardMap:
    """The map that a service with so many shards is made with.

    Raises:
        UsageError: so many cannot be.
    """
    check_shards(shards)
    bounds = [shard * SLOTS // shards for shard in range(shards + 1)]
    ranges = tuple(SlotRange(bounds[shard], bounds[shard + 1] - 1, shard) for shard in range(shards))
    return ShardMap(1, shards, ranges)


def check_shards(shards: int) -> None:
    """Raise `UsageError` for a number of shards that no service can have."""
    if not 1 <= shards <= SHARDS_MAX:
        raise UsageError(f"a service has 1 to {SHARDS_MAX} shards, not {shards}")


def _first(slots: SlotRange) -> int:
    return slots.first


def _ranges_in(homes: list[int]) -> tuple[SlotRange, ...]:
    ranges: list[SlotRange] = []
    start = 0
    for slot in range(1, SLOTS + 1):
        if slot == SLOTS or homes[slot] != homes[start]:
            ranges.append(SlotRange(start, slot - 1, homes[start]))
            start = slot
    return tuple(ranges)
