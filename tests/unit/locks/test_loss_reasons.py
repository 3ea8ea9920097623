"""Why a hold is lost: sentences that know what they say."""

import pickle

from fencehold.errors import HoldLost
from fencehold.locks.loss_reasons import UNANSWERED, LossKind, LossReason, loss_kind


def test_a_reason_is_its_sentence_and_knows_its_kind() -> None:
    """Whatever words are in it."""
    reason = LossReason("'expired' was force-released", LossKind.BROKEN)
    assert reason == "'expired' was force-released"
    assert loss_kind(reason) is LossKind.BROKEN


def test_a_sentence_of_somebody_else_has_no_kind() -> None:
    """It is not read for one."""
    assert loss_kind("its ttl ran out") is LossKind.OTHER


def test_an_error_with_a_reason_can_be_pickled() -> None:
    """A process pool sends it to the parent."""
    again = pickle.loads(pickle.dumps(HoldLost("'a' is lost", names=("a",), reason=UNANSWERED)))
    assert (again.reason, loss_kind(again.reason)) == (UNANSWERED, LossKind.UNANSWERED)
