"""Trust: until when a client may believe that it holds something (G7).

1. A session is trusted until `ttl` after the moment its last answered keep-alive (or open, or resume) was *sent*,
   less a margin. The server counts from later, so it never gives a hold away first.
2. A hold with a ttl of its own ends at an instant of logical time, which has to be placed on the client's clock.
   Whatever was answered with the logical time `at` says: when it was *sent*, logical time had not passed `at`.
   From then on it ran no faster than the leader's clock, and that no more than a fiftieth faster than ours. So a
   later instant lies no earlier than that sending plus the time between `at` and the instant, less a fiftieth of
   that time. All such answers are true, so the one that places instants latest counts.
3. A grant that is answered directly is such an answer itself: its end lies no earlier than its ttl after the
   acquire was sent, less the margin of the ttl, however long ago the last keep-alive was. So is an extension.
   Until it is answered it may have been done or not: so the earlier of the two ends counts, from the request on.
4. A grant that is pushed answers nothing that was sent recently: it is placed by the best answer before it, and
   the drift since then is left out, too. Therefore that answer must not be old. The reply that an acquire is
   queued is one; and while an acquire with a ttl of its own waits, there is a keep-alive every ttl, or every
   second if the ttl is shorter than that (`deadlines`).
5. A client that closes a connection itself may count on the grace only, from then on.
6. A session that is over, or that its client has asked to be ended, is not trusted, whatever is answered still.
7. What was lost stays lost, whatever is received later.

Times are seconds of the client's monotonic clock, except where `_ms` says that they are the server's.
"""

from collections.abc import Callable
from enum import Enum
from math import inf

from fencehold.errors import HoldLost, NotOwner
from fencehold.locks.loss_reasons import UNANSWERED
from fencehold.locks.terms import Terms

NEVER = -inf


class State(Enum):
    """What a hold is worth at this moment."""

    HELD = "held"
    JEOPARDY = "jeopardy"
    """The service has not answered for half the ttl, or the connection is lost; but trust remains."""
    LOST = "lost"
    """Trust has ended, or the service said that the hold has. It never comes back."""
    RELEASED = "released"


DRIFT = 1 / 50
"""By how much two clocks may differ in speed: far more than working ones do."""
_ROUNDING_S = 0.005
"""What is left out besides: the server counts in whole milliseconds."""


def margin(duration: float) -> float:
    """What is left out of a duration for two clocks that drift."""
    return duration * DRIFT + _ROUNDING_S


class Trust:
    """How long a session is trusted. Shared by all its grants, so that one keep-alive renews them all."""

    __slots__ = ("_is_over", "_origin", "_sent_at", "attached", "end", "grace", "ttl")

    def __init__(self, ttl: float, grace: float) -> None:
        self.ttl = ttl
        self.grace = grace
        self.end = NEVER
        self.attached = False
        """Whether a connection carries the session."""
        self._is_over = False
        self._sent_at = 0.0
        self._origin = NEVER
        """Where logical time 0 would lie on the client's clock, if the leader's ran as fast as it may."""

    def on_renewed(self, sent_at: float, at_ms: int) -> None:
        """A keep-alive, open or resume that was sent at `sent_at` was answered with the logical time `at_ms`."""
        self._sent_at = sent_at
        self.on_answer(sent_at, at_ms)
        if not self._is_over:
            self.end = sent_at + self.ttl - margin(self.ttl)

    def on_answer(self, sent_at: float, at_ms: int) -> None:
        """Something that was first sent at `sent_at` was answered with the logical time `at_ms`, or later."""
        self._origin = max(self._origin, sent_at - _soonest(at_ms))

    def leap(self, seconds: float) -> None:
        """Assume that the last answered keep-alive was sent so much later. For tests, where time is virtual."""
        self._sent_at += seconds
        self._origin += seconds - _soonest(seconds * 1000)
        if not self._is_over:
            self.end = self._sent_at + self.ttl - margin(self.ttl)

    def on_closed(self, now: float) -> None:
        """The client closed a connection that may have carried the session."""
        self.end = min(self.end, now + self.grace - margin(self.grace))

    def on_over(self) -> None:
        """The session is over, or about to be."""
        self._is_over = True
        self.end = NEVER
        self.attached = False

    def place(self, instant_ms: int) -> float:
        """The client's time before which logical time certainly does not reach this instant."""
        return self._origin + _soonest(instant_ms) - _ROUNDING_S

    def in_jeopardy(self, now: float) -> bool:
        """Whether the service has not answered for so long that the holder should prepare to stop."""
        return not self.attached or self.end - now < self.ttl / 2


def _soonest(logical_ms: float) -> float:
    """How soon so much logical time may have passed, by the client's clock."""
    return logical_ms / 1000 * (1 - DRIFT)


class Grant:
    """What was granted, and how long it is trusted."""

    __slots__ = ("_known_end", "ending", "extensions", "fence", "on_lost", "own_end", "owner", "terms", "trust")

    is_protected = True
    """Whether a lock is behind it."""

    def __init__(self, terms: Terms, fence: int, trust: Trust) -> None:
        self.terms = terms
        self.fence = fence
        self.trust = trust
        self.own_end = self._known_end = inf
        """When its own ttl may be over; and when it is by what was answered last."""
        self.extensions: tuple[float, ...] = ()
        """The ends of extensions that were asked for and not answered: the server may count by any of them."""
        self.ending = ""
        """Why it is no longer held; empty while it is."""
        self.owner = b""
        """The owner that asked for it, where it matters: of a service with several shards."""
        self.on_lost: Callable[[Grant], None] | None = None
        """Called once, when it is lost."""

    def fences(self) -> dict[str, int]:
        """The fence of each name."""
        return dict.fromkeys(self.terms.names, self.fence)

    def only_fence(self) -> int:
        """The fence, where it may be that there is none for all names."""
        return self.fence

    def limit(self, end: float) -> None:
        """The server has said that it ends then."""
        self._known_end = end
        self.own_end = min(end, *self.extensions) if self.extensions else end

    def on_extending(self, end: float) -> None:
        """An extension was asked for, by which it would end then."""
        self.extensions += (end,)
        self.own_end = min(self.own_end, end)

    def on_extended(self, end: float) -> None:
        """The extension to that end was done: whatever was asked before it does not count any more."""
        self.extensions = self.extensions[self.extensions.index(end) + 1 :]

    def on_not_extended(self, end: float) -> None:
        """The extension to that end was refused, or never sent."""
        index = self.extensions.index(end)
        self.extensions = self.extensions[:index] + self.extensions[index + 1 :]
        self.limit(self._known_end)

    def safe_for(self, now: float) -> float:
        """Seconds of trust left."""
        if self.ending:
            return 0.0
        return max(0.0, min(self.trust.end, self.own_end) - now)

    def state(self, now: float) -> State:
        """What it is worth."""
        if self.ending:
            return State.RELEASED if self.ending == "released" else State.LOST
        if self.safe_for(now) <= 0:
            return State.LOST
        return State.JEOPARDY if self.trust.in_jeopardy(now) else State.HELD

    def lose(self, reason: str) -> None:
        """It is gone, for this reason. Later reasons change nothing."""
        if self.ending:
            return
        self.ending = reason
        if self.on_lost is not None:
            self.on_lost(self)

    def why(self) -> HoldLost | NotOwner:
        """The error for code that still relies on it."""
        if self.ending == "released":
            return NotOwner(f"{self.terms.label} with fence {self.fence} was released before")
        reason = self.ending or UNANSWERED
        return HoldLost(
            f"{self.terms.label} with fence {self.fence} is lost: {reason}",
            names=self.terms.names,
            fence=self.fence,
            reason=reason,
        )
