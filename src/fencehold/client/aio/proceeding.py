"""A carrier that lets its callers go on without a lock when there is nobody to ask. For EFFICIENCY only.

1. Whoever goes on so is told: the claim is not protected, and its guarantees never promised one holder.
2. Only what is known not to be had for want of an answer is gone on without. A refusal stays one: whoever is told
   that another has the name does not go on, and neither does who is not let in, which would be for ever.
   One who is told that the service is busy has heard nothing of the name, and goes on, too; but not before it was
   asked again for as long as its timeout allows, or the connect timeout if that is less.
3. A claim without a lock is never lost, and there is nothing to give back.
4. It is logged, but not as often as it happens.
"""

import logging
from collections.abc import Awaitable
from math import inf

from fencehold.client.aio.wrapping import Wrapping
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable
from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import Answer, AtOnce, Carrier
from fencehold.locks.identity import Who
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, Trust

_LOG = logging.getLogger("fencehold.proceed")
_LOG_EVERY_S = 10.0


class Unprotected(Grant):
    """What somebody goes on with who has nothing."""

    __slots__ = ()

    is_protected = False

    def __init__(self, terms: Terms, ttl: float) -> None:
        trust = Trust(terms.ttl or ttl, 0.0)
        trust.end, trust.attached = inf, True
        super().__init__(terms, 0, trust)

    def safe_for(self, now: float) -> float:
        """What a lock would be good for, again and again: it bounds calls, which a time without end does not."""
        return 0.0 if self.ending else self.trust.ttl


def unassured(given: Guarantees) -> Guarantees:
    """What is guaranteed to those who may go on without a lock."""
    return given._replace(linearizable=False, fenced=False, fence_survives_failover=False, fair=False)


class Proceeding(Wrapping):
    """A carrier that grants what another could not be asked for."""

    def __init__(self, within: Carrier, ttl: float) -> None:
        super().__init__(within)
        self._ttl = ttl
        """What a lock that is kept alive is good for, in seconds."""
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
        # Whoever goes on without it can begin without it.
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
    """Asking by a thread, for which there is no going on without: that is found out on the loop."""

    __slots__ = ("_within",)

    def __init__(self, within: AtOnce) -> None:
        self._within = within

    def acquire(self, terms: Terms, who: Who) -> Answer:
        return self._within.acquire(terms, who)

    def release(self, grant: Grant) -> bool:
        return grant.is_protected and self._within.release(grant)

    def abandon(self, grant: Grant) -> None:
        self._within.abandon(grant)
