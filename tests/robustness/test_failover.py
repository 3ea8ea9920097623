"""The leader goes, in each of the ways it can, and clients at work notice no more than a moment's delay."""

from pathlib import Path

import pytest

from tests.robustness.failover import Run, fail_over
from tests.robustness.load import PATIENT, Shape

GENEROUS_S = 15.0
"""The real bars are those of `failover`."""


def _check(run: Run) -> None:
    assert run.wrong == []
    for round_ in run.rounds:
        assert len(round_.each_client_s) == 6
        assert max(round_.each_client_s) < GENEROUS_S


@pytest.mark.slow
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G3")
@pytest.mark.guarantee("G9")
def test_a_leader_killed_with_9_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    """Killed three times under load: no session or acknowledged grant lost, no fence twice, no request failed."""
    _check(fail_over(tmp_path, "kill", rounds=3, shape=PATIENT))


@pytest.mark.slow
@pytest.mark.guarantee("G3")
def test_a_leader_told_to_stop_hands_over_and_no_request_fails(tmp_path: Path) -> None:
    """Stopped three times under load: every request is answered, by it or by the next, and it exits with 0."""
    _check(fail_over(tmp_path, "stop", rounds=3, shape=PATIENT))


@pytest.mark.slow
@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G10")
def test_a_leader_that_was_paused_answers_nothing_when_it_wakes_up(tmp_path: Path) -> None:
    """Paused under load and replaced: what it finds in its connections when it wakes up, it refuses or ignores."""
    # A node that is silent has a quarter of the connect timeout.
    _check(fail_over(tmp_path, "pause", rounds=2, pause_s=3.5, shape=Shape(ttl_s=30.0, connect_timeout_s=8.0)))
