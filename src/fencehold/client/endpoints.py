"""Endpoints: in which order, and how soon, the nodes of a service are tried.

1. All endpoints are tried, one after the other, before any pause; but one that did not respond is skipped for a
   second: to try it again costs a whole turn, in which another node may have taken over.
2. After a whole failed round there is a pause: an exponential back-off up to a second, with jitter,
   as clients that lost the same leader must not come back in one wave.
3. A node's hint who leads is followed for one try, at once; after a pause if the node itself was tried by a hint.
   A node names only a leader that it has heard from since: so the hint is followed even if that leader did not
   respond, as a leader that waits for its journal does not.
"""

from collections.abc import Callable

from fencehold.drivers.address import REFUSED, SERVICE_SCHEMES, Endpoint, endpoint
from fencehold.errors import UsageError

PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 1.0
SILENT = "it did not answer"
UNTRIED = "it was not tried yet"
SILENT_S = 1.0
"""For so long one that did not respond is skipped. By the clock: others may be slow to respond, too."""


class Rotation:
    """Which endpoint to try next, and after what pause."""

    __slots__ = (
        "_endpoints",
        "_failures",
        "_hint",
        "_last",
        "_next",
        "_silent",
        "_silent_until",
        "_stray",
        "_taken",
        "_troubles",
        "_was_hinted",
        "draw",
        "url",
    )

    def __init__(
        self, endpoints: tuple[Endpoint, ...], draw: Callable[[], float], *, scheme: str = SERVICE_SCHEMES[0]
    ) -> None:
        self._endpoints = endpoints
        self._troubles: dict[Endpoint, str] = {}
        """Why each of those given was last not reached."""
        self._stray: tuple[Endpoint, str] | None = None
        """The last leader by a hint that was not among those given, and why it was not reached."""
        self.url = f"{scheme}://{','.join(map(str, endpoints))}"
        """The address of the service, to be shown: no secret is in it."""
        self.draw = draw
        """A random number between 0 and 1."""
        self._taken = self._next = 0
        self._failures = 0
        self._hint: Endpoint | None = None
        self._was_hinted = False
        """Whether the last one was taken by a hint."""
        self._last = endpoints[0]
        self._silent: Endpoint | None = None
        """The last one that did not respond."""
        self._silent_until = 0.0

    def __len__(self) -> int:
        return len(self._endpoints)

    def take(self, now: float) -> Endpoint:
        """The endpoint to try now."""
        self._last = self._choose(now)
        return self._last

    def _choose(self, now: float) -> Endpoint:
        hint, self._hint = self._hint, None
        self._was_hinted = hint is not None
        if hint is not None:
            if hint in self._endpoints:
                self._taken = self._endpoints.index(hint)
            return hint
        if self._endpoints[self._next] == self._silent and now < self._silent_until:
            self._next = (self._next + 1) % len(self._endpoints)
        self._taken = self._next
        self._next = (self._next + 1) % len(self._endpoints)
        return self._endpoints[self._taken]

    def on_success(self) -> None:
        """The last one taken serves: if it fails, it is the first to be tried again."""
        self._failures = 0
        self._next = self._taken
        self._silent = None
        self._troubles.clear()
        self._stray = None

    def on_silent(self, now: float) -> None:
        """The last one taken does not respond: another is to be tried first."""
        self._next = (self._taken + 1) % len(self._endpoints)
        self._silent, self._silent_until = self._last, now + SILENT_S

    @property
    def last(self) -> Endpoint:
        """The one that was taken last."""
        return self._last

    def on_trouble(self, why: str) -> None:
        """The last one taken was not reached, for this reason."""
        if self._last in self._endpoints:
            self._troubles[self._last] = why
        else:
            self._stray = (self._last, why)

    def trouble(self) -> str:
        """Why the last one taken was not reached, as far as it is known."""
        if self._stray is not None and self._stray[0] == self._last:
            return self._stray[1]
        return self._troubles.get(self._last, SILENT)

    def troubles(self) -> str:
        """Why none of those given was reached, nor the leader that one of them named."""
        known = self._troubles
        if len(self._endpoints) == 1:
            told = known.get(self._endpoints[0], SILENT)
        else:
            told = "; ".join(f"{each}: {known.get(each, UNTRIED)}" for each in self._endpoints)
        if self._stray is not None:
            leader, why = self._stray
            told = f"{told}; {leader}: {why}"
        return f"{told}. Is `fencehold serve` running there?" if REFUSED in told else told

    def on_leader(self, text: str) -> None:
        """A node said who leads."""
        try:
            self._hint = endpoint(text) if text else None
        except UsageError:
            self._hint = None

    def pause(self) -> float:
        """Seconds to wait before the next try, after one that failed."""
        self._failures += 1
        rounds, rest = divmod(self._failures, len(self._endpoints))
        # Two nodes that each take the other for the leader must not be tried in a tight loop.
        if not self._was_hinted if self._hint is not None else rest:
            return 0.0
        longest = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2 ** min(rounds, 16))
        return float(longest * (0.5 + self.draw() / 2))
