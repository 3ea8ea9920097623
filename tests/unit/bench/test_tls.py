"""The benchmark of TLS compares what it says it does."""

from bench import tls


def test_every_shape_is_there_with_and_without_tls() -> None:
    """In pairs, so that each ratio is of two figures of one run; and the bars are about pairs that exist."""
    contest = tls.BENCHMARK.build(True)
    names = [contestant.name for contestant in contest.contestants]
    assert {name.removeprefix("plain") for name in names if name.startswith("plain")} == {
        name.removeprefix("TLS") for name in names if name.startswith("TLS")
    }
    assert len(set(names)) == len(names) == 4 * len(tls.CONNECTIONS) + 2
    assert contest.reference in names
    assert [must.bar for must in contest.musts] == [1.3] * 4
