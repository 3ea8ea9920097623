"""Whose turn it is, for stores that keep holders and a queue as rows: one rule for locks and semaphores.

1. An ask that is not in the queue is behind all that are. No ask overtakes.
2. A lock is held alone. Permits of one limit are held together, as many as it says; a lock and a permit never are.
3. A semaphore has one limit for as long as there is a holder or a waiter of it.
"""

from typing import NamedTuple

from fencehold.errors import UsageError

RETRY_S = 0.005
"""How soon the first waiter polls again, without notifications. Those behind poll later, each by as much."""
RETRY_S_MAX = 0.5
_RETRY_S_PATIENT = 0.05
ALIVE_S = 5.0
"""A waiter that did not poll for so long loses its place: others must not wait for one that is gone."""


class QueueStanding(NamedTuple):
    """How many are before an ask, not counting itself."""

    holders: int = 0
    locks_held: int = 0
    """How many of the holders hold a lock, and not a permit."""
    ahead: int = 0
    locks_ahead: int = 0
    other_limit: int = 0
    """The limit of other holders or waiters of permits, if it differs from the ask's; else 0."""

    def is_turn(self, limit: int) -> bool:
        """Whether an ask may be granted now; `limit` is 0 for a lock."""
        if not limit:
            return not self.holders and not self.ahead
        return not self.locks_held and not self.locks_ahead and self.holders + self.ahead < limit

    def check(self, name: str, limit: int) -> None:
        """A semaphore is used with one limit.

        Raises:
            UsageError: it is in use with another.
        """
        if limit and self.other_limit:
            raise UsageError(f"{name!r} is in use with a limit of {self.other_limit}, not {limit}")


def retry_after(ahead: int, waited_s: float = 0.0) -> float:
    """Seconds after which to poll again, with so many ahead: less often after a long wait."""
    return max(min(RETRY_S * (ahead + 1), RETRY_S_MAX), min(waited_s / 100, _RETRY_S_PATIENT))
