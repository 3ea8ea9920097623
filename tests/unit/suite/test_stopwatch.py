"""The stopwatch that does not count what a busy machine takes."""

import time

import pytest

from tests import stopwatch
from tests.stopwatch import Stopwatch


def test_time_that_passes_is_counted() -> None:
    """Sleeping is not waiting for a processor."""
    watch = Stopwatch()
    time.sleep(0.05)
    assert watch.passed_s > 0.01


def test_time_in_which_something_waited_to_run_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was waited before it began is no part of it."""
    waited_s = iter([100.0, 100.04, 3_600.0])
    monkeypatch.setattr(stopwatch, "_waited_s", lambda: next(waited_s))
    watch = Stopwatch()
    begun_at = time.monotonic()
    time.sleep(0.05)
    passed_s = watch.passed_s
    assert 0.0 < passed_s <= time.monotonic() - begun_at
    assert watch.passed_s == 0.0
