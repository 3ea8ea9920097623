"""The leases of a client on a backend: renewed while it lives, extended on request, lost when they are gone.

1. *A lease that is kept alive is renewed when a third of its ttl has passed*, many at once. A renewal that fails
   is retried until the trust is over; a lease that is no longer there is lost at once, and never taken anew.
2. *One at a time.* No extension overtakes a renewal, or the later of them might not be the one that counts. After
   a renewal whose outcome is unknown, which may still take effect, nothing is trusted for longer than it would
   give.
3. *A lease is lost when its trust is over*, even if no code checks it and the backend hangs: by a timer.
4. A lease that was lost or released is no longer found here.
5. A lease that was granted to another thread is kept from the next heartbeat on. Timers are the loop's: other
   threads add leases and remove them, but cancel nothing.
6. *No record ends before its least time*, however short the lease is: the record stays, and is not trusted.
7. A child process inherits no lease: all of its parent's are lost there, without a notification.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import cast
from weakref import WeakSet

from fencehold.backends.lease.store import LeaseStore, Taken
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable
from fencehold.locks.clock import Clock
from fencehold.locks.loss_reasons import CLOSED, GONE, TTL_OVER, UNRENEWED
from fencehold.locks.trust import Trust, margin

_LOG = logging.getLogger("fencehold")
_BEATS_PER_TTL = 12
_LEAST_S = 0.001
"""The shortest ttl of a record."""
_EARLY_S = 0.001
"""A timer that fires so much too early counts as on time."""
_ABSENT = object()


class LeaseKeeper:
    """The leases of one client on one store."""

    def __init__(self, store: LeaseStore, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._ttl = settings.ttl
        self.clock = clock
        self.leases = LeaseSet(clock)
        self._renewing = asyncio.Lock()
        self._heartbeat: asyncio.Task[None] | None = None
        self._arming: asyncio.TimerHandle | None = None

    def leased(self, ask: Ask, taken: Taken, ttl: float, sent_at: float) -> Lease | None:
        """The lease that was requested then; None if it came too late to be trusted."""
        trust = Trust(ttl, ttl)
        trust.attached = True
        trust.end = sent_at + (ttl - margin(ttl) if taken.validity is None else taken.validity)
        lease = Lease(ask, taken.fence, trust, ttl)
        if ask.terms.at_least:
            lease.least_until = self.clock() + ask.terms.at_least
        if lease.safe_for(self.clock()) <= 0:
            lease.lose("the grant arrived too late to be trusted")
            return None
        return lease

    def take(self, lease: Lease) -> None:
        """Keep a lease from now on."""
        if not lease.ending:
            self.leases.add(lease)
        if lease.is_kept and self._heartbeat is None:
            self._heartbeat = asyncio.create_task(self._renew_due())
            self._arm()

    def adopt(self, lease: Lease) -> bool:
        """Keep a lease that was granted to another thread; returns whether this is enough, or the loop has to call
        `take`, too."""
        self.leases.adopt(lease)
        return lease.is_kept and self._heartbeat is not None

    def remove(self, lease: Lease) -> None:
        """Keep it no longer: it is being released."""
        self.leases.remove(lease)
        lease.ending = "released"

    def detach(self, lease: Lease) -> asyncio.TimerHandle | None:
        """As `remove`, by another thread; returns the timer that the loop has to cancel."""
        timer = self.leases.detach(lease)
        lease.ending = "released"
        return timer

    async def extend(self, lease: Lease, ttl: float | None) -> None:
        """Let a lease end that many seconds from now; None: have it kept alive again.

        Raises: as `Backend.extend`.
        """
        asked_s = self._ttl if ttl is None else ttl
        async with self._renewing:
            await self._extend(lease, asked_s, is_kept=ttl is None)

    async def expire_at_least_time(self, lease: Lease) -> bool:
        """Let a lease that is over expire when its least time is; returns whether it was there.

        Raises: as `LeaseStore.renew`.
        """
        async with self._renewing:
            (was_there,) = await self._store.renew([lease], max(lease.least_s(self.clock()), _LEAST_S))
        return was_there

    async def stop(self) -> list[Lease]:
        """Keep nothing alive any more; returns the leases that there were."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)
        if self._arming is not None:
            self._arming.cancel()
        left = list(self.leases)
        for lease in left:
            self.leases.lose(lease, CLOSED)
        return left

    async def _extend(self, lease: Lease, asked_s: float, *, is_kept: bool) -> None:
        if lease.ending:
            # Lost, or released, while waiting for its turn.
            raise lease.why()
        sent_at, before, was_kept = self.clock(), lease.trust.end, lease.is_kept
        end = sent_at + _trusted_s(lease, asked_s)
        # It may end earlier from the moment this is sent, and must not be trusted for longer.
        lease.is_kept, lease.trust.end = False, min(before, end)
        try:
            (was_there,) = await self._store.renew([lease], max(asked_s, lease.least_s(sent_at)))
        except (OutcomeUnknown, asyncio.CancelledError):
            lease.is_kept, lease.doubted_s = was_kept, min(lease.doubted_s, asked_s)
            self.leases.moved(lease)
            raise
        except FenceholdError:
            lease.is_kept, lease.trust.end = was_kept, before
            raise
        if not was_there:
            self.leases.lose(lease, GONE)
            raise lease.why()
        lease.ttl, lease.is_kept, lease.trust.end = asked_s, is_kept, end
        self.leases.moved(lease)

    def _arm(self) -> None:
        """By a timer of its own: a store that hangs delays the heartbeat, but no loss."""
        self.leases.arm(self.clock() + self._ttl / 2)
        self._arming = asyncio.get_running_loop().call_later(self._ttl / _BEATS_PER_TTL, self._arm)

    async def _renew_due(self) -> None:
        ttl = self._ttl
        while True:
            await asyncio.sleep(ttl / _BEATS_PER_TTL)
            async with self._renewing:
                due_before = self.clock() + ttl * (2 / 3 + 1 / _BEATS_PER_TTL)
                due = [lease for lease in self.leases if lease.is_kept and lease.trust.end < due_before]
                longer = [lease for lease in due if lease.least_s(self.clock()) > ttl]
                if len(due) > len(longer):
                    await self._renew([lease for lease in due if lease not in longer], ttl)
                for lease in longer:
                    await self._renew([lease], lease.least_s(self.clock()))

    async def _renew(self, due: list[Lease], ttl: float) -> None:
        sent_at = self.clock()
        try:
            async with asyncio.timeout(ttl / 3):
                kept = await self._store.renew(due, ttl)
        except Unavailable:
            return
        except Exception as error:
            if not isinstance(error, FenceholdError | TimeoutError):
                # Our own bug, or a driver's: the others must still be renewed, and the bug must be visible.
                _LOG.exception("a renewal failed by a bug")
            for lease in due:
                lease.doubted_s = min(lease.doubted_s, ttl)
            return
        for lease, is_there in zip(due, kept, strict=True):
            if not lease.ending and lease.is_kept:
                self._on_renewed(lease, sent_at + _trusted_s(lease, ttl), is_there=is_there)

    def _on_renewed(self, lease: Lease, end: float, *, is_there: bool) -> None:
        if not is_there:
            self.leases.lose(lease, GONE)
        elif lease.safe_for(self.clock()) <= 0:
            # The application may have seen that it was no longer trusted: what was lost stays lost.
            self.leases.lose(lease, UNRENEWED)
        else:
            lease.trust.end = max(lease.trust.end, end)


def _trusted_s(lease: Lease, seconds: float) -> float:
    """For how long a lease with this ttl is trusted."""
    lasting_s = min(seconds, lease.doubted_s)
    return lasting_s - margin(lasting_s)


class LeaseSet:
    """All leases of one backend on one loop."""

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
        """It was granted to another thread, which may call this itself. Its timer is set by `arm`, in time."""
        self._timers[lease] = None

    def arm(self, before: float) -> None:
        """Set the timers of leases without one whose trust may be over before that time."""
        for lease in self:
            if lease.trust.end < before and self._timers.get(lease, _ABSENT) is None:
                self.add(lease)

    def remove(self, lease: Lease) -> bool:
        """It is being released; returns whether it was there."""
        timer = self._timers.pop(lease, _ABSENT)
        _cancel(timer)
        return timer is not _ABSENT

    def detach(self, lease: Lease) -> asyncio.TimerHandle | None:
        """It is being released by another thread, which may call this itself; returns the timer to cancel."""
        return self._timers.pop(lease, None)

    def on_forked(self) -> None:
        """In a child: nothing here is its own."""
        for lease in self:
            # The callbacks belong to the parent.
            lease.on_lost = None
            lease.lose("it is the parent's: a child process inherits no hold")

    def moved(self, lease: Lease) -> None:
        """Its end was moved, perhaps closer: check again then."""
        if self.remove(lease):
            self.add(lease)

    def lose(self, lease: Lease, reason: str) -> None:
        """It is gone."""
        self.remove(lease)
        lease.lose(reason)

    def lose_all(self, reason: str) -> None:
        """All are gone, with their session."""
        for lease in self:
            self.lose(lease, reason)

    def _look(self, lease: Lease) -> None:
        left_s = lease.safe_for(self._clock())
        if left_s > _EARLY_S:
            self._timers[lease] = self._loop.call_later(left_s, self._look, lease)
        else:
            self.lose(lease, TTL_OVER if not lease.is_kept else UNRENEWED)


def _cancel(timer: object) -> None:
    # Not checked by its class: the timers of other loops than asyncio's own have another.
    if timer is not None and timer is not _ABSENT:
        cast(asyncio.TimerHandle, timer).cancel()


_all: WeakSet[LeaseSet] = WeakSet()


def _after_fork_in_child() -> None:
    for leases in list(_all):
        leases.on_forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
