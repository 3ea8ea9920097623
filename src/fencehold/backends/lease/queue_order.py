"""Whose turn it is, for stores that keep holders and a queue as rows: one rule for locks and semaphores.

1. Who is not in the queue stands behind all who are. Nobody overtakes.
2. A lock is had alone. Permits of one limit are had together, as many as it says; a lock and a permit never are.
3. A semaphore has one limit for as long as anybody has a permit of it, or waits for one.
"""

from typing import NamedTuple

from fencehold.errors import UsageError

RETRY_S = 0.005
"""How soon who stands first looks again, where nobody tells. Those behind look later, each by as much."""
RETRY_S_MAX = 0.5
_RETRY_S_PATIENT = 0.05
ALIVE_S = 5.0
"""A place in the queue is lost by who did not look for so long: nobody waits for one who is gone."""


class QueueStanding(NamedTuple):
    """How many stand before an ask, counted without itself."""

    holders: int = 0
    locks_held: int = 0
    """How many of the holders have it as a lock, and not a permit."""
    ahead: int = 0
    locks_ahead: int = 0
    other_limit: int = 0
    """The limit of those who have or want permits, if it is another one than the ask's; else 0."""

    def is_turn(self, limit: int) -> bool:
        """Whether an ask may have the name now; `limit` is 0 for a lock."""
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
    """Seconds after which to look again, with so many ahead: less often, after a long wait already."""
    return max(min(RETRY_S * (ahead + 1), RETRY_S_MAX), min(waited_s / 100, _RETRY_S_PATIENT))
