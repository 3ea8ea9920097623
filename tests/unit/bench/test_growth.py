"""The curves of `bench growth`: what is measured, how it is drawn, and how parts of it are chosen."""

import random
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from xml.etree import ElementTree

import pytest

from bench import growth
from bench.contest import Family
from bench.crowds import jain, zipf
from bench.growth import ALL, CURVES, FILE, LOCK_API, Curve, label
from bench.picture import Chart, Panel, draw, figure
from bench.report import Report
from bench.samples import Results, Sample

SVG = "{http://www.w3.org/2000/svg}"


def report(curve: Curve, quick: bool) -> Report:
    """As if every point had been measured, and all were alike."""
    figures = dict.fromkeys(curve.figures, 2.0)
    samples = [Sample(1, 1, label(*point), figures) for point in curve.points(quick)]
    benchmark = growth.BENCHMARK.members[next(name for name, each in CURVES.items() if each is curve)]
    return Report(benchmark, curve.build(quick), Results(samples), [], quick, datetime(2026, 1, 2, tzinfo=UTC), {})


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", CURVES)
def test_every_curve_is_drawn_with_every_point_it_measures(name: str, quick: bool) -> None:
    """Each panel has a dot for each contestant and size."""
    curve = CURVES[name]
    picture = ElementTree.fromstring(curve.draw(report(curve, quick)))
    assert len(list(picture.iter(f"{SVG}circle"))) == len(curve.points(quick)) * len(curve.figures)


def test_growth_is_a_family_of_all_curves() -> None:
    """A part may be asked for by the name of its curve, and writes files of its own."""
    assert isinstance(growth.BENCHMARK, Family)
    assert [member.name for member in growth.BENCHMARK.members.values()] == [f"growth-{name}" for name in CURVES]


def test_the_short_form_measures_the_ends_only() -> None:
    """The smallest size and the largest, of each contestant that goes so far."""
    points = CURVES["waiters"].points(quick=True)
    assert {size for _, size in points} == {2, 1_000}
    assert (LOCK_API, 1_000) not in points
    assert {name for name, _ in points} == set(ALL)


def test_a_picture_reads_on_dark_pages_and_tells_its_figures() -> None:
    """Colours follow the reader's; each dot has its figures as a title."""
    text = draw(Chart("A <title>", "tasks", [Panel("Speed", "1/s", {FILE: [(1, 5.0), (512, 50_000.0)]})], [FILE]))
    picture = ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    assert [dot.findtext(f"{SVG}title") for dot in picture.iter(f"{SVG}circle")] == [
        f"{FILE}: 1 → 5 1/s",
        f"{FILE}: 512 → 50k 1/s",
    ]


def test_what_is_zero_has_no_place_on_a_logarithmic_axis() -> None:
    """It is left out there, and drawn where the axis begins at 0."""
    curve = {FILE: [(1.0, 0.0), (2.0, 3.0)]}
    for is_linear, dots in ((False, 1), (True, 2)):
        picture = ElementTree.fromstring(draw(Chart("", "", [Panel("", "", curve, is_linear=is_linear)])))
        assert len(list(picture.iter(f"{SVG}circle"))) == dots


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.25, "0.25"), (512, "512"), (1_500, "1.5k"), (1e6, "1M")]
)
def test_labels_are_short(value: float, shown: str) -> None:
    """Thousands and millions are letters."""
    assert figure(value) == shown


def test_jains_index_is_1_if_all_had_the_same_and_1_of_n_if_one_had_all() -> None:
    """And 0 if nobody had anything."""
    assert jain([3, 3, 3, 3]) == pytest.approx(1.0)
    assert jain([8, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([0, 0]) == 0


def test_zipf_draws_the_first_most_often_and_none_outside() -> None:
    """The first of 1 000 is drawn as often as the law says, a little more than twice as often as the second."""
    drawn = Counter(islice(zipf(1_000, 0.99, random.Random(1)), 50_000))
    weights = [1 / rank**0.99 for rank in range(1, 1_001)]
    assert drawn[0] / 50_000 == pytest.approx(weights[0] / sum(weights), rel=0.05)
    assert drawn[0] > 1.7 * drawn[1]
    assert 0 <= min(drawn) < max(drawn) < 1_000
