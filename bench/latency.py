"""Figures from latencies: what most rounds return."""

import math
from collections.abc import Sequence


def percentile(ordered: Sequence[int], percent: float) -> int:
    """By nearest rank: a value that was really measured, never one between two."""
    rank = max(1, math.ceil(len(ordered) * percent / 100))
    return ordered[rank - 1]


def figures(latencies_ns: Sequence[int], elapsed_ns: int) -> dict[str, float]:
    """Throughput over the whole round, and the latencies' middle and tail."""
    ordered = sorted(latencies_ns)
    return {
        "ops_per_s": len(ordered) / elapsed_ns * 1e9,
        "p50_us": percentile(ordered, 50) / 1e3,
        "p99_us": percentile(ordered, 99) / 1e3,
    }
