"""The channel: the carrier to the service. The short way from the client's calls to the session protocol, and back
by a future.

Where the service has several shards, this one is to the first of them, and passes requests for others to `shards`;
where it is one of several cells, all requests about names to `cells`. It learns of both by the greeting.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

from fencehold.client.aio.cells import READ as READ_CELLS
from fencehold.client.aio.cells import CellChannels
from fencehold.client.aio.cells import read as read_cells
from fencehold.client.aio.shards import ShardChannels
from fencehold.client.aio.watch import Watch, Watches
from fencehold.client.driver import Driver
from fencehold.client.info_pages import InfoPages
from fencehold.client.protocol.requests import Acquire
from fencehold.drivers.resp.wire import Elsewhere, Moved, Moving, command
from fencehold.errors import Unavailable, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks import views
from fencehold.locks.carrier import Carrier, check_loop
from fencehold.locks.identity import Owners, Who
from fencehold.locks.log import overloaded
from fencehold.locks.terms import Terms, ms_of
from fencehold.locks.trust import Grant
from fencehold.locks.waits import LongWaits
from fencehold.placement.cells import Cell

Told = TypeVar("Told")


class Channel:
    """One protocol, its driver, and the loop of both."""

    at_once = None

    __slots__ = (
        "_make_cell",
        "_make_shard",
        "clock",
        "driver",
        "guarantees",
        "is_closing",
        "loop",
        "owners",
        "protocol",
        "shards",
        "waits",
        "watches",
    )

    def __init__(
        self,
        driver: Driver,
        guarantees: Guarantees,
        make_shard: "Callable[[int], Channel] | None" = None,
        make_cell: "Callable[[Cell], tuple[Carrier, Channel]] | None" = None,
    ) -> None:
        """`make_shard`, `make_cell`: make a channel to another one; None: this one never redirects."""
        self.driver = driver
        self._make_shard, self._make_cell = make_shard, make_cell
        self.shards: ShardChannels | CellChannels | None = None
        """The channels to all shards, or cells, once it is known that there are several."""
        protocol = self.protocol = driver.protocol
        self.loop = driver.loop
        self.clock = driver.clock
        self.owners = Owners()
        self.guarantees = guarantees
        self.is_closing = False
        self.watches = Watches(self)
        self.waits = LongWaits(partial(self.explain, stale=True, limit=views.A_FEW), protocol.settings.long_wait)
        driver.on_wake = self._on_wake
        protocol.on_busy = overloaded

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        """Acquire for a task, or for an owner made `anew`. However the wait ends, nothing stays behind."""
        if self.shards is not None:
            return await self.shards.acquire(terms, who, owner)
        future = self._promise()
        request = self.protocol.acquire(terms, owner or self.owners.of(who), future, self.clock())
        self.driver.soon()
        try:
            return await future  # type: ignore[no-any-return]
        except BaseException as error:
            self._withdraw(request)
            shards = await self._learn_of(error) if isinstance(error, Moved) else None
            if shards is None:
                raise
        return await shards.acquire(terms, who, owner)

    async def acquire_here(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        """As `acquire`, in this one of several shards."""
        future = self._promise()
        request = self.protocol.acquire(terms, owner or self.owners.of(who), future, self.clock())
        self.driver.soon()
        try:
            return await future  # type: ignore[no-any-return]
        except BaseException:
            self._withdraw(request)
            raise

    def _withdraw(self, request: Acquire) -> None:
        self.protocol.withdraw(request, self.clock())
        self.driver.soon()

    def release(self, grant: Grant) -> "asyncio.Future[None]":
        """Release a grant. It is done whether or not the future is awaited."""
        return self.release_here(grant) if self.shards is None else self.shards.release(grant)

    def release_here(self, grant: Grant) -> "asyncio.Future[None]":
        """As `release`, of this shard."""
        future = self._promise()
        self.protocol.release(grant, future, self.clock())
        self.driver.soon()
        return future

    async def extend(self, grant: Grant, ttl: float | None) -> None:
        """Move the end of a grant."""
        if self.shards is not None:
            await self.shards.extend(grant, ttl)
        else:
            await self.extend_here(grant, ttl)

    async def extend_here(self, grant: Grant, ttl: float | None) -> None:
        """As `extend`, of this shard."""
        future = self._promise()
        self.protocol.extend(grant, 0 if ttl is None else ms_of(ttl), future, self.clock())
        self.driver.soon()
        await future

    async def explain(
        self, name: str, *, stale: bool = False, limit: int | None = views.EXPLAIN_LIMIT
    ) -> views.Explanation:
        def ask(channel: Channel) -> Awaitable[views.Explanation]:
            if channel is self:
                return self._explain_here(name, stale, limit)
            return channel.explain(name, stale=stale, limit=limit)

        return await self._at_home(name, ask)

    async def _explain_here(self, name: str, stale: bool, limit: int | None) -> views.Explanation:
        pages = InfoPages(name, limit, stale=stale)
        while (words := pages.words()) is not None:
            pages.take(await self.read(words))
        return pages.explanation()

    async def break_hold(self, name: str, fence: int) -> int:
        def ask(channel: Channel) -> Awaitable[int]:
            return self._break_here(name, fence) if channel is self else channel.break_hold(name, fence)

        return await self._at_home(name, ask)

    async def _break_here(self, name: str, fence: int) -> int:
        words: list[str | int] = ["LOCK.BREAK", name, "FENCE", fence]
        reply = await self.read(command(*(words if fence else words[:2])))
        return int(reply[b"fence"])

    def changes(self, name: str) -> AbstractAsyncContextManager[AsyncIterator[object]]:
        return Watch(self, name, is_wanted=lambda event: views.may_concern(event, name), is_one=True)

    async def _at_home(self, name: str, ask: "Callable[[Channel], Awaitable[Told]]") -> Told:
        """Send a request to the home of a name; if that has moved meanwhile, to the new home."""
        channel = await self.home_of(name)
        if isinstance(self.shards, ShardChannels):
            return await self.shards.ask(name, ask)
        return await ask(channel)

    async def homes_of(self, prefix: str, *, is_one: bool) -> "list[Channel]":
        """The channels to all shards that names with a prefix may be at home in; or the one name that it is."""
        if is_one:
            return [await self.home_of(prefix)]
        await self._greeted()
        return [self] if self.shards is None else await self.shards.under(prefix)

    async def home_of(self, name: str) -> "Channel":
        """The channel to the shard of a name."""
        if not self.protocol.shards or (self.protocol.cell_map and self.shards is None):
            await self._greeted()
        return self if self.shards is None else self.shards.of((name,))

    async def newest_home_of(self, name: str) -> "Channel":
        """As `home_of`, after checking with the service whether the name has moved."""
        home = await self.home_of(name)
        return home if self.shards is None else await self.shards.newest_home_of(name)

    async def _greeted(self) -> None:
        """Wait until it is known whether there are several shards."""
        if self._make_shard is not None and not self.protocol.shards:
            await self.ready()
        if self.protocol.shards > 1:
            self.learn()
        await self._learn_cells()

    async def _learn_of(self, moved: Moved) -> "ShardChannels | CellChannels | None":
        """Learn from a refusal that there are several shards, or several cells."""
        self.learn()
        if isinstance(moved, Elsewhere | Moving):
            self.protocol.cell_map = self.protocol.cell_map or 1
            return await self._learn_cells()
        return self.shards

    async def _learn_cells(self) -> "CellChannels | None":
        """Read the map of cells, once, if the service is one of several."""
        if self._make_cell is None or not self.protocol.cell_map:
            return None
        if not isinstance(self.shards, CellChannels):
            told = read_cells(await self.read(READ_CELLS))
            inner = self.shards
            if told is not None and not isinstance(inner, CellChannels):
                self.shards = CellChannels(self, inner, self._make_cell, told)
        return self.shards if isinstance(self.shards, CellChannels) else None

    def learn(self) -> "ShardChannels | CellChannels | None":
        """Learn how many shards the service has; None if it has one, or this channel never redirects."""
        if self.shards is None and self._make_shard is not None and self.protocol.shards > 1:
            self.shards = ShardChannels(self, self._make_shard, self.protocol.shards)
        return self.shards

    def _on_wake(self, now: float) -> None:
        waiting = self.protocol.session.waiting
        if waiting:
            self.waits.look([(request.terms, request.asked_at) for request in waiting.values()], now)

    async def read(self, words: bytes) -> Any:
        """Send an idempotent command, and return the reply as it came."""
        future = self._promise()
        self.protocol.read(words, future, self.clock())
        self.driver.soon()
        return await future

    def tell(self, words: bytes) -> None:
        """Send an idempotent command, and do not wait for the reply."""
        future = self._promise()
        future.add_done_callback(lambda told: told.cancelled() or told.exception())
        self.protocol.read(words, future, self.clock())
        self.driver.soon()

    async def ready(self) -> None:
        """Wait until a session is open; in the first shard, if there are several."""
        future = self._promise()
        self.protocol.ready(future, self.clock())
        self.driver.soon()
        try:
            await future
        except Unavailable:
            # The first shard is unreachable. Names at home in others can be acquired anyway.
            if self.learn() is None:
                raise
        self.learn()
        await self._learn_cells()

    async def close(self) -> None:
        """End the session, then everything."""
        if self.protocol.unusable and asyncio.get_running_loop() is not self.loop:
            # Closed before, or made by a parent process: there is nothing to be done here.
            return
        check_loop(self.loop)
        self.is_closing = True
        if self.shards is not None:
            await self.shards.close_others()
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

    def check_open(self) -> None:
        """Refuse to make a channel to another shard, or cell, once the client is closed: a task may not know yet.

        Raises:
            UsageError: it is closed, or being closed, or was made by a parent process.
        """
        if self.is_closing or self.protocol.unusable:
            raise UsageError(self.protocol.unusable or "the client is closed")

    def _promise(self) -> "asyncio.Future[Any]":
        """A future for a reply, for a caller on the loop that this belongs to."""
        # Before anything is sent: on another loop the reply would never reach the caller.
        check_loop(self.loop, self.protocol.unusable)
        return self.loop.create_future()
