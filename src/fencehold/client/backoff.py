"""Back-off: when to come back to a service that said BUSY, and what rests until then.

1. BUSY says that nothing happened. What was asked rests for the time that was told, and is asked again.
2. Told so again, it rests twice as long as before; never less than `REST_S_MIN` nor more than `REST_S_MAX`,
   whatever is told.
3. To that, up to half of it is added by lot: clients that were told the same do not come back in one wave.
4. Nothing rests beyond the time that its caller waits: it is looked at then.

It is fed: `now` and the lot come from outside.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from fencehold.client.expected import DONE, QUEUED, SENT, UNSENT, Expected, Numbered, Request
from fencehold.client.requests import Acquire
from fencehold.errors import Overloaded

if TYPE_CHECKING:
    from fencehold.client.protocol import SessionProtocol

REST_S_MIN = 0.02
REST_S_MAX = 5.0
_JITTER = 0.5
"""How much longer a rest may be by lot, as a part of it."""
_DOUBLINGS_MAX = 16
"""The exponent has a bound, too: a service may be busy for weeks."""


class Backoff:
    """What rests, by the time at which it is looked at again."""

    __slots__ = ("_draw", "_order", "_resting")

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        """A number between 0 and 1, drawn by lot."""
        self._resting: list[tuple[float, int, Expected]] = []
        """A heap."""
        # What is due at the same time is asked again in the order in which it was told.
        self._order = count()

    def __len__(self) -> int:
        return len(self._resting)

    def rest_of(self, busy: Overloaded, times: int) -> float:
        """How many seconds to rest when BUSY was told for the `times`-th time, the first being 1."""
        least = max(busy.retry_after_s, REST_S_MIN) * 2.0 ** min(times - 1, _DOUBLINGS_MAX)
        return min(least, REST_S_MAX) * (1 + _JITTER * self._draw())

    def rest(self, entry: Expected, until: float) -> None:
        """Let something rest until then."""
        heappush(self._resting, (until, next(self._order), entry))

    def next_at(self) -> float:
        """When something has rested enough."""
        return self._resting[0][0] if self._resting else inf

    def wake(self, protocol: "SessionProtocol") -> None:
        """Ask again what has rested enough; what nobody waits for any more is given up."""
        now = protocol.now
        due: list[Expected] = []
        # First taken, then asked: what is told BUSY again while this goes on waits for the next time.
        while self._resting and self._resting[0][0] <= now:
            due.append(heappop(self._resting)[2])
        for entry in due:
            entry.on_rested(protocol)

    def requests(self) -> list[Request]:
        """Requests that rest, and that are not over."""
        found = [entry for _, _, entry in self._resting if isinstance(entry, Request)]
        return [request for request in found if request.stage != DONE]

    def find_acquire(self, request_id: int) -> Acquire | None:
        """The acquire that rests under this id, which the server may know."""
        known = (request for request in self.requests() if isinstance(request, Acquire))
        return next((acquire for acquire in known if acquire.id == request_id and acquire.stage == SENT), None)

    def interrupt(self) -> list[Request]:
        """The connection is gone: say what was asked before it and may have been done. It is repeated on the next.

        So is what housekeeping knows by itself, and what is queued. What was never taken rests on.
        """
        doubted = [request for request in self.requests() if request.stage == SENT]
        self._keep(lambda entry: isinstance(entry, Request) and entry.stage == UNSENT)
        return doubted

    def take_bound(self) -> list[Request]:
        """Take all that means nothing to another session. What is left asks for something new."""
        bound = [each for each in self.requests() if each.stage == SENT or _is_about_a_grant(each)]
        taken = set(map(id, bound))
        self._keep(lambda entry: isinstance(entry, Request) and entry.stage == UNSENT and id(entry) not in taken)
        return bound

    def take_all(self) -> list[Request]:
        """Take everything; say which requests there were, but for those that are queued."""
        taken = [request for request in self.requests() if request.stage != QUEUED]
        self._resting.clear()
        return taken

    def _keep(self, wanted: Callable[[Expected], bool]) -> None:
        self._resting = [each for each in self._resting if wanted(each[2])]
        heapify(self._resting)


def _is_about_a_grant(request: Request) -> bool:
    return isinstance(request, Numbered) and not isinstance(request, Acquire)
