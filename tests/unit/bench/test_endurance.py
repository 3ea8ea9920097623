"""What is called flat, and what is not."""

from collections.abc import Sequence

import pytest

from bench import endurance
from bench.samples import Results, Sample


def watched(epochs: Sequence[float] = (), **memories: Sequence[float]) -> Results:
    """A run in which the nodes' memory, in MB, was this at each look."""
    looks = len(next(iter(memories.values())))
    return Results(
        [
            Sample(
                at + 1,
                1,
                endurance.NAME,
                {
                    **{f"{name}_resident_mb": memory[at] for name, memory in memories.items()},
                    "epoch": epochs[at] if epochs else 1.0,
                    "file_mb": 20.0 + at,
                    "snapshots": float(at),
                },
            )
            for at in range(looks)
        ]
    )


def verdicts(results: Results) -> dict[str, bool]:
    """Which musts are met."""
    return {must.label: must.judge(results).met for must in endurance.build(quick=True).musts}


def test_the_slope_is_that_of_most_pairs() -> None:
    """One value that jumps does not make a slope."""
    assert endurance.slope([10, 12, 14, 16]) == 2
    assert endurance.slope([10, 10, 90, 10, 10]) == 0


def test_a_single_value_has_no_slope() -> None:
    """A must on it counts as missed, not as met."""
    with pytest.raises(ZeroDivisionError):
        endurance.slope([10])


def test_memory_that_grows_while_caches_fill_is_flat() -> None:
    """Only the second half is judged by its slope."""
    results = watched(leader=[40, 50, 55, 55, 55, 55, 55, 55, 55, 55], standby=[50.0] * 10)
    assert endurance.growth_mb_per_min(results) == 0
    assert all(verdicts(results).values())


def test_one_node_that_grows_is_enough_to_miss() -> None:
    """A quarter of a megabyte every five seconds is three a minute."""
    results = watched(leader=[50.0] * 20, standby=[50 + at / 4 for at in range(20)])
    assert endurance.growth_mb_per_min(results) == pytest.approx(3)
    assert not verdicts(results)["growth of a node's memory in the second half"]


def test_memory_that_doubled_is_not_flat_though_it_stands_now() -> None:
    """A step between the halves has no slope within the second."""
    results = watched(leader=[50.0] * 10 + [100.0] * 10)
    assert endurance.growth_mb_per_min(results) == 0
    assert endurance.late_to_early(results) == 2
    assert not verdicts(results)["a node's memory in the second half, times that in the first"]


def test_a_leader_that_was_replaced_under_the_load_is_a_miss() -> None:
    """Each taking over is an epoch."""
    results = watched(epochs=[1] * 5 + [3] * 5, leader=[50.0] * 10)
    assert not verdicts(results)["leaders that were replaced under the load"]


def test_the_minutes_are_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look every few seconds."""
    assert endurance.build(quick=False).rounds == 120
    monkeypatch.setenv("BENCH_MINUTES", "2")
    assert endurance.build(quick=True).rounds == 24
