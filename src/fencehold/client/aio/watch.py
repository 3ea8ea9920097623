"""Watching: events of names with a prefix, as an async iterator."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fencehold.drivers.resp.wire import command
from fencehold.errors import UsageError
from fencehold.locks.views import WHOLE, Event, event, gap

if TYPE_CHECKING:
    from fencehold.client.aio.channel import Channel

EVENTS_MAX = 10_000
"""Events that wait to be looked at, for each watch. Beyond, the oldest are dropped and a `gap` says so."""


class Watches:
    """All watches of a client: one stream of events, handed to whom it concerns."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._watches: list[Watch] = []
        channel.protocol.on_event = self._on_event
        channel.protocol.subscriptions = self._subscriptions

    async def add(self, watch: "Watch") -> None:
        """Begin to hand events to a watch, from now on or from its place."""
        self._watches.append(watch)
        reply = await self._channel.read(command("LOCK.WATCH", watch.prefix, *_since(watch._place)))
        # From here on nothing is missed, also if the connection is lost before the first event.
        watch._place = watch._place or (int(reply[b"position"]), int(reply.get(b"index", WHOLE)))

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
        for watch in self._watches:
            if watch._wants(seen):
                watch._put(seen)
            if watch._place is not None:
                watch._place = max(watch._place, seen.place)

    def _subscriptions(self) -> list[bytes]:
        """What a new connection must be told; events since the last one seen follow, if they are still kept."""
        prefixes = dict.fromkeys(watch.prefix for watch in self._watches)
        # All prefixes of a connection are told in one order, from the place of the one that was told least.
        places = [watch._place for watch in self._watches if watch._place is not None]
        since = _since(min(places)) if places else ()
        return [command("LOCK.WATCH", prefix, *since) for prefix in prefixes]


def _since(place: tuple[int, int] | None) -> tuple[str | int, ...]:
    return () if place is None else ("FROM", place[0], "INDEX", place[1])


class Watch:
    """Events of names with a prefix. Iterate over it; leave it with `async with`, or by `close`."""

    def __init__(
        self,
        channel: "Channel",
        watches: Watches,
        prefix: str,
        after: tuple[int, int] | int | None = None,
        *,
        is_wanted: Callable[[Event], bool] = lambda _: True,
    ) -> None:
        self.prefix = prefix
        self._place = _begins_after(after)
        """Of the last event that came, or after which they begin; None: from now on."""
        self._is_wanted = is_wanted
        self._watches = watches
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
            await self._watches.remove(self)

    async def __aenter__(self) -> Self:
        """Once entered, no event is missed."""
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _wants(self, seen: Event) -> bool:
        """Whether an event concerns this watch, and was not told before."""
        if self._place is not None and seen.place <= self._place:
            return False
        is_near = not self.prefix or not seen.names or any(name.startswith(self.prefix) for name in seen.names)
        return is_near and self._is_wanted(seen)

    def _put(self, seen: Event) -> None:
        """An event happened."""
        if len(self._events) >= EVENTS_MAX:
            missed = gap(self._events, "this watcher fell behind")
            self._events.clear()
            self._events.append(missed)
        self._events.append(seen)
        self._wake()

    def _end(self) -> None:
        """No event will come any more."""
        self._ended = True
        self._wake()

    async def _begin(self) -> None:
        if not self._watching:
            self._watching = True
            await self._watches.add(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _begins_after(after: tuple[int, int] | int | None) -> tuple[int, int] | None:
    """After which event a watch begins; a position alone means all of it."""
    place = (after, WHOLE) if isinstance(after, int) else after
    if place is not None and not (len(place) == 2 and all(isinstance(part, int) and part >= 0 for part in place)):
        raise UsageError(f"after= is the place of an event, (position, index), or a position, not {after!r}")
    return place
