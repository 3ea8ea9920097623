"""Whose turn it is."""

import pytest

from fencehold import UsageError
from fencehold.backends.lease.queue_order import RETRY_S_MAX, QueueStanding, retry_after


@pytest.mark.parametrize(
    ("standing", "limit", "is_turn"),
    [
        (QueueStanding(), 0, True),
        (QueueStanding(holders=1, locks_held=1), 0, False),
        (QueueStanding(ahead=1, locks_ahead=1), 0, False),
        (QueueStanding(holders=1), 2, True),
        (QueueStanding(holders=2), 2, False),
        (QueueStanding(holders=1, ahead=1), 2, False),
        (QueueStanding(holders=1, ahead=1), 3, True),
        (QueueStanding(holders=1, locks_held=1), 3, False),
        (QueueStanding(ahead=1, locks_ahead=1), 3, False),
        (QueueStanding(holders=1), 0, False),
    ],
)
def test_a_lock_is_had_alone_and_permits_together(standing: QueueStanding, limit: int, is_turn: bool) -> None:
    """And nobody overtakes."""
    assert standing.is_turn(limit) is is_turn


def test_a_semaphore_has_one_limit() -> None:
    """A lock of the same name does not ask for one."""
    QueueStanding(other_limit=3).check("a", 0)
    with pytest.raises(UsageError, match="'a' is in use with a limit of 3, not 2"):
        QueueStanding(other_limit=3).check("a", 2)


def test_who_stands_further_behind_looks_later() -> None:
    """But not too late; and so does who has waited for long already."""
    assert retry_after(0) < retry_after(0, 3) < retry_after(0, 10) == retry_after(0, 1000)
    assert retry_after(0) < retry_after(1) < retry_after(10**6) == RETRY_S_MAX
