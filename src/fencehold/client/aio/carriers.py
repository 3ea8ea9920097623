"""Carriers around another: every call is passed on, except for what a precaution changes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import Any, NoReturn, TypeVar

from fencehold.client.aio.channel import Channel
from fencehold.client.circuit import Circuit, CircuitBreaker, Permit
from fencehold.drivers.resp.wire import Moved
from fencehold.errors import FenceholdError, OutcomeUnknown, Overloaded, Unavailable, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import Answer, AtOnce, Carrier
from fencehold.locks.clock import Clock
from fencehold.locks.identity import Owners, Who
from fencehold.locks.log import BREAKERS
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, Trust
from fencehold.locks.views import A_FEW, EXPLAIN_LIMIT, Explanation

Result = TypeVar("Result")

_LOG = logging.getLogger("fencehold.proceed")
_LOG_EVERY_S = 10.0


class OuterCarrier:
    """Every call is passed on to the carrier within."""

    def __init__(self, within: Carrier) -> None:
        self.within = within

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.within.loop

    @property
    def clock(self) -> Clock:
        return self.within.clock

    @property
    def owners(self) -> Owners:
        return self.within.owners

    @property
    def guarantees(self) -> Guarantees:
        return self.within.guarantees

    @property
    def at_once(self) -> AtOnce | None:
        return self.within.at_once

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        return await self.within.acquire(terms, who, owner)

    def release(self, grant: Grant) -> Awaitable[None]:
        return self.within.release(grant)

    async def extend(self, grant: Grant, ttl: float | None) -> None:
        await self.within.extend(grant, ttl)

    async def explain(self, name: str, *, stale: bool = False, limit: int | None = EXPLAIN_LIMIT) -> Explanation:
        return await self.within.explain(name, stale=stale, limit=limit)

    async def break_hold(self, name: str, fence: int) -> int:
        return await self.within.break_hold(name, fence)

    def changes(self, name: str) -> AbstractAsyncContextManager[AsyncIterator[object]]:
        return self.within.changes(name)

    async def ready(self) -> None:
        await self.within.ready()

    async def close(self) -> None:
        await self.within.close()


def channel_of(carrier: Carrier) -> Channel | None:
    """The channel to a service inside a carrier; None if there is none."""
    while isinstance(carrier, OuterCarrier):
        carrier = carrier.within
    return carrier if isinstance(carrier, Channel) else None


class LazyCarrier(OuterCarrier):
    """A carrier that is made when it is first used: for a client that is connected lazily.

    1. Until then nothing is connected to, no loop is needed, and what it guarantees is known anyway: locks,
       elections and decorators can be made of it while a module is imported.
    2. It belongs to the loop that runs when it is first used.
    3. A process that was forked before that has one of its own, like any other.
    """

    def __init__(self, make: Callable[[], Carrier], guarantees: Guarantees) -> None:
        # Not `within`: it is made when the lookup fails, so that later uses cost no more than those of any other.
        self._make = make
        self._guarantees = guarantees
        self._is_closed = False

    @property
    def guarantees(self) -> Guarantees:
        return self._guarantees

    @property
    def is_made(self) -> bool:
        """Whether it was used."""
        return "within" in self.__dict__

    async def close(self) -> None:
        self._is_closed = True
        if self.is_made:
            await self.within.close()

    def __getattr__(self, name: str) -> Any:
        if name != "within":
            raise AttributeError(name)
        if self._is_closed:
            raise UsageError("the client is closed")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("an async client connects inside a running event loop, and none is running") from None
        self.within = self._make()
        return self.within


class BreakerCarrier(OuterCarrier):
    """A carrier with a circuit breaker: an unreachable backend is probed now and then, not tried by every caller.

    1. While the breaker is open, requests fail at once with `Unavailable`, which is true: certainly nothing
       happened.
    2. It does not concern what is held already: release, extend and close always go through.
    3. The probe is a read that changes nothing, and never an acquire: that might wait in the queue for hours, on a
       backend that responds, while all other callers are refused. Its caller proceeds if the probe was answered.
    4. A refusal is a response. So is a timeout while others held the name, and so is BUSY.
    5. Threads send requests themselves only while it is closed: otherwise each would have to wait for a timeout.
    """

    def __init__(self, within: Carrier, breaker: CircuitBreaker, probe_s: float) -> None:
        super().__init__(within)
        self._breaker = breaker
        self._probe_s = probe_s
        """How long a probe may take."""
        self._why = ""
        """The error when it could not be reached the last time."""

    @property
    def at_once(self) -> AtOnce | None:
        within = self.within.at_once
        if within is None or self._breaker.circuit is not Circuit.CLOSED:
            return None
        return _HeardAtOnce(within, self._breaker)

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        permit = await self._permit(terms.names[0])
        return await self._told(permit, self.within.acquire(terms, who, owner))

    async def explain(self, name: str, *, stale: bool = False, limit: int | None = EXPLAIN_LIMIT) -> Explanation:
        permit = await self._permit(name)
        return await self._told(permit, self.within.explain(name, stale=stale, limit=limit))

    async def _permit(self, name: str) -> Permit:
        """A permit to send a request; if need be, after a probe."""
        permit = self._breaker.ask(self.clock())
        if permit is not None and permit.is_probe:
            await self._told(permit, self._probe(name))
            # Closed by that, unless it has opened again meanwhile.
            permit = self._breaker.ask(self.clock())
        if permit is None or permit.is_probe:
            self._turn_away(permit)
        return permit

    async def _probe(self, name: str) -> None:
        try:
            async with asyncio.timeout(self._probe_s):
                await self.within.explain(name, limit=A_FEW)
        except Overloaded:
            return
        except TimeoutError as error:
            raise Unavailable(f"{self.guarantees.backend}:// did not answer in {self._probe_s:g} s") from error
        except (Unavailable, OutcomeUnknown):
            raise
        except FenceholdError:
            # Whatever it objects to, it responds; and it is not for the probe to report.
            return

    async def _told(self, permit: Permit, asked: Awaitable[Result]) -> Result:
        """The result, after reporting the outcome to the breaker."""
        try:
            result = await asked
        except (Overloaded, Moved):
            self._on_reached(permit)
            raise
        except (Unavailable, OutcomeUnknown) as error:
            self._on_unreached(permit, str(error))
            raise
        except FenceholdError:
            self._on_reached(permit)
            raise
        except BaseException:
            self._breaker.on_withdrawn(permit)
            raise
        self._on_reached(permit)
        return result

    def _on_reached(self, permit: Permit) -> None:
        if self._breaker.on_reached(permit):
            BREAKERS.tell(logging.INFO, "%s:// can be reached again", self.guarantees.backend)

    def _on_unreached(self, permit: Permit, why: str) -> None:
        channel = channel_of(self.within)
        if channel is not None and channel.shards is not None:
            # One shard is unreachable, and the others are used as before.
            self._breaker.on_withdrawn(permit)
            return
        self._why = why
        if self._breaker.on_unreached(permit, self.clock()):
            in_s = self._breaker.next_try_in(self.clock())
            message = "%s:// cannot be reached; next try in %.1f s: %s"
            BREAKERS.tell(logging.WARNING, message, self.guarantees.backend, in_s, why)

    def _turn_away(self, permit: Permit | None) -> NoReturn:
        if permit is not None:
            self._breaker.on_withdrawn(permit)
        in_s = self._breaker.next_try_in(self.clock())
        raise Unavailable(f"{self.guarantees.backend}:// cannot be reached; next try in {in_s:.1f} s: {self._why}")


class _HeardAtOnce:
    """Requests of a thread: responses are reported to the breaker; without one, the loop repeats the request."""

    __slots__ = ("_breaker", "_within")

    def __init__(self, within: AtOnce, breaker: CircuitBreaker) -> None:
        self._within = within
        self._breaker = breaker

    def acquire(self, terms: Terms, who: Who) -> Answer:
        answer = self._within.acquire(terms, who)
        try:
            if answer.is_known:
                self._breaker.on_heard()
        except BaseException:
            if answer.grant is not None:
                self._within.release_unclaimed(answer.grant)
            raise
        return answer

    def release_unclaimed(self, grant: Grant) -> None:
        self._within.release_unclaimed(grant)

    def release(self, grant: Grant) -> bool:
        return self._within.release(grant)


class Unprotected(Grant):
    """The grant of a caller that proceeds without a lock."""

    __slots__ = ()

    is_protected = False

    def __init__(self, terms: Terms, ttl: float) -> None:
        trust = Trust(terms.ttl or ttl, 0.0)
        trust.end, trust.attached = inf, True
        super().__init__(terms, 0, trust)

    def safe_for(self, now: float) -> float:
        """The trust of a fresh lock, at every call: it bounds calls, which an infinite time does not."""
        return 0.0 if self.ending else self.trust.ttl


def unassured(given: Guarantees) -> Guarantees:
    """What is guaranteed to callers that may proceed without a lock."""
    return given._replace(linearizable=False, fenced=False, fence_survives_failover=False, fair=False)


class ProceedCarrier(OuterCarrier):
    """A carrier that lets its callers proceed without a lock when the backend is unavailable. For EFFICIENCY only.

    1. A caller that proceeds so can see it: the claim is not protected, and its guarantees never promised one
       holder.
    2. A caller proceeds only for want of an answer. A refusal stays one: a caller does not proceed when another
       holds the name, nor when its credentials are rejected, as that would be for ever. BUSY says nothing about
       the name, so the caller proceeds, too; but not before the request was retried for as long as its timeout
       allows, or the connect timeout if that is less.
    3. A claim without a lock is never lost, and there is nothing to release.
    4. It is logged, but not as often as it happens.
    """

    def __init__(self, within: Carrier, ttl: float) -> None:
        super().__init__(within)
        self._ttl = ttl
        """How long a lock that is kept alive is trusted, in seconds."""
        self._log_at = -inf
        self._unsaid = 0
        """How often it happened since it was last logged."""

    @property
    def guarantees(self) -> Guarantees:
        return unassured(self.within.guarantees)

    @property
    def at_once(self) -> AtOnce | None:
        within = self.within.at_once
        return None if within is None else _Protected(within)

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        try:
            return await self.within.acquire(terms, who, owner)
        except (Unavailable, OutcomeUnknown) as error:
            self._log(f"going on without a lock on {terms.label}", error)
            return Unprotected(terms, self._ttl)

    def release(self, grant: Grant) -> Awaitable[None]:
        if grant.is_protected:
            return self.within.release(grant)
        grant.ending = "released"
        done = self.loop.create_future()
        done.set_result(None)
        return done

    async def extend(self, grant: Grant, ttl: float | None) -> None:
        if grant.is_protected:
            await self.within.extend(grant, ttl)

    async def ready(self) -> None:
        # A caller that can proceed without it can begin without it.
        try:
            await self.within.ready()
        except Unavailable as error:
            self._log(f"beginning without {self.guarantees.backend}://", error)

    def _log(self, what: str, error: FenceholdError) -> None:
        now = self.clock()
        self._unsaid += 1
        if now < self._log_at:
            return
        _LOG.warning("%s (%d times since the last warning): %s", what, self._unsaid, error)
        self._log_at, self._unsaid = now + _LOG_EVERY_S, 0


class _Protected:
    """Requests of a thread. Proceeding without a lock is decided on the loop only."""

    __slots__ = ("_within",)

    def __init__(self, within: AtOnce) -> None:
        self._within = within

    def acquire(self, terms: Terms, who: Who) -> Answer:
        return self._within.acquire(terms, who)

    def release(self, grant: Grant) -> bool:
        return grant.is_protected and self._within.release(grant)

    def release_unclaimed(self, grant: Grant) -> None:
        self._within.release_unclaimed(grant)
