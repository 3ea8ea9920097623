"""A carrier with a breaker: a backend that is away is asked once in a while, and not by everybody.

1. While the breaker is open, what is asked ends at once as `Unavailable`, which is true: certainly nothing
   happened.
2. What is had already is none of its business: to release, to extend, to close always goes through.
3. The probe is a question that changes nothing, and never an acquire: that might wait for its turn for hours, on a
   backend that is there, with everybody else turned away. Whoever asked goes on if the probe was answered.
4. A refusal is an answer. So is a time that ran out while others had the name, and so is BUSY: somebody said it.
5. Threads ask by themselves only while it is closed: each would find out for itself that nobody answers.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import NoReturn, TypeVar

from fencehold.client.aio.wrapping import Wrapping
from fencehold.client.breaker import Breaker, Circuit, Permit
from fencehold.errors import FenceholdError, OutcomeUnknown, Overloaded, Unavailable
from fencehold.locks.carrier import Answer, AtOnce, Carrier
from fencehold.locks.identity import Who
from fencehold.locks.log import BREAKERS
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.locks.views import A_FEW, EXPLAIN_LIMIT, Explanation

Result = TypeVar("Result")


class Breaking(Wrapping):
    """A carrier that turns to another only while that is worth it."""

    def __init__(self, within: Carrier, breaker: Breaker, probe_s: float) -> None:
        super().__init__(within)
        self._breaker = breaker
        self._probe_s = probe_s
        """How long a probe may take."""
        self._why = ""
        """What was said when it was last not reached."""

    @property
    def at_once(self) -> AtOnce | None:
        within = self.within.at_once
        if within is None or self._breaker.circuit is not Circuit.CLOSED:
            return None
        return _Hearing(within, self._breaker)

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        permit = await self._permit(terms.names[0])
        return await self._told(permit, self.within.acquire(terms, who, owner))

    async def explain(self, name: str, *, stale: bool = False, limit: int | None = EXPLAIN_LIMIT) -> Explanation:
        permit = await self._permit(name)
        return await self._told(permit, self.within.explain(name, stale=stale, limit=limit))

    async def _permit(self, name: str) -> Permit:
        """Leave to ask; if need be, after a probe."""
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
            # Whatever it objects to, it is there; and it is not for the probe to say so.
            return

    async def _told(self, permit: Permit, asked: Awaitable[Result]) -> Result:
        """What comes of it, which the breaker is told."""
        try:
            result = await asked
        except Overloaded:
            self._on_reached(permit)
            raise
        except (Unavailable, OutcomeUnknown) as error:
            self._on_unreached(permit, str(error))
            raise
        except FenceholdError:
            self._on_reached(permit)
            raise
        except BaseException:
            self._breaker.on_abandoned(permit)
            raise
        self._on_reached(permit)
        return result

    def _on_reached(self, permit: Permit) -> None:
        if self._breaker.on_reached(permit):
            BREAKERS.tell(logging.INFO, "%s:// is reached again", self.guarantees.backend)

    def _on_unreached(self, permit: Permit, why: str) -> None:
        self._why = why
        if self._breaker.on_unreached(permit, self.clock()):
            in_s = self._breaker.next_try_in(self.clock())
            message = "%s:// is not reached; next try in %.1f s: %s"
            BREAKERS.tell(logging.WARNING, message, self.guarantees.backend, in_s, why)

    def _turn_away(self, permit: Permit | None) -> NoReturn:
        if permit is not None:
            self._breaker.on_abandoned(permit)
        in_s = self._breaker.next_try_in(self.clock())
        raise Unavailable(f"{self.guarantees.backend}:// is not reached; next try in {in_s:.1f} s: {self._why}")


class _Hearing:
    """Asking by a thread, of which the breaker is told what was heard; what was not is asked anew on the loop."""

    __slots__ = ("_breaker", "_within")

    def __init__(self, within: AtOnce, breaker: Breaker) -> None:
        self._within = within
        self._breaker = breaker

    def acquire(self, terms: Terms, who: Who) -> Answer:
        answer = self._within.acquire(terms, who)
        try:
            if answer.is_known:
                self._breaker.on_heard()
        except BaseException:
            if answer.grant is not None:
                self._within.abandon(answer.grant)
            raise
        return answer

    def abandon(self, grant: Grant) -> None:
        self._within.abandon(grant)

    def release(self, grant: Grant) -> bool:
        return self._within.release(grant)
