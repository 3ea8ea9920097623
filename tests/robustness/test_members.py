"""Members of etcd go: with a majority left nobody's request fails, and without one everybody is told."""

from pathlib import Path

import pytest

from tests.robustness.load import PATIENT
from tests.robustness.members import Found, one_of_three, two_of_five, two_of_three

GENEROUS_S = 15.0
"""The real bars are those of `members`."""


def _check(found: Found) -> None:
    assert found.wrong == []
    assert {loss.had_leader for loss in found.losses} == {True, False}
    assert all(max(loss.silence_s, *loss.each_client_s) < GENEROUS_S for loss in found.losses)


@pytest.mark.slow
@pytest.mark.guarantee("G3")
def test_any_one_of_three_members_may_go(tmp_path: Path) -> None:
    """Each is killed in turn, leading or not: no request fails, no session or grant is lost."""
    _check(one_of_three(tmp_path, PATIENT))


@pytest.mark.slow
@pytest.mark.guarantee("G3")
def test_two_of_five_members_may_go_at_once(tmp_path: Path) -> None:
    """The leader and another, then two that follow: no request fails, no session or grant is lost."""
    _check(two_of_five(tmp_path, PATIENT))


@pytest.mark.slow
@pytest.mark.guarantee("G3")
@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G9")
def test_without_a_majority_all_is_refused_and_it_comes_back_by_itself(tmp_path: Path) -> None:
    """Nodes and the SDK say that they cannot, nothing is granted, and holders keep what they have meanwhile."""
    found = two_of_three(tmp_path)
    assert found.wrong == []
    (outage,) = found.outages
    assert outage.refused > 0
    assert outage.sdk_failed == 6
    assert max(outage.refusal_s_max, outage.sdk_failed_s_max, outage.back_after_s) < GENEROUS_S
