"""The leases a client has on a backend, and the end of the trust in each.

1. A lease is lost when its trust is over, also if nobody looks and the backend hangs: a timer sees to it.
2. A lease that was lost or given back is not found here any more.
"""

import asyncio
from collections.abc import Iterator

from fencehold.backends.port import Lease
from fencehold.client.clock import Clock

_EARLY_S = 0.001
"""A timer that fires that much too early has fired in time."""
_ABSENT = object()


class Leases:
    """All of one backend on one loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Lease, asyncio.TimerHandle | None] = {}

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._timers))

    def __len__(self) -> int:
        return len(self._timers)

    def add(self, lease: Lease) -> None:
        """It was granted."""
        self._timers[lease] = self._loop.call_later(lease.safe_for(self._clock()), self._look, lease)

    def adopt(self, lease: Lease) -> None:
        """It was granted to another thread, which may say so itself. Its timer is set by `arm`, in time."""
        self._timers[lease] = None

    def arm(self, before: float) -> None:
        """Set the timers of those whose trust may be over before that time, and who have none."""
        for lease, timer in tuple(self._timers.items()):
            if timer is None and lease.trust.end < before and lease in self._timers:
                self.add(lease)

    def remove(self, lease: Lease) -> bool:
        """It is given back; says whether it was there."""
        timer = self._timers.pop(lease, _ABSENT)
        if isinstance(timer, asyncio.TimerHandle):
            timer.cancel()
        return timer is not _ABSENT

    def moved(self, lease: Lease) -> None:
        """Its end was moved, perhaps closer: look again then."""
        if self.remove(lease):
            self.add(lease)

    def lose(self, lease: Lease, reason: str) -> None:
        """It is gone."""
        self.remove(lease)
        lease.lose(reason)

    def lose_all(self, reason: str) -> None:
        """All are gone, with the session they lived with."""
        for lease in self:
            self.lose(lease, reason)

    def _look(self, lease: Lease) -> None:
        left_s = lease.safe_for(self._clock())
        if left_s > _EARLY_S:
            self._timers[lease] = self._loop.call_later(left_s, self._look, lease)
        else:
            self.lose(lease, "its ttl ran out" if not lease.is_kept else "no renewal was answered in time")
