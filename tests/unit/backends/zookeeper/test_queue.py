"""Places: which paths names become, in which order places stand, who is granted, and who watches whom."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol.paths import normpath

from fencehold.backends.zookeeper.queue import (
    QueuePlace,
    before,
    blockers,
    holders,
    in_order,
    other_limit,
    part_of,
    place_of,
    stem_of,
)

LAST = (1 << 31) - 1


def places(*modes: str) -> list[QueuePlace]:
    """Places that were made one after the other."""
    found = in_order(f"{mode}-{index:032x}-{index:010d}" for index, mode in enumerate(modes))
    assert len(found) == len(modes)
    return found


@given(st.text(min_size=1))
def test_any_text_is_one_legal_path_part(name: str) -> None:
    """Of letters that ZooKeeper takes, whatever is in the name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair is no text, and is refused long before.
        return
    part = part_of(name)
    assert "/" not in part
    assert part.isascii()
    assert part.isprintable()
    assert normpath(f"/root/{part}") == f"/root/{part}"


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=20))
def test_different_names_are_different_parts(names: set[str]) -> None:
    """No two of them."""
    assert len({part_of(name) for name in names}) == len(names)


@pytest.mark.parametrize("name", [".", "..", "a/b", "a%2Fb", "zookeeper", "\x00", "\ud7ff\uffff", "ü" * 200])
def test_odd_names_are_parts_of_their_own(name: str) -> None:
    """Also those that mean something to a path."""
    assert part_of(name) not in (".", "..", "zookeeper")
    assert part_of(name).startswith("=")


@pytest.mark.parametrize(
    ("shared", "limit", "mode"), [(False, 0, "x"), (True, 0, "s"), (False, 3, "p"), (False, 10_000, "p")]
)
def test_a_place_is_read_as_it_was_written(shared: bool, limit: int, mode: str) -> None:
    """With any number that ZooKeeper may have added."""
    for number in ("0000000007", "2147483647", "-2147483648", "-000000001"):
        node = stem_of("c0ffee", shared=shared, limit=limit) + number
        assert place_of(node) == QueuePlace(node, mode, limit, "c0ffee", int(number))


@pytest.mark.parametrize("node", ["", "x", "x-1", "x-a-b", "y-a-1", "p-a-1", "px-a-1", "x3-a-1", "lock-0000001"])
def test_what_is_none_of_ours_is_no_place(node: str) -> None:
    """It is left alone, and nobody waits for it."""
    assert place_of(node) is None


def test_places_stand_in_the_order_in_which_they_were_made_also_when_the_counter_is_full() -> None:
    """The number goes on below zero; whoever sorted by it would let the newest in before the oldest."""
    numbers = [LAST - 1, LAST, -LAST - 1, -LAST, -LAST + 1]
    nodes = [f"x-{index}-{number:010d}" for index, number in enumerate(numbers)]
    for seed in range(20):
        shuffled = random.Random(seed).sample(nodes, len(nodes))
        assert [place.node for place in in_order(shuffled)] == nodes


def test_places_stand_in_order_where_the_counter_passes_zero() -> None:
    """From below."""
    nodes = [f"x-{index}-{number:010d}" for index, number in enumerate([-2, -1, 0, 1])]
    assert [place.node for place in in_order(reversed(nodes))] == nodes


def test_before_a_place_are_those_made_earlier() -> None:
    """None if it is not there: its session has ended, or somebody removed it."""
    queue = places("x", "x", "x")
    assert before(queue, queue[2].node) == queue[:2]
    assert before(queue, queue[0].node) == []
    assert before(queue, "x-other-0000000000") is None


def test_an_exclusive_place_waits_for_the_one_before_it() -> None:
    """Whatever that is."""
    queue = places("x", "s", "x")
    assert blockers(queue[:0], "x", 0) == []
    assert blockers(queue, "x", 0) == [queue[2]]


def test_a_reader_waits_for_the_last_that_is_no_reader() -> None:
    """And not for other readers."""
    queue = places("s", "x", "s", "x", "s", "s")
    assert blockers(queue, "s", 0) == [queue[3]]
    assert blockers(queue[:1], "s", 0) == []


def test_a_permit_waits_for_as_many_as_there_are() -> None:
    """For one of these at least must go before it can be granted, and no other wakes it."""
    queue = places("p2", "p2", "p2", "p2")
    assert blockers(queue[:1], "p", 2) == []
    assert blockers(queue[:2], "p", 2) == queue[:2]
    assert blockers(queue, "p", 2) == queue[2:]
    mixed = places("x", "p2", "p2")
    assert blockers(mixed, "p", 2) == [mixed[0]]


def test_another_limit_is_noticed() -> None:
    """That of the first who has one."""
    assert other_limit(places("p3", "p3"), 3) == 0
    assert other_limit(places("p3", "p3"), 4) == 3
    assert other_limit(places("x"), 4) == 0


@pytest.mark.parametrize(
    ("modes", "count"),
    [
        ((), 0),
        (("x", "x"), 1),
        (("s", "s", "x", "s"), 2),
        (("x", "s"), 1),
        (("p2", "p2", "p2"), 2),
        (("p2", "x", "p2"), 1),
    ],
)
def test_the_first_of_a_queue_are_granted(modes: tuple[str, ...], count: int) -> None:
    """As many as may have it together."""
    assert holders(places(*modes)) == count


@given(st.lists(st.sampled_from(["x", "s", "p1", "p2", "p3"]), max_size=9), st.randoms())
def test_grants_go_in_the_order_of_places_so_that_fences_grow(modes: list[str], lot: random.Random) -> None:
    """Whenever one is granted, all before it are; also while any of them go. And one of those watched has to go
    before it is granted."""
    queue = places(*modes)
    while queue:
        granted = [not blockers(queue[:index], place.mode, place.limit) for index, place in enumerate(queue)]
        assert granted == sorted(granted, reverse=True)
        assert granted[0]
        index = lot.randrange(len(queue))
        ahead, place = queue[:index], queue[index]
        watched = blockers(ahead, place.mode, place.limit)
        assert not watched or blockers(watched, place.mode, place.limit)
        del queue[lot.randrange(len(queue))]
