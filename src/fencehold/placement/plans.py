"""Plans: the next map, of what an administrator asks for; and what it moves.

1. A plan moves as few slots as it can, and none twice.
2. It is made of one map, and is the next version of it: if another is taken meanwhile, it is refused.
"""

from typing import NamedTuple

from fencehold.errors import UsageError
from fencehold.placement.map import ShardMap, even_map
from fencehold.placement.slots import SLOTS


class Shift(NamedTuple):
    """Slots that go from one shard to another."""

    source: int
    to: int
    slots: tuple[int, ...]


def slots_in(text: str) -> list[int]:
    """The slots of a list such as `0-4095,5000`.

    Raises:
        UsageError: it is none.
    """
    slots: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        bounds = (first, last) if dash else (first, first)
        if not all(bound.isascii() and bound.isdigit() for bound in bounds):
            raise UsageError(f"slots are numbers and ranges, as in 0-4095,5000: not {text!r}")
        low, high = map(int, bounds)
        if not low <= high < SLOTS:
            raise UsageError(f"slots are 0 to {SLOTS - 1}, the lower one first: not {part.strip()}")
        slots.update(range(low, high + 1))
    return sorted(slots)


def split(placed: ShardMap, shard: int, to: int) -> ShardMap:
    """The next map, in which the upper half of a shard's slots is another's."""
    own = _slots_of(placed, shard)
    return placed.moved(own[(len(own) + 1) // 2 :], to)


def merge(placed: ShardMap, shard: int, to: int) -> ShardMap:
    """The next map, in which a shard has no slots, and another has them as well."""
    return placed.moved(_slots_of(placed, shard), to)


def rebalanced(placed: ShardMap) -> ShardMap:
    """The next map, in which all shards have as many slots as one another, but for one."""
    owned = {shard: _slots_of(placed, shard) for shard in range(placed.shards)}
    wanted = {shard: len(_slots_of(even_map(placed.shards), shard)) for shard in owned}
    # The shard that has most keeps the larger parts, so that as little as possible moves.
    sizes = sorted(wanted.values(), reverse=True)
    for shard, size in zip(sorted(owned, key=lambda each: (-len(owned[each]), each)), sizes, strict=True):
        wanted[shard] = size
    spare = [slot for shard in sorted(owned) for slot in owned[shard][wanted[shard] :]]
    after = placed
    for shard in sorted(owned):
        lacks = max(0, wanted[shard] - len(owned[shard]))
        after, spare = after.moved(spare[:lacks], shard), spare[lacks:]
    return ShardMap(placed.version + 1, placed.shards, after.ranges)


def shifts(before: ShardMap, after: ShardMap) -> list[Shift]:
    """What moves from where to where."""
    found: dict[tuple[int, int], list[int]] = {}
    for slot in range(SLOTS):
        way = before.shard_of(slot), after.shard_of(slot)
        if way[0] != way[1]:
            found.setdefault(way, []).append(slot)
    return [Shift(*way, tuple(slots)) for way, slots in sorted(found.items())]


def shown(slots: tuple[int, ...]) -> str:
    """Slots as ranges: `0-4095,5000`."""
    parts: list[str] = []
    start = 0
    for index in range(1, len(slots) + 1):
        if index == len(slots) or slots[index] != slots[index - 1] + 1:
            first, last = slots[start], slots[index - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = index
    return ",".join(parts)


def _slots_of(placed: ShardMap, shard: int) -> list[int]:
    if not 0 <= shard < placed.shards:
        raise UsageError(f"shards are 0 to {placed.shards - 1}, not {shard}")
    return [slot for each in placed.ranges_of(shard) for slot in range(each.first, each.last + 1)]
