"""The map of prefixes to cells, and the goals it can reach."""

import pytest
from msgspec.structs import replace

from fencehold.placement.cells import Cell, CellMap, PrefixHome, Reach, in_order

CELLS = (Cell("eu", ("a:1",)), Cell("us", ("b:1", "c:1")))
PLACED = CellMap(
    3,
    CELLS,
    in_order((PrefixHome("", "eu"), PrefixHome("us.", "us"), PrefixHome("us.eu.", "eu"), PrefixHome("u", "us"))),
)


@pytest.mark.parametrize(
    ("name", "cell"),
    [("a", "eu"), ("", "eu"), ("u", "us"), ("us", "us"), ("us.1", "us"), ("us.eu.1", "eu"), ("us.e", "us")],
)
def test_the_longest_prefix_says_where_a_name_is_at_home(name: str, cell: str) -> None:
    """Whatever the order in the map, and however prefixes are nested."""
    assert PLACED.home_of(name).cell == cell


def test_names_with_a_prefix_may_have_several_homes() -> None:
    """That of the prefix itself, and those of all longer ones."""
    assert [home.cell for home in PLACED.homes_under("us.")] == ["us", "us", "eu"]
    assert [home.prefix for home in PLACED.homes_under("a")] == [""]


def test_a_map_is_replaced_by_a_newer_one_alone() -> None:
    """What comes late is not believed."""
    newer = PLACED.moved("us.", "eu", 4)
    assert newer.home_of("us.1").cell == "eu"
    assert PLACED.newest(newer) is newer
    assert newer.newest(PLACED) is newer
    assert newer.moved("pay.", "us", 5).home_of("pay.1").cell == "us"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"homes": (PrefixHome("x", "eu"),)}, "is missing"),
        ({"homes": (PrefixHome("", "ap"),)}, "no such cell"),
        ({"homes": (PrefixHome("", "eu"), PrefixHome("", "us"))}, "twice"),
        ({"cells": (*CELLS, Cell("eu", ("d:1",)))}, "twice"),
        ({"cells": (Cell("eu", ()), CELLS[1])}, "addresses"),
        ({"cells": (Cell("e u", ("a:1",)), CELLS[1])}, "letters"),
        ({"cells": (Cell("eu", ("a:1,b:1",)), CELLS[1])}, "host:port"),
        ({"lease_ms": 10, "wait_ms": 10}, "a lease is"),
        ({"lease_ms": 5_000, "wait_ms": 0}, "waits at least"),
        ({"version": 0}, "begin with 1"),
        ({"homes": (PrefixHome("", "eu"), PrefixHome("x" * 300, "eu"))}, "256 bytes"),
        ({"homes": (PrefixHome("", "eu"), *(PrefixHome(str(n), "eu") for n in range(600)))}, "1 to 512"),
    ],
)
def test_a_map_that_makes_no_sense_is_refused_with_the_reason(changed: dict[str, object], said: str) -> None:
    """Before any cell is told of it."""
    assert said in replace(PLACED, **changed).problem()
    assert not PLACED.problem()


def _with_goal(goal: Reach, spans: Reach, lease_ms: int = 0) -> CellMap:
    cells = (Cell("eu", ("a:1",), spans), CELLS[1])
    return CellMap(1, cells, (PrefixHome("", "eu", goal),), lease_ms, lease_ms)


@pytest.mark.parametrize("goal", list(Reach))
@pytest.mark.parametrize("spans", list(Reach))
def test_a_goal_is_checked_against_what_the_engine_is_spread_over(goal: Reach, spans: Reach) -> None:
    """What the engine survives, it may promise; the loss of a region, also by a lease and another cell."""
    assert bool(_with_goal(goal, spans).unmet()) is (goal.rank > spans.rank)
    has_lease = _with_goal(goal, spans, 5_000)
    assert bool(has_lease.unmet()) is (goal is Reach.ZONE and spans is Reach.NONE)
    assert has_lease.is_leased("") is (goal is Reach.REGION and spans is not Reach.REGION)


def test_nothing_is_leased_if_all_other_cells_are_said_to_be_lost() -> None:
    """There is nobody left to confirm it, nor to be promoted in its place."""
    leased = _with_goal(Reach.REGION, Reach.NONE, 5_000)
    alone = replace(leased, cells=(leased.cells[0], replace(leased.cells[1], out=True)))
    assert leased.is_leased("")
    assert not alone.is_leased("")
