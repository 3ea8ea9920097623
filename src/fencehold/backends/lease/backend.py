"""A backend over a store, where a lease is a record that expires.

1. *Waiting is no polling.* A waiter tries again when the store notifies it that the name may be free, and
   otherwise only as often as the store needs, with jitter, so that waiters do not come in waves. A wake-up for a
   waiter that has stopped waiting is passed on to the next.
2. *Trust counts from when a request was sent*; from when an earlier one was, if that may be the one that
   counted. A grant that came so late that it cannot be trusted is released, and does not count.
3. *What was granted is kept alive* (`keeper`): renewed while the client lives, and lost when it is gone.
4. *An ask that ends without a grant is withdrawn*, whatever ended it; if the store cannot be reached, later.
5. *A least time is kept by the record*: it was made to last for longer, so a crash leaves it; a release before
   then does not delete it, but lets it expire when the least time is over.
"""

import asyncio
import itertools
import random
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from fencehold.backends.lease.background import BackgroundRetries
from fencehold.backends.lease.keeper import LeaseKeeper
from fencehold.backends.lease.store import Busy, LeaseStore, Taken
from fencehold.backends.lease.thread_path import ThreadPath
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.errors import FenceholdError, OutcomeUnknown, PermissionDenied, Unavailable, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.clock import Clock, clock
from fencehold.locks.loss_reasons import CLOSED, GONE
from fencehold.locks.views import Explanation

_FALLBACK_S_MAX = 5.0
_PAUSE_S_FIRST = 0.005
_PAUSE_S_MAX = 0.25
_RETRY_S = 0.05
_CLOSING_S = 2.0
_RELEASING_S = 10.0
_AT_A_TIME = 64


@dataclass(slots=True, eq=False)
class _Waiter:
    """One waiting ask."""

    ask: Ask
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    may_be_there: bool = False
    """Whether the store may know of the ask."""
    doubted_at: float | None = None
    """When the first request with an unknown outcome was sent, if none has resolved it since."""
    failing_since: float | None = None


class LeaseBackend:
    """A backend over a store."""

    def __init__(self, store: LeaseStore, settings: Settings, clock: Clock = clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._waiting: dict[str, list[_Waiter]] = {}
        self._is_open = False
        self.at_once: ThreadPath | None = None
        """For stores that any thread may call: they have a `thread_store`."""
        store.on_wake = self._on_wake

    @property
    def guarantees(self) -> Guarantees:
        return self._store.guarantees

    async def open(self) -> None:
        if self._is_open:
            return
        await self._store.open()
        self.keeper = LeaseKeeper(self._store, self._settings, self._clock)
        self._background = BackgroundRetries()
        thread_store = self._store.thread_store
        self.at_once = None if thread_store is None else ThreadPath(self, thread_store, self._settings.ttl)
        self._is_open = True

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self.at_once is not None:
            self.at_once.close()
        left = await self.keeper.stop()
        await self._wake_waiters()
        await self._release_all(left)
        await self._background.end()
        await self._store.close()

    async def _release_all(self, leases: list[Lease]) -> None:
        """Release all of them, some at a time, for as long as closing may take; the rest expire by themselves."""
        gate = asyncio.Semaphore(_AT_A_TIME)

        async def free(lease: Lease) -> None:
            async with gate:
                with suppress(FenceholdError):
                    await self._free(lease)

        with suppress(TimeoutError):
            async with asyncio.timeout(_RELEASING_S):
                await asyncio.gather(*map(free, leases))

    async def _free(self, lease: Lease) -> None:
        """Release a name, or leave it for its least time, whatever there is of the lease."""
        if lease.least_s(self._clock()):
            await self.keeper.expire_at_least_time(lease)
        else:
            await self._store.withdraw(lease.ask)

    # Acquiring.

    async def acquire(self, ask: Ask) -> Lease | None:
        waiter = _Waiter(ask)
        self._waiting.setdefault(ask.name, []).append(waiter)
        ttl = ask.terms.ttl or self._settings.ttl
        lease: Lease | None = None
        try:
            lease = await self._take_in_time(waiter, ttl)
        finally:
            self._stop_waiting(waiter)
            if lease is None and waiter.may_be_there:
                self.withdraw_later(ask, ttl)
        return lease

    async def _take_in_time(self, waiter: _Waiter, ttl: float) -> Lease | None:
        wait_s = waiter.ask.terms.timeout
        until = inf if wait_s is None else self._clock() + wait_s
        pause_s = _PAUSE_S_FIRST
        while True:
            if not self._is_open:
                raise UsageError("the client is closed")
            waiter.woken.clear()
            outcome = await self._try(waiter, ttl)
            if isinstance(outcome, Lease):
                return outcome
            left_s = until - self._clock()
            if left_s <= 0:
                if waiter.doubted_at is not None:
                    raise OutcomeUnknown(f"{waiter.ask.terms.label} may have been granted; it is withdrawn")
                return None
            await _pause(waiter, pause_s if outcome.retry_after is None else outcome.retry_after, left_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _try(self, waiter: _Waiter, ttl: float) -> Lease | Busy:
        ask, waits = waiter.ask, waiter.ask.terms.timeout != 0
        sent_at = self._clock()
        was_there, waiter.may_be_there = waiter.may_be_there, True
        try:
            outcome = await self._store.take(ask, ttl, waits=waits)
        except Unavailable as error:
            waiter.may_be_there = was_there
            return self._tolerate(waiter, error, sent_at)
        except OutcomeUnknown as error:
            # Repeating the same ask resolves it; but its ttl may have begun to run now.
            waiter.doubted_at = waiter.doubted_at or sent_at
            return self._tolerate(waiter, error, sent_at)
        asked_at = waiter.doubted_at or sent_at
        waiter.doubted_at = waiter.failing_since = None
        if isinstance(outcome, Busy):
            waiter.may_be_there = waits
            return outcome
        return self._granted(ask, outcome, ttl, asked_at) or Busy(0.0)

    def _tolerate(self, waiter: _Waiter, error: FenceholdError, sent_at: float) -> Busy:
        """A store that fails is tried again for a while if the ask waits, or its outcome is unknown."""
        if isinstance(error, Unavailable) and not waiter.may_be_there:
            raise error
        waiter.failing_since = waiter.failing_since or sent_at
        if self._clock() - waiter.failing_since >= self._settings.connect_timeout:
            if waiter.doubted_at is not None and isinstance(error, Unavailable):
                raise OutcomeUnknown(f"{waiter.ask.terms.label} may have been granted: {error}") from error
            raise error
        return Busy(_RETRY_S)

    def _granted(self, ask: Ask, taken: Taken, ttl: float, sent_at: float) -> Lease | None:
        """The lease, unless it came too late to be trusted."""
        lease = self.keeper.leased(ask, taken, ttl, sent_at)
        if lease is not None:
            self.adopt(lease)
        return lease

    def adopt(self, lease: Lease) -> None:
        """Keep a lease from now on; release it, if the client was closed meanwhile."""
        if self._is_open:
            self.keeper.take(lease)
        else:
            lease.lose(CLOSED)
            self.withdraw_later(lease.ask, lease.ttl)

    def is_awaited(self, name: str) -> bool:
        """Whether this client waits for a name."""
        return name in self._waiting

    def wake(self, name: str) -> None:
        """A name may be free now."""
        self._on_wake(name, "")

    async def withdraw(self, ask: Ask) -> None:
        """Withdraw an ask now."""
        await self._store.withdraw(ask)

    def _stop_waiting(self, waiter: _Waiter) -> None:
        waiters = self._waiting[waiter.ask.name]
        waiters.remove(waiter)
        if not waiters:
            del self._waiting[waiter.ask.name]
        elif waiter.woken.is_set():
            waiters[0].woken.set()

    async def _wake_waiters(self) -> None:
        """Wake up all waiters: they see that the client is closed, and withdraw their asks."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                while self._waiting:
                    for waiter in itertools.chain.from_iterable(self._waiting.values()):
                        waiter.woken.set()
                    await asyncio.sleep(_PAUSE_S_FIRST)

    def _on_wake(self, name: str, token: str) -> None:
        waiters = self._waiting.get(name, ())
        for waiter in waiters:
            if not token or waiter.ask.token == token:
                waiter.woken.set()
                return

    def withdraw_later(self, ask: Ask, ttl: float) -> None:
        """Have an ask withdrawn, as soon as that can be done."""

        async def withdraw() -> None:
            # Refused for good: then it has nothing, or keeps it until it expires. A retry would not help.
            with suppress(UsageError, PermissionDenied):
                await self._store.withdraw(ask)

        self._background.do(withdraw, ttl)

    def drop(self, ask: Ask, ttl: float) -> None:
        """Have an ask withdrawn whose caller stopped waiting; it may have been granted."""
        for lease in self.keeper.leases:
            if lease.ask.token == ask.token:
                self.keeper.leases.lose(lease, "its caller stopped waiting for it")
        self.withdraw_later(ask, ttl)

    # Holding.

    async def release(self, lease: Lease) -> None:
        if lease.ending:
            raise lease.why()
        self.keeper.remove(lease)
        try:
            is_least = lease.least_s(self._clock()) > 0
            was_there = await (self.keeper.expire_at_least_time(lease) if is_least else self._store.release(lease))
        except (FenceholdError, asyncio.CancelledError) as error:
            self._background.do(lambda: self._free(lease), lease.ttl)
            if isinstance(error, Unavailable):
                raise OutcomeUnknown(
                    f"{lease.terms.label} is released in the background, or expires by its ttl: {error}"
                ) from error
            raise
        if not was_there and lease.may_be_free:
            raise OutcomeUnknown(f"{lease.terms.label} is free; whether it was held until now is not known")
        if not was_there:
            lease.ending = GONE
            raise lease.why()
        if not is_least:
            self._on_wake(lease.ask.name, "")

    async def extend(self, lease: Lease, ttl: float | None) -> None:
        await self.keeper.extend(lease, ttl)

    async def look(self, name: str) -> Explanation:
        return await self._store.look(name)

    async def break_hold(self, name: str, fence: int) -> int:
        return await self._store.break_hold(name, fence)


async def _pause(waiter: _Waiter, seconds: float, left_s: float) -> None:
    drawn_s = min(seconds, _FALLBACK_S_MAX) * random.uniform(0.75, 1.25)
    with suppress(TimeoutError):
        async with asyncio.timeout(min(drawn_s, left_s)):
            await waiter.woken.wait()
