"""Candidacy: how terms of office follow one another, in either client.

1. The loss of a term ends the term, and not the candidacy: the candidate campaigns again. Any other exception of
   the body is raised to its caller, once the term is resigned.
2. A service that is unavailable is waited for: it was reached once, or the first campaign would have failed.
   Errors that a retry cannot fix (a refused password, a usage error) are raised.
3. The candidacy ends with its client.
"""

from fencehold.errors import HoldLost, OutcomeUnknown, SessionExpired, Unavailable, UsageError
from fencehold.locks.trust import Grant
from fencehold.locks.views import Holder

AWAY = (Unavailable, OutcomeUnknown, SessionExpired)
"""What a campaign raises that should be retried. A campaign that raised it leaves nothing behind."""
UNSURE = (HoldLost, OutcomeUnknown, Unavailable)
"""What resigning raises when the term was over before, or is over as soon as the service is back."""
CLOSED = (UsageError, SessionExpired)
"""What looking up the leader raises when the client is, or is being, closed."""

_PAUSE_S = 0.05
_PAUSE_S_MAX = 1.0


class Pauses:
    """How long to wait from one campaign that failed to the next: exponential back-off, up to a second."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = _PAUSE_S

    def next(self) -> float:
        """Seconds to wait now."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, _PAUSE_S_MAX)
        return pause_s

    def reset(self) -> None:
        """A campaign was won."""
        self._next_s = _PAUSE_S


def is_loss_of(grant: Grant, error: BaseException | None) -> bool:
    """Whether an error says that this very grant is lost, and nothing else; several tasks may have raised it."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_loss_of(grant, each) for each in error.exceptions)
    return isinstance(error, HoldLost) and (error.names, error.fence) == (grant.terms.names, grant.fence)


def is_another(leader: Holder | None, seen: Holder | None) -> bool:
    """Whether another term has begun, or one has ended."""
    return (leader and (leader.fence, leader.party)) != (seen and (seen.fence, seen.party))
