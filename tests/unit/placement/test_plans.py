"""Plans: what is asked for becomes the next map, and moves as little as it can."""

from random import Random

import pytest

from fencehold.errors import UsageError
from fencehold.placement import plans
from fencehold.placement.map import ShardMap, even_map
from fencehold.placement.slots import SLOTS


def counts(placed: ShardMap) -> list[int]:
    return [sum(each.last - each.first + 1 for each in placed.ranges_of(shard)) for shard in range(placed.shards)]


def test_slots_are_written_as_ranges() -> None:
    """What is read and what is shown agree; what is no list of slots is refused."""
    assert plans.slots_in("7, 3-5") == [3, 4, 5, 7]
    assert plans.shown((3, 4, 5, 7)) == "3-5,7"
    for wrong in ("", "a", "5-3", "16384", "1-", "-1"):
        with pytest.raises(UsageError):
            plans.slots_in(wrong)


def test_splitting_and_merging_move_half_and_all() -> None:
    """The upper half goes, and then the rest of it."""
    first = even_map(4)
    halved = plans.split(first, 0, 1)
    assert (halved.version, counts(halved)) == (2, [2048, 6144, 4096, 4096])
    assert plans.shifts(first, halved) == [plans.Shift(0, 1, tuple(range(2048, 4096)))]
    assert counts(plans.merge(halved, 1, 0)) == [8192, 0, 4096, 4096]
    with pytest.raises(UsageError):
        plans.merge(halved, 4, 0)


@pytest.mark.parametrize("seed", range(20))
def test_rebalancing_evens_out_and_moves_no_more_than_it_must(seed: int) -> None:
    """All shards have as many slots but for one; only what some have too many of moves; again, nothing does."""
    lot = Random(seed)
    placed = even_map(lot.randrange(2, 9))
    for _ in range(5):
        start = lot.randrange(SLOTS)
        slots = range(start, min(SLOTS, start + lot.randrange(1, 4_000)))
        placed = placed.moved(slots, lot.randrange(placed.shards))
    after = plans.rebalanced(placed)
    assert after.version == placed.version + 1
    assert after.is_whole()
    assert max(counts(after)) - min(counts(after)) <= 1
    moved = sum(len(each.slots) for each in plans.shifts(placed, after))
    assert moved == sum(max(0, was - now) for was, now in zip(counts(placed), counts(after), strict=True))
    assert not plans.shifts(after, plans.rebalanced(after))
