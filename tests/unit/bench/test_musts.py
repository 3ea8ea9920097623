"""Musts, met and missed."""

import math

import pytest

from bench.musts import Must, at_least, at_most, median, ratio
from tests.unit.bench.fakes import results

MEASURED = results(ours=[20, 2, 30], theirs=[10, 1, 10], still=[0, 0, 0])


@pytest.mark.parametrize(
    ("must", "met"),
    [
        (at_least("speed", median("ours", "ops_per_s"), 20, "ops/s"), True),
        (at_least("speed", median("ours", "ops_per_s"), 20.1, "ops/s"), False),
        (at_most("cost", median("ours", "ops_per_s"), 20, "ops/s"), True),
        (at_most("cost", median("ours", "ops_per_s"), 19.9, "ops/s"), False),
        (at_least("times theirs", ratio("ours", "theirs"), 2, "×"), True),
        (at_least("times theirs", ratio("ours", "theirs"), 2.1, "×"), False),
    ],
)
def test_a_must_is_met_on_its_bar_and_missed_beyond(must: Must, met: bool) -> None:
    """Exactly on the bar is met; anything on the wrong side is missed."""
    verdict = must.judge(MEASURED)
    assert verdict.met is met
    assert verdict.figure in (20, 2)


def test_a_must_takes_any_function_of_the_results() -> None:
    """What no ready-made figure says, a function says."""
    must = at_most("worst round", lambda results: max(results.series("ours", "ops_per_s").values()), 30, "")
    assert must.judge(MEASURED).met


@pytest.mark.parametrize("wrong", [ratio("ours", "theers"), ratio("ours", "still"), lambda _: math.nan])
def test_a_must_without_a_figure_is_missed_and_says_why(wrong: object) -> None:
    """A misspelt name, a division by nothing or a NaN never lets a must pass."""
    assert callable(wrong)
    for make in (at_least, at_most):
        verdict = make("times", wrong, 0, "×").judge(MEASURED)
        assert not verdict.met
        assert verdict.figure is None
        assert verdict.problem
