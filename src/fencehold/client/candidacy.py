"""Candidacy: how terms of office follow one another, in either client.

1. The loss of a term ends the term, and not the candidacy: its loser campaigns again. Whatever else the body
   raises goes on to its caller, once the term is resigned.
2. A service that is away is waited for: it was reached once, or the first campaign had said so. What trying again
   does not help with (a refused password, a usage error) is raised.
3. The candidacy ends with its client.
"""

from fencehold.errors import HoldLost, OutcomeUnknown, SessionExpired, Unavailable, UsageError
from fencehold.locks.trust import Grant
from fencehold.locks.views import Holder

AWAY = (Unavailable, OutcomeUnknown, SessionExpired)
"""What a campaign raises that had better be tried again. Nothing is left behind of one that raised it."""
UNSURE = (HoldLost, OutcomeUnknown, Unavailable)
"""What resigning raises when the term was over before, or is over as soon as the service is back."""
CLOSED = (UsageError, SessionExpired)
"""What asking who leads raises when the client is, or is being, closed."""

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
    """Whether an error says that this very grant is lost, and nothing else; several tasks may have said so."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_loss_of(grant, each) for each in error.exceptions)
    return isinstance(error, HoldLost) and (error.names, error.fence) == (grant.terms.names, grant.fence)


def is_another(leader: Holder | None, seen: Holder | None) -> bool:
    """Whether another term has begun, or one has ended."""
    return (leader and (leader.fence, leader.party)) != (seen and (seen.fence, seen.party))
