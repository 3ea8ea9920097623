"""A carrier around another: everything is handed on, but for what a precaution changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager

from fencehold.client.aio.channel import Channel
from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import AtOnce, Carrier
from fencehold.locks.clock import Clock
from fencehold.locks.identity import Owners, Who
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.locks.views import EXPLAIN_LIMIT, Explanation


class Wrapping:
    """Changes nothing."""

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
    while isinstance(carrier, Wrapping):
        carrier = carrier.within
    return carrier if isinstance(carrier, Channel) else None
