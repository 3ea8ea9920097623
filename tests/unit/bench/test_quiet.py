"""The next one is not measured before the servers are done with what the last one asked of them."""

import pytest

from bench import quiet
from tests.stopwatch import Stopwatch


async def test_it_waits_for_a_process_that_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """And for no longer: one that has nothing more to do may go on living."""
    used_s = iter([0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 9.0])
    monkeypatch.setattr(quiet, "LOOK_S", 0.001)
    monkeypatch.setattr(quiet, "family", lambda pid: [pid, pid + 1])
    monkeypatch.setattr(quiet, "cpu_seconds", lambda _: next(used_s))
    await quiet.Quiet().come()
    assert next(used_s) == 9.0


async def test_without_processes_there_is_nothing_to_wait_for() -> None:
    """Neither to learn what they use, nor before a round."""
    quietness, watch = quiet.Quiet(), Stopwatch()
    await quietness.learn()
    await quietness.come()
    assert watch.passed_s < quiet.LOOK_S
