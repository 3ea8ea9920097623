"""The circuit breaker: whether a backend that was not reached lately is worth asking now.

1. *Closed*, everybody may ask. As many failures as `failures_max`, one after the other with nothing heard between
   them and no more than `window_s` from the first to the last, open it.
2. *Open*, nobody asks until a pause is over: an exponential back-off up to `pause_s_max`, with a random part
   (jitter), so that clients who saw the same failure do not come back in one wave.
3. *Half open*, one asks, to probe. If something is heard, it is closed; if not, it is open again. A probe that
   nobody waited for says nothing, and the next one to ask probes. One that takes longer than `probe_s_max` is
   taken for such a one.
4. What is told of a call that began before the last change of state says nothing about the state now.
5. Only silence counts. A refusal is something that was heard.

It is fed: `now` comes with each call, in seconds of a clock that never goes back.
"""

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import NamedTuple

_JITTER = 0.5
"""Jitter: up to which part of a pause is left out of it."""


class Circuit(Enum):
    """Whether a backend is asked."""

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
    """Leave to ask once."""

    term: int
    """In which state of the breaker it was given: each change of state begins another."""
    is_probe: bool


class CircuitBreaker:
    """The breaker of one backend. Each permit is to be told the end of, once."""

    def __init__(self, draw: Callable[[], float], pace: Pace = PACE) -> None:
        self._draw = draw
        """A random number between 0 and 1."""
        self._pace = pace
        self.circuit = Circuit.CLOSED
        self._term = 0
        self._failures = self._openings = 0
        self._first_at = 0.0
        """When the first of the failures was seen that are counted now."""
        self._retry_at = 0.0
        self._probe_until = -inf
        """When the probe under way has taken too long; in the past if there is none."""

    def ask(self, now: float) -> Permit | None:
        """Leave to ask now; None if that would be in vain."""
        if self.circuit is Circuit.CLOSED:
            return Permit(self._term, is_probe=False)
        if self.next_try_in(now) > 0:
            return None
        self._change(Circuit.HALF_OPEN)
        self._probe_until = now + self._pace.probe_s_max
        return Permit(self._term, is_probe=True)

    def next_try_in(self, now: float) -> float:
        """Seconds until somebody may ask; 0 if one may now."""
        until = {Circuit.CLOSED: now, Circuit.OPEN: self._retry_at, Circuit.HALF_OPEN: self._probe_until}
        return max(0.0, until[self.circuit] - now)

    def on_reached(self, permit: Permit) -> bool:
        """Something was heard, a refusal perhaps. Says whether that closed it."""
        if permit.term != self._term:
            return False
        self._failures = 0
        if not permit.is_probe:
            return False
        self._openings = 0
        self._change(Circuit.CLOSED)
        return True

    def on_heard(self) -> None:
        """Something was heard by a way that takes no permit, by whatever thread: it ends the count of failures."""
        if self.circuit is Circuit.CLOSED:
            self._failures = 0

    def on_unreached(self, permit: Permit, now: float) -> bool:
        """Nothing was heard. Says whether that opened it."""
        if permit.term != self._term:
            return False
        if not permit.is_probe and not self._has_failed_enough(now):
            return False
        self._retry_at = now + self._pause()
        self._openings += 1
        self._change(Circuit.OPEN)
        return True

    def on_withdrawn(self, permit: Permit) -> None:
        """Nobody waited for what might have been heard."""
        if permit.is_probe and permit.term == self._term:
            self._probe_until = -inf

    def _has_failed_enough(self, now: float) -> bool:
        if not self._failures or now - self._first_at > self._pace.window_s:
            self._failures, self._first_at = 0, now
        self._failures += 1
        return self._failures >= self._pace.failures_max

    def _pause(self) -> float:
        # The exponent has a bound, too: a backend may be away for weeks.
        longest = min(self._pace.pause_s * 2.0 ** min(self._openings, 30), self._pace.pause_s_max)
        return longest * (1 - _JITTER * self._draw())

    def _change(self, circuit: Circuit) -> None:
        self.circuit = circuit
        self._term += 1
        self._failures = 0
