"""Musts: figures a benchmark has to reach. A missed one fails the run.

A must whose figure cannot be worked out counts as missed: a misspelt name never lets one pass.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.samples import Results

Figure = Callable[[Results], float]
Sense = Literal["at least", "at most"]


@dataclass(frozen=True)
class Verdict:
    """What became of a must."""

    label: str
    figure: float | None
    """None when it could not be worked out; `problem` says why."""
    sense: Sense
    bar: float
    unit: str
    met: bool
    problem: str = ""


@dataclass(frozen=True)
class Must:
    """One figure drawn from the results, and the bar it has to reach. Made by `at_least` and `at_most`."""

    label: str
    figure: Figure
    sense: Sense
    bar: float
    unit: str

    def judge(self, results: Results) -> Verdict:
        """Work the figure out and hold it against the bar; exactly on the bar is met."""
        try:
            figure = self.figure(results)
        except (LookupError, ArithmeticError) as error:
            problem = str(error) or type(error).__name__
            return Verdict(self.label, None, self.sense, self.bar, self.unit, met=False, problem=problem)
        if not math.isfinite(figure):
            return Verdict(
                self.label, None, self.sense, self.bar, self.unit, met=False, problem=f"came out as {figure}"
            )
        met = figure >= self.bar if self.sense == "at least" else figure <= self.bar
        return Verdict(self.label, figure, self.sense, self.bar, self.unit, met)


def at_least(label: str, figure: Figure, bar: float, unit: str) -> Must:
    """More is better: `at_least("at 64x1, times redis-py", ratio("fencehold", "redis-py"), 2, "×")`."""
    return Must(label, figure, "at least", bar, unit)


def at_most(label: str, figure: Figure, bar: float, unit: str) -> Must:
    """Less is better: `at_most("p99", median("fencehold", "p99_us"), 500, "µs")`."""
    return Must(label, figure, "at most", bar, unit)


def median(contestant: str, figure: str) -> Figure:
    """The figure of a must on one contestant's median."""
    return lambda results: results.median(contestant, figure)


def ratio(
    contestant: str, reference: str, figure: str = "ops_per_s", *, reference_figure: str | None = None
) -> Figure:
    """The figure of a must that compares two contestants, round by round."""
    return lambda results: results.ratio(contestant, reference, figure, reference_figure)
