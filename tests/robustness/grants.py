"""Grants: when a service granted anything to anybody, and how long it did not.

One instant for each grant, in order: that is enough to watch a service for hours.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

EDGES_S = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
"""Between the classes of a distribution."""


class Gap(NamedTuple):
    """A time in which nothing was granted."""

    since: float
    until: float

    @property
    def seconds(self) -> float:
        return self.until - self.since


class Grants:
    """The instants of a run."""

    def __init__(self, instants: Iterable[float] = ()) -> None:
        self._instants = array("d", instants)

    def __len__(self) -> int:
        return len(self._instants)

    def add(self, instant: float) -> None:
        """Something was granted, after all that was granted before."""
        self._instants.append(instant)

    def since(self, instant: float) -> list[float]:
        """Those after an instant, in order."""
        return list(self._instants[bisect_right(self._instants, instant) :])

    def gaps(self, since: float, until: float, over_s: float = 0.0) -> list[Gap]:
        """The gaps between two instants that are longer than that. Both instants end a gap, as grants do."""
        ends = [since, *(at for at in self.since(since) if at < until), until]
        return [Gap(*pair) for pair in pairwise(ends) if pair[1] - pair[0] > over_s]

    def longest_gap(self, since: float, until: float) -> Gap:
        """The longest of them."""
        return max(self.gaps(since, until, -1.0), key=lambda gap: gap.seconds)


def distribution(seconds: Iterable[float]) -> dict[str, int]:
    """How many there are of each length."""
    counts = dict.fromkeys((f"up to {EDGES_S[0]:g} s", *(f"over {edge:g} s" for edge in EDGES_S)), 0)
    for each in seconds:
        passed = [edge for edge in EDGES_S if each > edge]
        counts[f"over {passed[-1]:g} s" if passed else f"up to {EDGES_S[0]:g} s"] += 1
    return counts
