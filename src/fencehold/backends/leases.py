"""The leases a client has on a backend, and the end of the trust in each.

1. A lease is lost when its trust is over, also if nobody looks and the backend hangs: a timer sees to it.
2. A lease that was lost or given back is not found here any more.
3. Timers are the loop's: other threads note leases, and take them out, but cancel nothing.
4. A child process inherits no lease: all of its parent's are lost there, and nobody is told.
"""

import asyncio
import os
from collections.abc import Iterator
from typing import cast
from weakref import WeakSet

from fencehold.backends.port import Lease
from fencehold.locks.clock import Clock

_EARLY_S = 0.001
"""A timer that fires that much too early has fired in time."""
_ABSENT = object()


class Leases:
    """All of one backend on one loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Lease, asyncio.TimerHandle | None] = {}
        _all.add(self)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._timers))

    def __len__(self) -> int:
        return len(self._timers)

    def add(self, lease: Lease) -> None:
        """It was granted."""
        _cancel(self._timers.get(lease))
        self._timers[lease] = self._loop.call_later(lease.safe_for(self._clock()), self._look, lease)

    def adopt(self, lease: Lease) -> None:
        """It was granted to another thread, which may say so itself. Its timer is set by `arm`, in time."""
        self._timers[lease] = None

    def arm(self, before: float) -> None:
        """Set the timers of those whose trust may be over before that time, and who have none."""
        for lease in self:
            if lease.trust.end < before and self._timers.get(lease, _ABSENT) is None:
                self.add(lease)

    def remove(self, lease: Lease) -> bool:
        """It is given back; says whether it was there."""
        timer = self._timers.pop(lease, _ABSENT)
        _cancel(timer)
        return timer is not _ABSENT

    def detach(self, lease: Lease) -> asyncio.TimerHandle | None:
        """It is given back by another thread, which may say so itself; returns what the loop is to cancel."""
        return self._timers.pop(lease, None)

    def on_forked(self) -> None:
        """In a child: nothing here is its own."""
        for lease in self:
            # Whoever is to be told of losses lives in the parent.
            lease.on_lost = None
            lease.lose("it is the parent's: a child process inherits no hold")

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


def _cancel(timer: object) -> None:
    # Not by its class: the timers of other loops than asyncio's own have another.
    if timer is not None and timer is not _ABSENT:
        cast(asyncio.TimerHandle, timer).cancel()


_all: WeakSet[Leases] = WeakSet()


def _after_fork_in_child() -> None:
    for leases in list(_all):
        leases.on_forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
