"""Keeping leases: renewed while their client lives, extended when it says so, lost when they are gone.

1. *What is kept alive is renewed when a third of its ttl has passed*, many at once. A renewal that fails is tried
   again until the trust is over; a lease that is not there any more is lost at once, and never taken anew.
2. *One at a time.* No extension overtakes a renewal, or the later of them might not be the one that counts. After
   a renewal whose outcome is unknown, which may come about yet, nothing is trusted for longer than it would give.
3. A lease that was granted to another thread is looked after from the next beat on.
4. *No record ends before its least time*, however short the lease is to be: it stays, and nobody trusts it.
"""

import asyncio
import logging

from fencehold.backends.leases import Leases
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.backends.store import Store, Taken
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable
from fencehold.locks.clock import Clock
from fencehold.locks.trust import CLOSED, Trust, margin

_LOG = logging.getLogger("fencehold")
_BEATS_PER_TTL = 12
_LEAST_S = 0.001
"""The shortest that a record lasts."""
_GONE = "it had expired, or was taken away"


class Keeping:
    """The leases of one client on one store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._ttl = settings.ttl
        self.clock = clock
        self.leases = Leases(clock)
        self._renewing = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._arming: asyncio.TimerHandle | None = None

    def leased(self, ask: Ask, taken: Taken, ttl: float, sent_at: float) -> Lease | None:
        """The lease that was asked for then; None if it came so late that it is worth nothing."""
        trust = Trust(ttl, ttl)
        trust.attached = True
        trust.end = sent_at + (ttl - margin(ttl) if taken.validity is None else taken.validity)
        lease = Lease(ask, taken.fence, trust, ttl)
        if ask.terms.at_least:
            lease.least_until = self.clock() + ask.terms.at_least
        if lease.safe_for(self.clock()) <= 0:
            lease.lose("it came too late")
            return None
        return lease

    def take(self, lease: Lease) -> None:
        """Look after a lease from now on."""
        if not lease.ending:
            self.leases.add(lease)
        if lease.is_kept and self._beating is None:
            self._beating = asyncio.create_task(self._beat())
            self._arm()

    def adopt(self, lease: Lease) -> bool:
        """Look after a lease that was granted to another thread; says whether that will do with no turn of the
        loop, or it is to be taken there, too."""
        self.leases.adopt(lease)
        return lease.is_kept and self._beating is not None

    def let_go(self, lease: Lease) -> None:
        """Look after it no longer: it is being released."""
        self.leases.remove(lease)
        lease.ending = "released"

    def hand_back(self, lease: Lease) -> asyncio.TimerHandle | None:
        """As `let_go`, by another thread; returns what the loop is to cancel."""
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

    async def leave_least(self, lease: Lease) -> bool:
        """Let a lease that is over run out when its least time is; says whether it was there.

        Raises: as `Store.renew`.
        """
        async with self._renewing:
            (was_there,) = await self._store.renew([lease], max(lease.least_s(self.clock()), _LEAST_S))
        return was_there

    async def stop(self) -> list[Lease]:
        """Keep nothing alive any more; returns what there was."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        if self._arming is not None:
            self._arming.cancel()
        left = list(self.leases)
        for lease in left:
            self.leases.lose(lease, CLOSED)
        return left

    async def _extend(self, lease: Lease, asked_s: float, *, is_kept: bool) -> None:
        if lease.ending:
            # Lost, or given back, while something else was under way.
            raise lease.why()
        sent_at, before, was_kept = self.clock(), lease.trust.end, lease.is_kept
        end = sent_at + _trusted_s(lease, asked_s)
        # It may be less from the moment this is sent, and must not be trusted for longer.
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
            self.leases.lose(lease, f"it was gone when it was extended: {_GONE}")
            raise lease.why()
        lease.ttl, lease.is_kept, lease.trust.end = asked_s, is_kept, end
        self.leases.moved(lease)

    def _arm(self) -> None:
        """By a timer of its own: a store that hangs holds up the beat, but no loss."""
        self.leases.arm(self.clock() + self._ttl / 2)
        self._arming = asyncio.get_running_loop().call_later(self._ttl / _BEATS_PER_TTL, self._arm)

    async def _beat(self) -> None:
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
                # Our own mistake, or a driver's: the others are to be renewed all the same, and it is to be seen.
                _LOG.exception("a renewal failed in a way that was not foreseen")
            for lease in due:
                lease.doubted_s = min(lease.doubted_s, ttl)
            return
        for lease, is_there in zip(due, kept, strict=True):
            if not lease.ending and lease.is_kept:
                self._on_renewed(lease, sent_at + _trusted_s(lease, ttl), is_there=is_there)

    def _on_renewed(self, lease: Lease, end: float, *, is_there: bool) -> None:
        if not is_there:
            self.leases.lose(lease, f"it was gone when it was to be renewed: {_GONE}")
        elif lease.safe_for(self.clock()) <= 0:
            # Somebody may have seen that it cannot be trusted any more: what was lost stays lost.
            self.leases.lose(lease, "no renewal was answered in time")
        else:
            lease.trust.end = max(lease.trust.end, end)


def _trusted_s(lease: Lease, seconds: float) -> float:
    """For how long a lease is trusted that was told to last so long."""
    lasting_s = min(seconds, lease.doubted_s)
    return lasting_s - margin(lasting_s)
