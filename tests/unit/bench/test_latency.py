"""Figures from latencies."""

from bench.latency import figures, percentile


def test_a_percentile_is_a_latency_that_was_measured() -> None:
    """Nearest rank: of 1 to 100, the 99th percentile is 99."""
    hundred = range(1, 101)
    assert [percentile(hundred, percent) for percent in (0, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([7], 99) == 7


def test_throughput_is_over_the_whole_round() -> None:
    """Four operations in two milliseconds are two thousand a second, however they overlapped."""
    assert figures([4_000, 1_000, 2_000, 3_000], elapsed_ns=2_000_000) == {
        "ops_per_s": 2000,
        "p50_us": 2,
        "p99_us": 4,
    }
