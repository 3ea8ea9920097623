"""The circuit breaker: whether to send requests to a backend that could not be reached recently.

1. *Closed*, all requests pass. As many failures as `failures_max`, one after the other with no response between
   them and no more than `window_s` from the first to the last, open it.
2. *Open*, no request passes until a pause is over: an exponential back-off up to `pause_s_max`, with jitter, so
   that clients that saw the same failure do not come back in one wave.
3. *Half open*, one request passes, as a probe. On a response it is closed; without one it is open again. A probe
   whose caller stopped waiting says nothing, and the next request probes. One that takes longer than
   `probe_s_max` counts as such.
4. The outcome of a call that began before the last change of state says nothing about the state now.
5. Only silence counts as a failure. A refusal is a response.

It is fed: `now` comes with each call, in seconds of a clock that never goes back.
"""

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import NamedTuple

_JITTER = 0.5
"""Up to which part of a pause is left out of it."""


class Circuit(Enum):
    """Whether requests pass."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class Pace(NamedTuple):
    """When a breaker opens, and how soon it tries again."""

    failures_max: int = 3
    window_s: float = 30.0
    pause_s: float = 1.0
    """The longest first pause."""
    pause_s_max: float = 5.0
    probe_s_max: float = 10.0


PACE = Pace()


class Permit(NamedTuple):
    """Permission for one request."""

    term: int
    """The number of the breaker's state in which it was given: each change of state begins another."""
    is_probe: bool


class CircuitBreaker:
    """The breaker of one backend. The outcome of each permit is to be reported, once."""

    def __init__(self, draw: Callable[[], float], pace: Pace = PACE) -> None:
        self._draw = draw
        """A random number between 0 and 1."""
        self._pace = pace
        self.circuit = Circuit.CLOSED
        self._term = 0
        self._failures = self._openings = 0
        self._first_at = 0.0
        """When the first of the failures counted now was seen."""
        self._retry_at = 0.0
        self._probe_until = -inf
        """When the probe in flight has taken too long; in the past if there is none."""

    def ask(self, now: float) -> Permit | None:
        """A permit for a request now; None if the breaker is open."""
        if self.circuit is Circuit.CLOSED:
            return Permit(self._term, is_probe=False)
        if self.next_try_in(now) > 0:
            return None
        self._change(Circuit.HALF_OPEN)
        self._probe_until = now + self._pace.probe_s_max
        return Permit(self._term, is_probe=True)

    def next_try_in(self, now: float) -> float:
        """Seconds until a request may pass; 0 if one may now."""
        until = {Circuit.CLOSED: now, Circuit.OPEN: self._retry_at, Circuit.HALF_OPEN: self._probe_until}
        return max(0.0, until[self.circuit] - now)

    def on_reached(self, permit: Permit) -> bool:
        """There was a response, a refusal perhaps. Returns whether that closed it."""
        if permit.term != self._term:
            return False
        self._failures = 0
        if not permit.is_probe:
            return False
        self._openings = 0
        self._change(Circuit.CLOSED)
        return True

    def on_heard(self) -> None:
        """A thread got a response to a request without a permit: it ends the count of failures."""
        if self.circuit is Circuit.CLOSED:
            self._failures = 0

    def on_unreached(self, permit: Permit, now: float) -> bool:
        """There was no response. Returns whether that opened it."""
        if permit.term != self._term:
            return False
        if not permit.is_probe and not self._has_failed_enough(now):
            return False
        self._retry_at = now + self._pause()
        self._openings += 1
        self._change(Circuit.OPEN)
        return True

    def on_withdrawn(self, permit: Permit) -> None:
        """The caller stopped waiting for the response."""
        if permit.is_probe and permit.term == self._term:
            self._probe_until = -inf

    def _has_failed_enough(self, now: float) -> bool:
        if not self._failures or now - self._first_at > self._pace.window_s:
            self._failures, self._first_at = 0, now
        self._failures += 1
        return self._failures >= self._pace.failures_max

    def _pause(self) -> float:
        # The exponent has a bound, too: a backend may be down for weeks.
        longest = min(self._pace.pause_s * 2.0 ** min(self._openings, 30), self._pace.pause_s_max)
        return longest * (1 - _JITTER * self._draw())

    def _change(self, circuit: Circuit) -> None:
        self.circuit = circuit
        self._term += 1
        self._failures = 0
