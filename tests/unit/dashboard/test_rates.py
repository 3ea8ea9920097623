"""Rates: what charts are made of."""

from fencehold.dashboard.figures import levels_in
from fencehold.dashboard.rates import STEPS, Rates
from fencehold.dashboard.shard_facts import facts_in


def test_counts_are_rates_and_levels_are_the_last_of_a_step() -> None:
    """Each in as many steps as a chart has, ending now."""
    rates = Rates()
    for second in range(1_000, 1_010):
        rates.count("acquired", second, 20)
        rates.level(second, {"held": second, "waiting": 1, "sessions": 2}, 0)
    rates.count("expired", 1_005)
    rates.count("opened", 1_005)
    chart = rates.chart(1_010, 2 * STEPS)
    assert chart["step_s"] == 2
    assert chart["rates"]["granted"][-5:] == [20] * 5
    assert chart["rates"]["granted"][-6] == 0
    assert chart["rates"]["lost"][-3] == 0.5
    assert chart["levels"]["held"][-2:] == [1_007, 1_009]
    assert len(chart["levels"]["held"]) == STEPS


def test_grants_are_counted_by_fences_and_never_below_zero() -> None:
    """After a restore fences may begin elsewhere."""
    rates = Rates()
    rates.level(10, {}, 100)
    rates.level(12, {}, 160)
    assert rates.grants_per_s == 30
    rates.level(13, {}, 5)
    assert rates.grants_per_s == 0


def test_what_another_has_counted_is_where_one_begins() -> None:
    """A chart has a past when somebody comes."""
    first, second = Rates(), Rates()
    first.count("acquired", 99, 7)
    second.seed(first)
    assert second.chart(100, 90)["rates"]["granted"][-1] == 7


def test_old_seconds_are_forgotten() -> None:
    """However long it runs."""
    rates = Rates()
    for second in range(5_000):
        rates.count("acquired", second)
        rates.level(second, {"held": 1}, second)
    assert len(rates._counts) <= 1_801
    assert len(rates._levels) == 900


def test_figures_are_read_from_info() -> None:
    """Numbers by their names; what is missing is none."""
    assert levels_in(facts_in("# X\r\nnames_held:3\r\nfence:9\r\n")) == (
        {"held": 3, "waiting": 0, "sessions": 0},
        9,
    )
