"""Medians and ratios."""

import math

import pytest

from bench.samples import Results, Sample, checked
from tests.unit.bench.fakes import results


def test_a_median_is_taken_over_the_rounds() -> None:
    """One odd round does not move the median."""
    assert results(ours=[10, 1000, 12]).median("ours", "ops_per_s") == 12


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    """A slow round that slows both contestants alike does not move the ratio, though it moves the medians."""
    measured = results(ours=[20, 2, 30], theirs=[10, 1, 10])
    assert measured.ratio("ours", "theirs", "ops_per_s") == 2
    uneven = results(ours=[20, 100, 300], theirs=[10, 10, 100])
    assert uneven.ratio("ours", "theirs", "ops_per_s") == 3
    assert uneven.median("ours", "ops_per_s") / uneven.median("theirs", "ops_per_s") == 10


def test_a_ratio_of_unlike_rounds_divides_the_medians() -> None:
    """Contestants sampled in different rounds are compared by their medians."""
    assert results(ours=[20, 40, 30], theirs=[10]).ratio("ours", "theirs", "ops_per_s") == 3


def test_a_ratio_may_join_figures_of_different_names() -> None:
    """A baseline counts in its own words: entries against bare syncs."""
    samples = [Sample(1, 1, "file", {"appends_per_s": 90}), Sample(1, 2, "bare", {"syncs_per_s": 100})]
    assert Results(samples).ratio("file", "bare", "appends_per_s", "syncs_per_s") == 0.9


def test_an_unknown_contestant_or_figure_is_named_with_the_known_ones() -> None:
    """A misspelt name is answered with the names there are."""
    measured = results(ours=[1])
    with pytest.raises(LookupError, match="no contestant 'hours'; there are: ours"):
        measured.median("hours", "ops_per_s")
    with pytest.raises(LookupError, match="no figure 'p99_us' of 'ours'; there are: ops_per_s"):
        measured.median("ours", "p99_us")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_figure_that_is_no_number_is_refused(value: float) -> None:
    """A round cannot slip a NaN into the medians."""
    with pytest.raises(ValueError, match="the round gave p99_us"):
        checked({"p99_us": value})


def test_a_round_without_figures_is_refused() -> None:
    """A round that gives nothing has measured nothing."""
    with pytest.raises(ValueError, match="no figures"):
        checked({})
