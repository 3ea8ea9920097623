"""Maps have one shard for every slot, and only newer ones replace them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.errors import UsageError
from fencehold.placement.map import SHARDS_MAX, ShardMap, even_map
from fencehold.placement.slots import SLOTS

MAPS = st.builds(
    lambda shards, first, count, to: even_map(shards).moved(range(first, first + count), to % shards),
    st.integers(1, 64),
    st.integers(0, SLOTS - 500),
    st.integers(0, 500),
    st.integers(0, 63),
)


def homes(found: ShardMap) -> list[int]:
    return [each.shard for each in found.ranges for _ in range(each.first, each.last + 1)]


@given(st.integers(1, SHARDS_MAX))
def test_an_even_map_gives_each_shard_its_share(shards: int) -> None:
    """Every slot has a shard, and no shard has two slots more than another."""
    found = homes(even_map(shards))
    counts = [found.count(shard) for shard in range(shards)] if shards <= 32 else [1]
    assert len(found) == SLOTS
    assert sorted(set(found)) == list(range(shards))
    assert max(counts) - min(counts) <= 1


@given(MAPS, st.integers(0, SLOTS - 1))
def test_a_slot_is_found_where_its_range_says(found: ShardMap, slot: int) -> None:
    """Looking one slot up agrees with reading the ranges in order, before and after a trip over the wire."""
    assert found.shard_of(slot) == homes(found)[slot]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=ShardMap) == found


def test_a_move_changes_its_slots_and_nothing_else() -> None:
    """The next map differs in what was moved, and has the next version."""
    before = even_map(4)
    after = before.moved(range(100, 200), 3)
    pairs = enumerate(zip(homes(before), homes(after), strict=True))
    assert [slot for slot, (old, new) in pairs if old != new] == list(range(100, 200))
    assert before.newest(after) is after
    assert after.newest(before) is after
    assert after.ranges_of(3)[0].first == 100


@given(MAPS, st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(0, 200), st.integers(0, 63)), max_size=4))
def test_what_changes_from_one_map_to_the_next_is_what_differs(
    before: ShardMap, moves: list[tuple[int, int, int]]
) -> None:
    """Each slot that has another shard is told once, in order, with its new one; and no other slot."""
    after = before
    for first, count, to in moves:
        after = after.moved(range(first, min(SLOTS, first + count)), to % before.shards)
    told = [(slot, each.shard) for each in after.changes_to(before) for slot in range(each.first, each.last + 1)]
    pairs = zip(homes(before), homes(after), strict=True)
    assert told == [(slot, new) for slot, (old, new) in enumerate(pairs) if old != new]


def test_what_cannot_be_is_refused() -> None:
    """No shards, too many, and slots or shards that there are not."""
    for shards in (0, SHARDS_MAX + 1):
        with pytest.raises(UsageError):
            even_map(shards)
    with pytest.raises(UsageError, match="slots are"):
        even_map(2).moved([SLOTS], 1)
    with pytest.raises(UsageError, match="shards 0 to 1"):
        even_map(2).moved([0], 2)
