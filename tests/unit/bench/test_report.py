"""What is told of a contest."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from bench.contest import Benchmark, Contest
from bench.musts import at_least, ratio
from bench.report import Report, must_line, quantity, show, write
from bench.samples import Results, Sample
from tests.unit.bench.fakes import Fake


def report(quick: bool = False) -> Report:
    """A finished contest of two, where one also counts bytes."""
    contest = Contest(
        [Fake("ours", []), Fake("[theirs]", [])],
        rounds=1,
        musts=[at_least("times theirs", ratio("ours", "[theirs]"), 2, "×")],
        reference="[theirs]",
    )
    results = Results(
        [
            Sample(1, 1, "ours", {"ops_per_s": 31_400, "held_mib": 0.25}),
            Sample(1, 2, "[theirs]", {"ops_per_s": 10_000}),
        ]
    )
    verdicts = [must.judge(results) for must in contest.musts]
    benchmark = Benchmark("fake", "Nothing at all.", lambda quick: contest)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    return Report(benchmark, contest, results, verdicts, quick, at, {"cores": 2})


def test_the_table_has_medians_and_ratios() -> None:
    """Beside each median stands how many times the reference's it is; what is not there stays empty."""
    console = Console(file=io.StringIO(), width=100)
    show(report(quick=True), console)
    assert isinstance(console.file, io.StringIO)
    lines = [" ".join(line.replace("│", " ").split()) for line in console.file.getvalue().splitlines()]
    assert lines[0] == "fake (quick, medians of 1 round)"
    assert "ours [theirs] 31,400 3.14 × 0.25" in lines
    assert "[theirs] 10,000" in lines


def test_the_file_holds_everything(tmp_path: Path) -> None:
    """Facts, samples, medians, ratios and musts can be read back, and nothing unfinished is left beside."""
    path = write(report(), tmp_path / "results")
    assert json.loads(path.read_text()) == {
        "benchmark": "fake",
        "doc": "Nothing at all.",
        "quick": False,
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"cores": 2},
        "rounds": 1,
        "warmups": 1,
        "medians": {"ours": {"ops_per_s": 31400, "held_mib": 0.25}, "[theirs]": {"ops_per_s": 10000}},
        "references": {"ours": "[theirs]"},
        "ratios": {"ours": {"ops_per_s": 3.14}},
        "musts": [
            {
                "label": "times theirs",
                "figure": 3.14,
                "sense": "at least",
                "bar": 2,
                "unit": "×",
                "met": True,
                "problem": "",
            }
        ],
        "samples": [
            {
                "round": 1,
                "place": 1,
                "contestant": "ours",
                "figures": {"ops_per_s": 31400, "held_mib": 0.25},
            },
            {"round": 1, "place": 2, "contestant": "[theirs]", "figures": {"ops_per_s": 10000}},
        ],
    }
    assert [file.name for file in path.parent.iterdir()] == ["fake.json"]


def test_a_must_is_told_in_one_line() -> None:
    """What, figure, bar, met or missed."""
    results = report().results
    times = ratio("ours", "[theirs]")
    assert must_line(at_least("times", times, 2, "×").judge(results)) == "must times: 3.14 × (at least 2 ×): met"
    assert must_line(at_least("times", times, 4, "").judge(results)) == "must times: 3.14 (at least 4): missed"
    assert must_line(at_least("times", ratio("ours", "x"), 2, "×").judge(results)) == (
        "must times: no contestant 'x'; there are: ours, [theirs] (at least 2 ×): missed"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(31_415.9, "31,416"), (314.16, "314"), (3.14159, "3.14"), (0.0314159, "0.0314"), (0, "0.00")],
)
def test_a_figure_has_the_digits_a_person_can_use(value: float, text: str) -> None:
    """Large figures lose their decimals, small ones keep three digits."""
    assert quantity(value) == text
