"""What a contest leaves behind: a table for people, a JSON file with every sample, one line per must."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.contest import Benchmark, Contest
from bench.musts import Verdict
from bench.samples import Results


@dataclass(frozen=True)
class Report:
    """All that is reported about one run of a benchmark."""

    benchmark: Benchmark
    contest: Contest
    results: Results
    verdicts: Sequence[Verdict]
    quick: bool
    at: datetime
    machine: Mapping[str, str | int]

    def medians(self) -> dict[str, dict[str, float]]:
        """By contestant and figure."""
        return {
            contestant: {
                figure: self.results.median(contestant, figure) for figure in self.results.figures(contestant)
            }
            for contestant in self.results.contestants()
        }

    def ratios(self) -> dict[str, dict[str, float]]:
        """By contestant and figure, of those that are compared with another, where both have the figure."""
        return {
            contestant: self._ratios_to(contestant, reference)
            for contestant, reference in self.contest.references().items()
        }

    def _ratios_to(self, contestant: str, reference: str) -> dict[str, float]:
        theirs = self.results.figures(reference)
        shared = [name for name in self.results.figures(contestant) if name in theirs]
        # A reference that was 0 in some round gives no ratio; the table leaves its place empty.
        return {
            figure: self.results.ratio(contestant, reference, figure)
            for figure in shared
            if 0 not in self.results.series(reference, figure).values()
        }


def show(report: Report, console: Console) -> None:
    """Print the table: medians, and beside each how many times the reference's it is."""
    form = "quick, " if report.quick else ""
    count = f"{report.contest.rounds} round{'s' if report.contest.rounds > 1 else ''}"
    table = Table(title=f"{report.benchmark.name} ({form}medians of {count})", title_justify="left")
    references, medians, ratios = report.contest.references(), report.medians(), report.ratios()
    table.add_column("contestant")
    if references:
        table.add_column("against")
    for figure in report.results.figures():
        table.add_column(figure, justify="right")
    for contestant in (each.name for each in report.contest.contestants):
        against = [Text(references[contestant] if ratios.get(contestant) else "")] if references else []
        cells = [
            Text(_cell(medians[contestant].get(figure), ratios.get(contestant, {}).get(figure)))
            for figure in report.results.figures()
        ]
        table.add_row(Text(contestant), *against, *cells)
    console.print(table)


def _cell(median: float | None, ratio: float | None) -> str:
    if median is None:
        return ""
    return quantity(median) if ratio is None else f"{quantity(median)}  {quantity(ratio)} ×"


def show_musts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print one line per must: what, figure, bar, met or missed."""
    for verdict in verdicts:
        style = "green" if verdict.met else "red"
        console.print(must_line(verdict), style=style, markup=False, highlight=False, soft_wrap=True)


def must_line(verdict: Verdict) -> str:
    """One must, as it is shown to a person."""
    figure = verdict.problem if verdict.figure is None else f"{quantity(verdict.figure)} {verdict.unit}".rstrip()
    bar = f"{verdict.sense} {verdict.bar:g} {verdict.unit}".rstrip()
    return f"must {verdict.label}: {figure} ({bar}): {'met' if verdict.met else 'missed'}"


def quantity(value: float) -> str:
    """A figure with as many digits as a person can use."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def write(report: Report, directory: Path) -> Path:
    """Write `NAME.json`, whole or not at all."""
    text = json.dumps(as_json(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return _write(directory / f"{report.benchmark.name}.json", text)


def picture(report: Report, directory: Path) -> Path | None:
    """Write `NAME.svg`, whole or not at all, if the benchmark draws one."""
    draw = report.benchmark.draw
    return None if draw is None else _write(directory / f"{report.benchmark.name}.svg", draw(report))


def _write(path: Path, text: str) -> Path:
    unfinished = path.with_suffix(".unfinished")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished.write_text(text)
    os.replace(unfinished, path)
    return path


def as_json(report: Report) -> dict[str, Any]:
    """The whole report, as the file holds it."""
    return {
        "benchmark": report.benchmark.name,
        "doc": report.benchmark.doc,
        "quick": report.quick,
        "date": report.at.isoformat(timespec="seconds"),
        "machine": dict(report.machine),
        "rounds": report.contest.rounds,
        "warmups": report.contest.warmups,
        "medians": report.medians(),
        "references": report.contest.references(),
        "ratios": report.ratios(),
        "musts": [asdict(verdict) for verdict in report.verdicts],
        "samples": [{**asdict(sample), "figures": dict(sample.figures)} for sample in report.results.samples],
    }
