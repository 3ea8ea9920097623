"""Watching: events of names with a prefix, as an async iterator."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fencehold.drivers.resp.wire import command
from fencehold.locks.views import Event, event

if TYPE_CHECKING:
    from fencehold.client.aio.channel import Channel

EVENTS_MAX = 10_000
"""Events that wait to be looked at, for each watch. Beyond, the oldest are dropped and a `gap` says so."""


class Watches:
    """All watches of a client: one stream of events, handed to whom it concerns."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._watches: list[Watch] = []
        self._position = 0
        channel.protocol.on_event = self._on_event
        channel.protocol.subscriptions = self._subscriptions

    async def add(self, watch: "Watch") -> None:
        """Begin to hand events to a watch, from now on."""
        self._watches.append(watch)
        reply = await self._channel.read(command("LOCK.WATCH", watch.prefix))
        # From here on nothing is missed, also if the connection is lost before the first event.
        self._position = self._position or int(reply[b"position"])

    async def remove(self, watch: "Watch") -> None:
        """Hand it no more."""
        self._watches.remove(watch)
        if not any(other.prefix == watch.prefix for other in self._watches):
            await self._channel.read(command("LOCK.UNWATCH", watch.prefix))

    def end(self) -> None:
        """The client is closed."""
        for watch in self._watches:
            watch._end()

    def _on_event(self, push: dict[bytes, Any]) -> None:
        seen = event(push)
        self._position = max(self._position, seen.position)
        for watch in self._watches:
            if watch._wants(seen):
                watch._put(seen)

    def _subscriptions(self) -> list[bytes]:
        """What a new connection must be told; events since the last one seen follow, if they are still kept."""
        prefixes = dict.fromkeys(watch.prefix for watch in self._watches)
        # All prefixes of a connection are told in one order, so only the first says where it begins.
        since: list[str | int] = ["FROM", self._position] if self._position else []
        return [
            command("LOCK.WATCH", prefix, *(since if index == 0 else ())) for index, prefix in enumerate(prefixes)
        ]


class Watch:
    """Events of names with a prefix. Iterate over it; leave it with `async with`, or by `close`."""

    def __init__(
        self,
        channel: "Channel",
        prefix: str,
        *,
        is_wanted: Callable[[Event], bool] = lambda _: True,
        is_one: bool = False,
    ) -> None:
        """`is_one`: the prefix is a name, and only the events of its own shard are needed."""
        self.prefix = prefix
        self._is_wanted = is_wanted
        self._channel = channel
        self._is_one = is_one
        self._watches: list[Watches] = []
        """Of each shard that is watched; mostly there is one."""
        self._loop = channel.loop
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._watching = self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        await self._begin()
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._events.popleft()

    async def close(self) -> None:
        """Watch no longer."""
        if self._watching and not self._ended:
            self._end()
            for watches in self._watches:
                await watches.remove(self)

    async def __aenter__(self) -> Self:
        """Once entered, no event is missed."""
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _wants(self, seen: Event) -> bool:
        """Whether an event concerns this watch."""
        is_near = not self.prefix or not seen.names or any(name.startswith(self.prefix) for name in seen.names)
        return is_near and self._is_wanted(seen)

    def _put(self, seen: Event) -> None:
        """An event happened."""
        if len(self._events) >= EVENTS_MAX:
            missed = self._events[-1].position
            self._events.clear()
            self._events.append(Event("gap", missed, seen.at_ms, 0, "", (), 0, "this watcher fell behind"))
        self._events.append(seen)
        self._wake()

    def _end(self) -> None:
        """No event will come any more."""
        self._ended = True
        self._wake()

    async def _begin(self) -> None:
        if not self._watching:
            self._watching = True
            for channel in await self._channel.homes_of(self.prefix, is_one=self._is_one):
                self._watches.append(channel.watches)
                await channel.watches.add(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
