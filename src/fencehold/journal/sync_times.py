"""How long syncs took: counted by an engine that syncs a disk of its own, read by the metrics.

One thread at a time adds. A concurrent reader may miss the newest, and nothing else.
"""

from bisect import bisect_left

BOUNDS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
"""Upper bounds, two for a factor of ten: from 100 µs to what no client should wait for."""


class SyncTimes:
    """Counts of times below each bound, not accumulated, the last above all; and their sum."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds
