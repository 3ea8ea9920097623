"""The channel: the carrier to the service. The short way from the verbs to the session protocol, and back by a
future."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from fencehold.client.aio.watch import Watch, Watches
from fencehold.client.driver import Driver
from fencehold.client.info_pages import InfoPages
from fencehold.drivers.resp.wire import command
from fencehold.guarantees import Guarantees
from fencehold.locks import views
from fencehold.locks.carrier import check_loop
from fencehold.locks.identity import Owners, Who
from fencehold.locks.log import overloaded
from fencehold.locks.terms import Terms, ms_of
from fencehold.locks.trust import Grant
from fencehold.locks.waits import LongWaits


class Channel:
    """One protocol, its driver, and the loop both live on."""

    at_once = None

    __slots__ = ("clock", "driver", "guarantees", "loop", "owners", "protocol", "waits", "watches")

    def __init__(self, driver: Driver, guarantees: Guarantees) -> None:
        self.driver = driver
        protocol = self.protocol = driver.protocol
        self.loop = driver.loop
        self.clock = driver.clock
        self.owners = Owners()
        self.guarantees = guarantees
        self.watches = Watches(self)
        self.waits = LongWaits(partial(self.explain, stale=True, limit=views.A_FEW), protocol.settings.long_wait)
        driver.on_wake = self._on_wake
        protocol.on_busy = overloaded

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        """Acquire for a task, or for an owner made `anew`. Whatever ends the waiting, nothing stays behind."""
        future = self._promise()
        request = self.protocol.acquire(terms, owner or self.owners.of(who), future, self.clock())
        self.driver.soon()
        try:
            return await future  # type: ignore[no-any-return]
        except BaseException:
            self.protocol.withdraw(request, self.clock())
            self.driver.soon()
            raise

    def release(self, grant: Grant) -> "asyncio.Future[None]":
        """Release a grant. It is done whether or not the future is awaited."""
        future = self._promise()
        self.protocol.release(grant, future, self.clock())
        self.driver.soon()
        return future

    async def extend(self, grant: Grant, ttl: float | None) -> None:
        """Move the end of a grant."""
        future = self._promise()
        self.protocol.extend(grant, 0 if ttl is None else ms_of(ttl), future, self.clock())
        self.driver.soon()
        await future

    async def explain(
        self, name: str, *, stale: bool = False, limit: int | None = views.EXPLAIN_LIMIT
    ) -> views.Explanation:
        pages = InfoPages(name, limit, stale=stale)
        while (words := pages.words()) is not None:
            pages.take(await self.read(words))
        return pages.explanation()

    async def break_hold(self, name: str, fence: int) -> int:
        words: list[str | int] = ["LOCK.BREAK", name, "FENCE", fence]
        reply = await self.read(command(*(words if fence else words[:2])))
        return int(reply[b"fence"])

    def changes(self, name: str) -> AbstractAsyncContextManager[AsyncIterator[object]]:
        return Watch(self, self.watches, name, is_wanted=lambda event: views.may_concern(event, name))

    def _on_wake(self, now: float) -> None:
        waiting = self.protocol.session.waiting
        if waiting:
            self.waits.look([(request.terms, request.asked_at) for request in waiting.values()], now)

    async def read(self, words: bytes) -> Any:
        """Send a command that may be sent twice, and return the reply as it came."""
        future = self._promise()
        self.protocol.read(words, future, self.clock())
        self.driver.soon()
        return await future

    async def ready(self) -> None:
        """Wait until a session is open."""
        future = self._promise()
        self.protocol.ready(future, self.clock())
        self.driver.soon()
        await future

    async def close(self) -> None:
        """End the session, then everything."""
        if self.protocol.unusable and asyncio.get_running_loop() is not self.loop:
            # Closed before, or made by a parent process: there is nothing to be done here.
            return
        check_loop(self.loop)
        self.watches.end()
        self.waits.stop()
        future = self._promise()
        self.protocol.close(future, self.clock())
        self.driver.soon()
        try:
            await asyncio.shield(future)
        finally:
            await self.driver.wait_closed()
            await self.waits.stopped()

    def _promise(self) -> "asyncio.Future[Any]":
        """Where an answer goes, for a caller on the loop that this belongs to."""
        # Before anything is asked: on another loop nobody would ever hear the answer.
        check_loop(self.loop, self.protocol.unusable)
        return self.loop.create_future()
