"""The channels to the shards of a service that has several: which one serves a name, and each with its session.

1. A name is routed to its home by the map. At first that is the map any service is made with; a client that gets
   MOVED for a name reads the newest map, and retries there. While its slot is moving, the request is retried
   with growing pauses, within the timeout; a try (timeout 0), for a few seconds.
2. A session is opened in a shard when it is first needed, and kept alive like any other; one timer serves all
   (`keep_alive_timer`). A shard that is down is an `Unavailable` for its own names, and does not affect others.
3. A task or thread is the same owner in all shards, by which deadlocks through several are found (see `returns`).
4. What was granted is released and extended where it was granted, wherever its names are by now.
5. Several names of one request are of one shard, or the request is refused before anything is sent; unless it
   says `across_shards`. Then they are acquired shard by shard in one order, all or nothing within one timeout,
   and what is held is joint (`client.joint_grant`): to lose a part is to lose all.
6. The order is that of the shards, and so of one map: clients with different maps could wait for one another for
   ever. So a request that holds some of its names while it waits for others checks now and then whether any of
   them has moved; then it releases what it holds, and starts again by the newest map.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fencehold.client.joint_grant import JointGrant
from fencehold.client.keep_alive_timer import KeepAliveTimer
from fencehold.client.returns import Returns
from fencehold.drivers.resp.wire import Arriving, Elsewhere, Moved, Moving, command
from fencehold.errors import FenceholdError, Unavailable, UsageError
from fencehold.locks.identity import Who
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.placement.map import ShardMap, SlotRange, even_map

if TYPE_CHECKING:
    from fencehold.client.aio.channel import Channel

Told = TypeVar("Told")

_MAP = command("SHARD.MAP")
_PAUSE_S, _PAUSE_S_MAX = 0.002, 0.05
"""Between two tries for a name whose slot is moving: at first, and in the end."""
_PAUSE_SHARE = 0.25
"""Of the time that it has taken so far."""
_MOVING_S = 5.0
"""How long a try is repeated for a name whose slot is moving, before it reports that nothing happened."""
_LOOK_S = 1.0
"""How often a waiter that holds some of its names looks for a newer map."""


class _BegunAnew(Exception):
    """Names of several shards are to be acquired again, from the first on."""


class _Patience(NamedTuple):
    """How long a whole request is retried for names that move; its parts have no time of their own.

    A part may have no time left. That does not make it a try, which would be repeated for seconds.
    """

    over_at: float
    is_try: bool


class ShardChannels:
    """A channel for each shard that was used, the first shard's among them."""

    def __init__(self, first: "Channel", make: "Callable[[int], Channel]", shards: int) -> None:
        self._channels = {0: first}
        self._returns = Returns(first.clock)
        self._keep_alive_timer = KeepAliveTimer(first.loop)
        self._keep_alive_timer.join(first.driver)
        self._make = make
        self.map = even_map(shards)
        self._looked_at = -inf

    def of(self, names: Sequence[str]) -> "Channel":
        """The channel to the shard of these names, made if need be.

        Raises:
            UsageError: they are not of one shard.
        """
        shards = set(self._split(names)) if len(names) > 1 else {self.map.shard_of_name(names[0])}
        if len(shards) > 1:
            listed = ", ".join(map(repr, names))
            raise UsageError(
                f"{listed} are names of {len(shards)} shards, and cannot be taken in one step: give them a common "
                "{tag}, as in '{order:7}.stock' and '{order:7}.payment'; or, in the SDK, pass "
                "across_shards=True to take them in several steps"
            )
        return self._to(shards.pop())

    def all(self) -> "list[Channel]":
        """The channels to all shards."""
        return [self._to(shard) for shard in range(self.map.shards)]

    async def under(self, prefix: str) -> "list[Channel]":
        """The channels to all shards: names with a prefix are in any of them."""
        return self.all()

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None) -> Grant | None:
        """Acquire where the names are at home; names of several shards only if the terms say so."""
        if terms.spans:
            return await self._acquire_jointly(terms, who, owner)
        return await self._acquire_together(terms, who, owner, _ignore, self._patience(terms))

    def _patience(self, terms: Terms) -> _Patience:
        """That of a request which is made now."""
        limit_s = inf if terms.timeout is None else terms.timeout or _MOVING_S
        return _Patience(self._channels[0].clock() + limit_s, is_try=terms.timeout == 0)

    async def _acquire_together(
        self, terms: Terms, who: Who, owner: bytes | None, check: Callable[[], object], patience: _Patience
    ) -> Grant | None:
        """Acquire names of one shard in one step. `check`: raises if that is no longer wanted."""
        clock, asked = self._channels[0].clock, terms
        asked_at = clock()
        while True:
            check()
            channel = self.of(terms.names)
            try:
                return await self._acquire_at(channel, asked, who, owner)
            except (Elsewhere, Moving):
                # In another cell: no map of shards knows that.
                raise
            except Moved as moved:
                await self._read_map(channel)
                check()
                is_elsewhere = not isinstance(moved, Arriving) and self.of(terms.names) is not channel
                waited_s = clock() - asked_at
                if clock() >= patience.over_at:
                    if not patience.is_try:
                        return None
                    raise Unavailable(f"the slot of {terms.label} has been moving for {waited_s:.0f} s") from moved
            if not is_elsewhere:
                await _rest(waited_s)
            if terms.timeout:
                asked = terms.waiting(max(0.0, patience.over_at - clock()))

    async def _acquire_at(self, channel: "Channel", terms: Terms, who: Who, owner: bytes | None) -> Grant | None:
        """Acquire in one shard, as the caller's owner; as a new one while a release of the caller is in flight."""
        owner = owner or channel.owners.of(who)
        if self._returns.has_elsewhere(owner, channel.protocol.session.trust):
            owner = channel.owners.anew(who)
        grant = await channel.acquire_here(terms, who, owner)
        if grant is not None:
            grant.owner = owner
        return grant

    async def ask(self, name: str, ask: "Callable[[Channel], Awaitable[Told]]") -> Told:
        """Send a request to the home of a name, by the newest map if need be. What was refused did not happen."""
        clock = self._channels[0].clock
        asked_at = clock()
        while True:
            channel = self.of((name,))
            try:
                return await ask(channel)
            except (Elsewhere, Moving):
                raise
            except Moved as moved:
                await self._read_map(channel)
                waited_s = clock() - asked_at
                if waited_s >= _MOVING_S:
                    raise Unavailable(f"the slot of {name!r} has been moving for {waited_s:.0f} s") from moved
                is_elsewhere = not isinstance(moved, Arriving) and self.of((name,)) is not channel
            if not is_elsewhere:
                await _rest(waited_s)

    async def newest_home_of(self, name: str) -> "Channel":
        """The channel to the shard of a name, by the newest map that the leader of its last known shard has."""
        await self._read_map(self.of((name,)))
        return self.of((name,))

    async def _read_map(self, channel: "Channel") -> None:
        """Adopt a newer map, if the node at the other end has one."""
        self.map = self.map.newest(_read(await channel.read(_MAP)))

    def release(self, grant: Grant) -> "asyncio.Future[None]":
        """Release a grant, or all its parts. It is done whether or not the future is awaited."""
        if not isinstance(grant, JointGrant):
            released = self._granted_by(grant).release_here(grant)
            self._returns.begin(grant, released)
            return released
        grant.on_releasing()
        return asyncio.ensure_future(_done([self.release(part) for part in grant.parts if not part.ending]))

    async def extend(self, grant: Grant, ttl: float | None) -> None:
        """Move the end of a grant, or of all its parts."""
        for part in grant.parts if isinstance(grant, JointGrant) else (grant,):
            await self._granted_by(part).extend_here(part, ttl)

    def _granted_by(self, grant: Grant) -> "Channel":
        """The channel to the shard that a grant came from: its names may have moved since."""
        home = self._channels.get(self.map.shard_of_name(grant.terms.names[0]), self._channels[0])
        if home.protocol.session.trust is grant.trust:
            return home
        came = (each for each in self._channels.values() if each.protocol.session.trust is grant.trust)
        return next(came, home)

    async def _acquire_jointly(self, terms: Terms, who: Who, owner: bytes | None) -> Grant | None:
        """Acquire shard by shard, in the one order that every client uses, so that no two wait for one another."""
        clock, patience = self._channels[0].clock, self._patience(terms)
        while True:
            try:
                return await self._acquire_parts(terms, who, owner, patience)
            except _BegunAnew:
                # A move does not end a try: it is repeated for as long as one for a single name.
                if clock() >= patience.over_at:
                    return None

    async def _acquire_parts(
        self, terms: Terms, who: Who, owner: bytes | None, patience: _Patience
    ) -> Grant | None:
        """Acquire all parts by the map that is known now, or none: whatever comes between, nothing is kept.

        Raises:
            _BegunAnew: some of the names have moved, or what was acquired was lost while others were waited for.
        """
        clock, planned = self._channels[0].clock, self._split(terms.names)
        parts: list[Grant] = []

        def check() -> None:
            if self._split(terms.names) != planned:
                raise _BegunAnew

        try:
            for _, names in sorted(planned.items()):
                asked = terms.part(tuple(names), terms.timeout and max(0.0, patience.over_at - clock()))
                async with self._looking(parts, check):
                    part = await self._acquire_together(asked, who, owner, check, patience)
                if part is None:
                    return None
                parts.append(part)
            if len(parts) == 1:
                return parts.pop()
            if any(part.safe_for(clock()) <= 0 for part in parts):
                raise _BegunAnew
            taken, parts = parts, []
            return JointGrant(terms, taken, self.release)
        finally:
            for part in parts:
                if not part.ending:
                    self.release(part)

    @asynccontextmanager
    async def _looking(self, parts: Sequence[Grant], check: Callable[[], object]) -> AsyncIterator[None]:
        """While waiting for a part with others held: check now and then whether the names have moved."""
        if not parts:
            yield
            return
        try:
            async with asyncio.timeout(None) as patience:
                looking = asyncio.create_task(self._look(self._granted_by(parts[-1]), check, patience))
                try:
                    yield
                finally:
                    looking.cancel()
        except TimeoutError:
            if not patience.expired():
                raise
            raise _BegunAnew from None

    async def _look(self, channel: "Channel", check: Callable[[], object], patience: asyncio.Timeout) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._read_map_lately(channel)
                check()
            except _BegunAnew:
                patience.reschedule(asyncio.get_running_loop().time())
                return
            except FenceholdError:
                # The map is read again soon.
                continue

    async def _read_map_lately(self, channel: "Channel") -> None:
        """Read the map, unless another task has just done so: however many wait, one read is enough."""
        now = self._channels[0].clock()
        if now - self._looked_at >= _LOOK_S / 2:
            self._looked_at = now
            await self._read_map(channel)

    def _split(self, names: Sequence[str]) -> dict[int, list[str]]:
        """The names by their shards."""
        found: dict[int, list[str]] = {}
        for name in names:
            found.setdefault(self.map.shard_of_name(name), []).append(name)
        return found

    async def close_others(self) -> None:
        """Close all but the first."""
        async with AsyncExitStack() as stack:
            for shard, channel in self._channels.items():
                if shard:
                    stack.push_async_callback(channel.close)

    def _to(self, shard: int) -> "Channel":
        channel = self._channels.get(shard)
        if channel is None:
            self._channels[0].check_open()
            channel = self._channels[shard] = self._make(shard)
            self._keep_alive_timer.join(channel.driver)
            # Shared: a task is the same owner in every shard.
            channel.owners = self._channels[0].owners
        return channel


async def _rest(waited_s: float) -> None:
    """Back off: a leader does not know the newest map yet, or something of the slot is held where it was."""
    # A share of the time it took so far: most moves are short, and no caller then waits much too long.
    await asyncio.sleep(min(_PAUSE_S_MAX, max(_PAUSE_S, _PAUSE_SHARE * waited_s)))


async def _done(releases: "list[asyncio.Future[None]]") -> None:
    """Wait until all are done; then raise what the first of them did."""
    for outcome in await asyncio.gather(*releases, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _ignore() -> None:
    """There is nothing to check."""


def _read(reply: dict[bytes, object]) -> ShardMap:
    ranges = reply[b"ranges"]
    if not isinstance(ranges, list):
        raise TypeError(f"a map has ranges, not {ranges!r}")
    return ShardMap(
        int(str(reply[b"version"])), int(str(reply[b"shards"])), tuple(SlotRange(*each) for each in ranges)
    )
