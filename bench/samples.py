"""What a contest measured: every sample, and the medians and ratios drawn from them.

A ratio is taken round by round, and its median told: two contestants of one round met the machine in the same
mood, two medians from different rounds may not have. Only where the rounds do not match are medians divided.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

Figures = Mapping[str, float]
"""What one round of one contestant gave; each name ends with its unit: `ops_per_s`, `p99_us`, `held_mib`."""


@dataclass(frozen=True)
class Sample:
    """One contestant's figures of one round."""

    round: int
    """Counted from 1; warm-ups leave no samples."""
    place: int
    """When the contestant's turn came within the round, from 1."""
    contestant: str
    figures: Figures


@dataclass
class Results:
    """The samples of a contest, in the order they were taken."""

    samples: list[Sample] = field(default_factory=list)

    def contestants(self) -> list[str]:
        """In the order of the first round."""
        return list(dict.fromkeys(sample.contestant for sample in self.samples))

    def figures(self, contestant: str | None = None) -> list[str]:
        """The names of the figures one contestant, or any of them, gave."""
        chosen = (sample for sample in self.samples if contestant in (None, sample.contestant))
        return list(dict.fromkeys(name for sample in chosen for name in sample.figures))

    def series(self, contestant: str, figure: str) -> dict[int, float]:
        """One figure of one contestant by round.

        Raises:
            LookupError: there is no such contestant or figure; the message lists those there are.
        """
        if contestant not in self.contestants():
            raise LookupError(f"no contestant {contestant!r}; there are: {', '.join(self.contestants())}")
        given = {
            sample.round: sample.figures[figure]
            for sample in self.samples
            if sample.contestant == contestant and figure in sample.figures
        }
        if not given:
            known = ", ".join(self.figures(contestant))
            raise LookupError(f"no figure {figure!r} of {contestant!r}; there are: {known}")
        return given

    def median(self, contestant: str, figure: str) -> float:
        """The median over the rounds. Raises as `series`."""
        return median(self.series(contestant, figure).values())

    def ratio(self, contestant: str, reference: str, figure: str, reference_figure: str | None = None) -> float:
        """How many times the reference's figure the contestant's is.

        `reference_figure` is the reference's name for it, where that is another.

        Raises:
            LookupError: as `series`.
            ZeroDivisionError: the reference's figure was 0 in some round.
        """
        ours = self.series(contestant, figure)
        theirs = self.series(reference, reference_figure or figure)
        if ours.keys() == theirs.keys():
            return median(ours[number] / theirs[number] for number in ours)
        return median(ours.values()) / median(theirs.values())


def checked(figures: Figures) -> Figures:
    """The figures as finite floats. A round that gives none, or a NaN, has measured nothing.

    Raises:
        ValueError: no figures, or one is not finite.
    """
    if not figures:
        raise ValueError("the round gave no figures")
    for name, value in figures.items():
        if not math.isfinite(value):
            raise ValueError(f"the round gave {name} = {value}")
    return {name: float(value) for name, value in figures.items()}
