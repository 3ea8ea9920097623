"""A histogram: how often values fell below each of some bounds."""

from bisect import bisect_left


class Histogram:
    """Counts of values, not accumulated, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def add_many(self, value: float, count: int) -> None:
        """The same value, so many times."""
        self.counts[bisect_left(self._bounds, value)] += count
        self.total += value * count
