"""The channels to the shards of a service that has several: which one a name goes by, and each with its session.

1. A name goes to its home by the map. At first that is the map any service is made with; who is told that a name
   is another shard's reads the newest, and asks once more.
2. A session is opened in a shard when it is first needed, and kept alive like any other. A shard that is away is
   an `Unavailable` for its own names, and no concern of the others.
3. Several names of one request are of one shard, or the request is refused before anything is asked.
"""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from fencehold.drivers.resp.wire import Moved, command
from fencehold.errors import UsageError
from fencehold.locks.identity import Who
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.placement.map import ShardMap, SlotRange, even_map
from fencehold.placement.slots import slot_of

if TYPE_CHECKING:
    from fencehold.client.aio.channel import Channel

_MAP = command("SHARD.MAP")


class ShardChannels:
    """A channel for each shard that was used, the first shard's among them."""

    def __init__(self, first: "Channel", make: "Callable[[int], Channel]", shards: int) -> None:
        self._channels = {0: first}
        self._make = make
        self.map = even_map(shards)

    def of(self, names: Sequence[str]) -> "Channel":
        """The channel to the shard of these names, made if need be.

        Raises:
            UsageError: they are not of one shard.
        """
        shards = {self.map.shard_of(slot_of(name)) for name in names}
        if len(shards) > 1:
            listed = ", ".join(map(repr, names))
            raise UsageError(
                f"{listed} are names of {len(shards)} shards, and cannot be taken in one step: give them a common "
                "{tag}, as in '{order:7}.stock' and '{order:7}.payment'"
            )
        return self._to(shards.pop())

    def all(self) -> "list[Channel]":
        """The channels to all shards."""
        return [self._to(shard) for shard in range(self.map.shards)]

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None) -> Grant | None:
        """Acquire where the names are at home."""
        channel = self.of(terms.names)
        try:
            return await channel.acquire_here(terms, who, owner)
        except Moved:
            # Whoever was asked knows a newer map than this.
            self.map = self.map.newest(_read(await channel.read(_MAP)))
        return await self.of(terms.names).acquire_here(terms, who, owner)

    async def close_others(self) -> None:
        """Close all but the first."""
        async with AsyncExitStack() as stack:
            for shard, channel in self._channels.items():
                if shard:
                    stack.push_async_callback(channel.close)

    def _to(self, shard: int) -> "Channel":
        channel = self._channels.get(shard)
        if channel is None:
            channel = self._channels[shard] = self._make(shard)
            # One for all: a task is the same owner wherever it asks.
            channel.owners = self._channels[0].owners
        return channel


def _read(reply: dict[bytes, object]) -> ShardMap:
    ranges = reply[b"ranges"]
    if not isinstance(ranges, list):
        raise TypeError(f"a map has ranges, not {ranges!r}")
    return ShardMap(
        int(str(reply[b"version"])), int(str(reply[b"shards"])), tuple(SlotRange(*each) for each in ranges)
    )
