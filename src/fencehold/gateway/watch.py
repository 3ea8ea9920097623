"""Watches: events of one shard or of all, over as many connections as it takes.

1. Events of a shard come once each and in order; what is missing is reported as a gap of that shard. Between two
   shards there is no order.
2. Each shard is watched over a connection of its own, from its leader. A slow reader is not waited for: a bounded
   number of events is kept, then nothing more is read, and the leader sends the rest later, or as a gap.
3. That a shard is away is reported once, and that it is back; the others continue. If there is one shard only, the
   watcher is told to reconnect.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from fencehold.errors import FenceholdError, Unavailable
from fencehold.gateway.lines import Line
from fencehold.locks.places import Place, Places
from fencehold.locks.views import Event, event

AGAIN_S = 0.1
"""Between two attempts to reach a node that leads."""
_AWAY_S_MAX = 30.0
"""How long a watch of one shard looks for a leader before its client is told to retry."""
_SILENT_S = 3.0
"""How long a shard of several may be away before that is reported: less than that is a failover."""
_BEGIN_S = 3.0
"""How long the first watched shards wait for the others: on a busy machine a connection takes a while."""
_UNREAD_MAX = 512
"""Events that wait for a slow reader, of all shards; beyond, nothing is read from the connections."""


class Begun(NamedTuple):
    """The watch has begun: after these places."""

    places: Places
    shards: int


class ShardAway(NamedTuple):
    """A shard is not reachable; if `why` is empty, it is reachable again."""

    shard: int
    why: str
    place: Place | None = None
    """Where it continues."""


Told = Begun | ShardAway | Event


class Watch:
    """What one client watches: names with a prefix, in one tier."""

    def __init__(
        self, connect: Callable[[int | None], Awaitable[Line]], prefix: str, *, connect_timeout_s: float
    ) -> None:
        """`connect`: a connection to the leader of a shard; of the only one, for None."""
        self._connect = connect
        self._prefix = prefix
        self._timeout_s = connect_timeout_s

    async def one(self, after: Place | None) -> AsyncGenerator[Told, None]:
        """The events of a service with one shard.

        Raises:
            Unavailable: it is away for long.
        """
        async with aclosing(self._of(None, after, self._timeout_s, _AWAY_S_MAX)) as told:
            async for each in told:
                yield each if isinstance(each, Event) else Begun({0: each}, 1)

    async def several(self, after: Places, shards: int) -> AsyncGenerator[Told, None]:
        """The events of all shards.

        Raises:
            Unavailable: none of them is reached.
        """
        unread: asyncio.Queue[tuple[int, Place | Event | FenceholdError]] = asyncio.Queue(_UNREAD_MAX)
        tasks = [asyncio.create_task(self._pump(shard, after.get(shard), unread.put)) for shard in range(shards)]
        try:
            begun, early = await self._begin(unread, shards)
            yield Begun({**after, **begun}, shards)
            away = set(range(shards)).difference(begun)
            for shard in sorted(away):
                yield ShardAway(shard, "it is not reached yet")
            while True:
                shard, told = early.pop(0) if early else await unread.get()
                match told:
                    case Event():
                        yield told
                    case Unavailable():
                        if shard not in away:
                            away.add(shard)
                            yield ShardAway(shard, str(told))
                    case FenceholdError():
                        raise told
                    case _:
                        if shard in away:
                            away.discard(shard)
                            yield ShardAway(shard, "", told)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin(
        self, unread: "asyncio.Queue[tuple[int, Place | Event | FenceholdError]]", shards: int
    ) -> tuple[dict[int, Place], list[tuple[int, Any]]]:
        """Where each shard begins that is reached soon; and what was received meanwhile."""
        begun: dict[int, Place] = {}
        tried: set[int] = set()
        early: list[tuple[int, Any]] = []
        why: FenceholdError = Unavailable("no shard of the service was reached")
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout_s
        with suppress(TimeoutError):
            while len(tried) < shards:
                async with asyncio.timeout_at(until):
                    shard, told = await unread.get()
                if isinstance(told, Event):
                    early.append((shard, told))
                elif isinstance(told, Unavailable):
                    tried.add(shard)
                    why = told
                elif isinstance(told, FenceholdError):
                    raise told
                else:
                    tried.add(shard)
                    begun[shard] = told
                    until = min(until, loop.time() + _BEGIN_S) if len(begun) == 1 else until
        if not begun:
            raise why
        return begun, early

    async def _pump(
        self, shard: int, place: Place | None, put: Callable[[tuple[int, Any]], Awaitable[None]]
    ) -> None:
        """Pass on the events of a shard, for as long as it takes; in between, that it is away."""
        patience_s = self._timeout_s
        while True:
            try:
                async with aclosing(self._of(shard, place, patience_s, _SILENT_S)) as told:
                    async for each in told:
                        place = each.place if isinstance(each, Event) else place or each
                        await put((shard, each))
            except Unavailable as away:
                patience_s = _SILENT_S
                await put((shard, away))
            except FenceholdError as wrong:
                await put((shard, wrong))
                return

    async def _of(
        self, shard: int | None, place: Place | None, first_s: float, then_s: float
    ) -> AsyncGenerator[Place | Event, None]:
        """First where it begins, then the events of a shard, over several connections.

        Raises:
            Unavailable: it was not reached, within `first_s` at first, and `then_s` later.
        """
        is_first = True
        while True:
            async with self._watched(shard, place, first_s if is_first else then_s) as (line, begun):
                place = place or begun
                if is_first:
                    yield begun
                    is_first = False
                with suppress(Unavailable):
                    while True:
                        seen = _event_of(await line.push())
                        if seen is not None and seen.place > place:
                            place = seen.place
                            if shard is not None and seen.shard != shard:
                                seen = msgspec.structs.replace(seen, shard=shard)
                            yield seen

    @asynccontextmanager
    async def _watched(
        self, shard: int | None, place: Place | None, patience_s: float
    ) -> AsyncIterator[tuple[Line, Place]]:
        """A connection that watches, from where the last one stopped."""
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    with suppress(Unavailable):
                        line = await self._connect(shard)
                        reply = await self._begun(line, place)
                        break
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            what = "the service" if shard is None else f"shard {shard}"
            raise Unavailable(f"{what} was not reached; watch again from the last position") from None
        try:
            yield line, (reply[b"position"], reply[b"index"])
        finally:
            line.close()

    async def _begun(self, line: Line, place: Place | None) -> Any:
        more = () if place is None else ("FROM", place[0], "INDEX", place[1])
        try:
            return await line.call("LOCK.WATCH", self._prefix, *more)
        except BaseException:
            line.close()
            raise


def _event_of(push: Any) -> Event | None:
    return event(push[1]) if push[0] == b"event" else None
