"""Watching: events of names with a prefix, as an async iterator.

1. Events of a shard come once each and in order. Between two shards there is no order.
2. A watcher that resumes gives a place in each shard. `places` are those of the events that were delivered, not
   of those that arrived and are pending; they are written as `locks.places` says, as HTTP does.
3. Events that are no longer known are a gap, of one shard. So is all of a journal that was made anew, as by a
   server in memory that was restarted: the watch continues from its newest position. A watch after a place that
   the service has not reached is refused.
4. All watches of a connection share one stream. One that begins after a place rewinds the stream to there, for
   all of them; the others skip by their places what they had. The service says when it has rewound (`again`).
   Events before that are not for the one that begins: they come once more, in their order.
5. A watch that could not begin, or was cancelled while it did, may be begun again: then it continues with the
   shards that are left.
6. Names with a prefix may be in any shard, so all are watched. A watch of one name watches the home of that name.
   When slots move, or a connection was lost that may have missed it, it looks up where the name is, watches that
   shard as well from then on, and looks it up again: before it watched there, the name may have moved on.
   A gap says that something may have happened there before: a watcher of one name reads it again then, and has
   missed nothing. If it is not permitted to watch there, the watcher gets the error.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from fencehold.drivers.resp.wire import command
from fencehold.errors import Refused, Unavailable, UsageError
from fencehold.locks.places import Place, Places, places_text, read_places
from fencehold.locks.views import WHOLE, Event, Missing, event, gap

if TYPE_CHECKING:
    from fencehold.client.aio.channel import Channel

EVENTS_MAX = 10_000
"""Pending events of each watch. Beyond this, the oldest are dropped and a `gap` says so."""

_BEHIND = "this watcher fell behind"
_ANEW = "the service has another journal than before"
_SEEK_AGAIN_S = 0.5
"""Between two attempts to look up where a name is."""


class Watches:
    """All watches of a client in one shard: one stream of events, dispatched to the watches concerned."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._watches: list[Watch] = []
        self._joining: Watch | None = None
        """The one that begins after a place, until the stream is rewound to there."""
        self._early: deque[Event] = deque()
        """Events that came meanwhile."""
        self._turn = asyncio.Lock()
        """One rewinds the stream at a time, as `again` does not say for which watch it is."""
        channel.protocol.on_event = self._on_event
        channel.protocol.on_map = self._on_map
        channel.protocol.on_again = self._on_again
        channel.protocol.on_behind, channel.protocol.on_anew = self._on_behind, self._on_anew
        channel.protocol.subscriptions = self._subscriptions

    @property
    def shard(self) -> int:
        return self._channel.protocol.settings.shard or 0

    async def add(self, watch: "Watch") -> None:
        """Begin to dispatch events to a watch, from now on or from its place. If that fails, it gets none."""
        if watch._places.get(self) is None:
            await self._add(watch)
        else:
            # Before its turn it gets nothing: events that are repeated for another one are not for this one.
            async with self._turn:
                await self._add(watch)

    async def _add(self, watch: "Watch") -> None:
        self._watches.append(watch)
        try:
            reply = await self._begun(watch)
        except BaseException:
            self.forget(watch)
            self._leave_soon(watch.prefix)
            raise
        begun = int(reply[b"position"]), int(reply.get(b"index", WHOLE))
        # From here on nothing is missed, also if the connection is lost before the first event.
        watch._told.setdefault(self.shard, begun)
        watch._places[self] = max(watch._places.get(self, begun), begun)

    async def _begun(self, watch: "Watch") -> Any:
        since = watch._places.get(self)
        words = command("LOCK.WATCH", watch.prefix, *_since(since))
        if since is None:
            return await self._channel.read(words)
        self._joining, self._early = watch, deque()
        try:
            reply = await self._channel.read(words)
        except BaseException:
            self._joining = None
            raise
        if self._joining is watch:
            # Nothing is repeated: what came happened after its place. Or an older service does not say `again`.
            self._joining = None
            for seen in self._early:
                self._hand(watch, seen)
        return reply

    def forget(self, watch: "Watch") -> None:
        """Dispatch no more events to it."""
        self._watches.remove(watch)

    async def leave(self, prefix: str) -> None:
        """Unwatch a prefix at the service, if no other watch has it."""
        if not any(other.prefix == prefix for other in self._watches):
            await self._channel.read(command("LOCK.UNWATCH", prefix))

    def _leave_soon(self, prefix: str) -> None:
        """As `leave`, for a watch that was cancelled while it began: the service may know of it."""
        if not any(other.prefix == prefix for other in self._watches):
            with suppress(UsageError):
                self._channel.tell(command("LOCK.UNWATCH", prefix))

    def end(self) -> None:
        """The client is closed."""
        for watch in self._watches:
            watch._end()

    def _on_map(self) -> None:
        for watch in self._watches:
            watch._look_for_home()

    def _on_event(self, push: dict[bytes, Any]) -> None:
        seen = event(push)
        if self.shard:
            seen = msgspec.structs.replace(seen, shard=self.shard)
        for watch in self._watches:
            if watch is self._joining:
                if len(self._early) >= EVENTS_MAX:
                    self._early = deque([gap(self._early, _BEHIND)])
                self._early.append(seen)
            else:
                self._hand(watch, seen)

    def _hand(self, watch: "Watch", seen: Event) -> None:
        place = watch._places.get(self)
        if (place is None or seen.place > place) and watch._wants(seen):
            watch._put(seen)
        # Also for one whose reply is being processed: events that came in the same read get here first.
        watch._places[self] = seen.place if place is None else max(place, seen.place)

    def _on_again(self, place: Place) -> None:
        """Events from now on are those after that place, whatever came before."""
        # It may be for one that was cancelled.
        if self._joining is not None and place <= self._joining._places[self]:
            self._joining = None

    def _subscriptions(self) -> list[bytes]:
        """The commands for a new connection; events since the last one seen follow, if they are still kept."""
        prefixes = dict.fromkeys(watch.prefix for watch in self._watches)
        # All prefixes of a connection share one stream, from the earliest place of any of them.
        places = [watch._places[self] for watch in self._watches if self in watch._places]
        since = _since(min(places)) if places else ()
        self._joining = None
        # Looked up after these: what is pushed before them does not reach this connection.
        self._on_map()
        return [command("LOCK.WATCH", prefix, *since) for prefix in prefixes]

    def _on_behind(self) -> list[bytes]:
        """The journal was made anew, and ends before what was seen: forget that, and begin from now on."""
        known = [watch for watch in self._watches if self in watch._places]
        for watch in known:
            del watch._places[self]
        # This comes for each prefix, and all are subscribed to again at once.
        return self._subscriptions() if known else []

    def _on_anew(self, place: Place) -> None:
        """Events from now on are those after that place of another journal."""
        for watch in self._watches:
            known = watch._places.get(self, (0, WHOLE))
            if known < place:
                watch._put(_gap_of_shard(self.shard, known[0] + 1, place[0], _ANEW))
                watch._places[self] = place


def _since(place: Place | None) -> tuple[str | int, ...]:
    return () if place is None else ("FROM", place[0], "INDEX", place[1])


class Watch:
    """Events of names with a prefix. Iterate over it; leave it with `async with`, or by `close`."""

    def __init__(
        self,
        channel: "Channel",
        prefix: str,
        after: str | tuple[int, int] | int | None = None,
        *,
        is_wanted: Callable[[Event], bool] = lambda _: True,
        is_one: bool = False,
    ) -> None:
        """`is_one`: the prefix is a name, and only the events of its own shard are needed."""
        self.prefix = prefix
        self._after = _begins_after(after)
        """After which they begin: a place, or the text of several; None: from now on."""
        self._told: dict[int, Place] = {}
        """Of the last event that was delivered, or after which they begin; by shard."""
        self._shards = 0
        """How many it watches; 0: it has not begun, or watches several cells."""
        self._places: dict[Watches, Place] = {}
        """Of the last event that arrived, or after which they begin; in each shard that is watched."""
        self._is_wanted = is_wanted
        self._channel = channel
        self._is_one = is_one
        self._watches: list[Watches] = []
        """Of each shard that is watched; mostly there is one."""
        self._loop = channel.loop
        self._events: deque[tuple[Place, Event]] = deque()
        """Pending events, each with the place up to which it covers its shard."""
        self._waiter: asyncio.Future[None] | None = None
        self._watching = self._ended = False
        self._beginning = asyncio.Lock()
        self._failure: Refused | None = None
        """Why it cannot watch in the shard that its name has moved to."""
        self._seeking: asyncio.Task[None] | None = None
        """Looks up where the name is, for a watch of one."""
        self._seek_again = False

    @property
    def places(self) -> str:
        """Up to where it has delivered the events of each shard: `watch(after=…)` resumes from there.

        Raises:
            UsageError: it has not begun, or watches several cells: those have no common order of shards.
        """
        if not self._shards:
            raise UsageError("a watch has places once it has begun, unless it is of several cells")
        return places_text(self._told, self._shards)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        await self._begin()
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            self._waiter = self._loop.create_future()
            await self._waiter
        place, seen = self._events.popleft()
        if seen.kind == "gap":
            # It may be the first event of another journal, whose places are smaller.
            self._told[seen.shard] = place
        else:
            self._told[seen.shard] = max(place, self._told.get(seen.shard, place))
        return seen

    async def close(self) -> None:
        """Stop watching."""
        if not self._ended:
            self._end()
            if self._seeking is not None:
                await asyncio.gather(self._seeking, return_exceptions=True)
            # At first all: a shard that is unreachable must not prevent leaving the others.
            for watches in self._watches:
                watches.forget(self)
            for watches in self._watches:
                await watches.leave(self.prefix)

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
            self._drop()
        self._events.append((seen.place, seen))
        self._wake()

    def _drop(self) -> None:
        """Replace all pending events by a gap of each shard."""
        dropped: dict[int, list[Event]] = {}
        # It may end within a position, the rest of which is still to come: so its place is that of the last event.
        places = {each.shard: place for place, each in self._events}
        for _, each in self._events:
            dropped.setdefault(each.shard, []).append(each)
        self._events.clear()
        for shard, events in sorted(dropped.items()):
            self._events.append((places[shard], gap(events, _BEHIND)))

    def _end(self) -> None:
        """No more events will come."""
        self._ended = True
        if self._seeking is not None:
            self._seeking.cancel()
        self._wake()

    async def _begin(self) -> None:
        if not self._watching:
            async with self._beginning:
                if not self._watching and not self._ended:
                    await self._begin_in(await self._channel.homes_of(self.prefix, is_one=self._is_one))

    async def _begin_in(self, channels: "list[Channel]") -> None:
        """Watch in these, unless it does already."""
        try:
            after = self._places_in(channels)
        except UsageError:
            self._ended = True
            raise
        for channel in channels:
            watches = channel.watches
            if watches not in self._watches:
                if watches.shard in after:
                    self._places.setdefault(watches, after[watches.shard])
                    self._told[watches.shard] = after[watches.shard]
                await watches.add(self)
                if self._ended:
                    # Closed meanwhile.
                    watches.forget(self)
                    await watches.leave(self.prefix)
                    return
                self._watches.append(watches)
        self._shards = len(channels) if _is_one_service(channels) else 0
        self._watching = True
        self._look_for_home()

    def _look_for_home(self) -> None:
        """Watch in the shard that its name is in by now, if it is a watch of one name, and has begun."""
        if self._is_one and self._watching and not self._ended:
            self._seek_again = True
            if self._seeking is None or self._seeking.done():
                self._seeking = self._loop.create_task(self._follow_home())

    async def _follow_home(self) -> None:
        while self._seek_again:
            self._seek_again = False
            try:
                home = (await self._channel.newest_home_of(self.prefix)).watches
                if home not in self._watches:
                    await self._watch_too(home)
            except Unavailable:
                self._seek_again = True
                await asyncio.sleep(_SEEK_AGAIN_S)
            except Refused as refused:
                self._failure = refused
                self._wake()
            except UsageError:
                # The client is closed, or was inherited by a fork.
                return

    async def _watch_too(self, home: Watches) -> None:
        await home.add(self)
        self._watches.append(home)
        self._put(_moved(home.shard, self._places[home]))
        # The name was looked up before this shard would have reported the next move.
        self._seek_again = True

    def _places_in(self, channels: "list[Channel]") -> Places:
        """After which place it begins in each shard.

        Raises:
            UsageError: `after` has another number of places.
        """
        after = self._after
        if after is None:
            return {}
        if len(channels) > 1 and not isinstance(after, str):
            said = "after= is the place of an event in one shard, and this service has several"
            raise UsageError(f"{said}: say the `places` of a watch")
        if not _is_one_service(channels):
            raise UsageError("after= is of the shards of one cell, and these names are in several")
        if isinstance(after, str):
            return read_places(after, len(channels))
        return {channels[0].watches.shard: after}

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _moved(shard: int, place: Place) -> Event:
    """What may have happened to a name in the shard it has moved to, before this was watched."""
    return _gap_of_shard(shard, place[0], place[0], "the name has moved")


def _gap_of_shard(shard: int, first: int, last: int, detail: str) -> Event:
    return Event("gap", last, 0, 0, "", (), 0, detail, shard=shard, missing=Missing(first, last, 0))


def _is_one_service(channels: "list[Channel]") -> bool:
    """Whether these are all shards of one service, in their order."""
    return [channel.watches.shard for channel in channels] == list(range(len(channels)))


def _begins_after(after: str | tuple[int, int] | int | None) -> str | tuple[int, int] | None:
    """After which event a watch begins; a position alone means all of it. A text is parsed when it begins."""
    if isinstance(after, str):
        return after
    place = (after, WHOLE) if isinstance(after, int) else after
    if place is not None and not (len(place) == 2 and all(isinstance(part, int) and part >= 0 for part in place)):
        known = "the places of a watch, the place of an event, (position, index), or a position"
        raise UsageError(f"after= is {known}, not {after!r}")
    return place
