"""The carriers to the cells of a service that has several: which one serves a name, and each with its session.

1. A name is routed to its home by the newest map that any cell has sent. A client that gets ELSEWHERE for a name
   reads that cell's map and retries at the right cell, within the timeout of the acquire.
2. A session is opened in a cell when it is first needed. A cell that is unreachable is an `Unavailable` for its
   own names, at once from the second time on, and does not affect the others. Before that is raised the other
   cells are asked for a newer map: another may have been promoted.
3. While a home moves, the request is retried after a pause, for as long as the acquire may take. A waiter joins
   the queue anew.
4. What was granted is extended and released where it was granted, wherever the home is by now.
5. The names of one request are at home in one cell, or it is refused before anything is sent.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from fencehold.drivers.resp.wire import Elsewhere, Moving, command
from fencehold.errors import FenceholdError, Overloaded, Unavailable, UsageError
from fencehold.locks.carrier import Carrier
from fencehold.locks.identity import Who
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, Trust
from fencehold.placement.cells import Cell, CellMap

if TYPE_CHECKING:
    from fencehold.client.aio.channel import Channel
    from fencehold.client.aio.shards import ShardChannels

READ = command("CELL.MAP", "STALE")
_PAUSE_S, _PAUSE_S_MAX = 0.02, 0.5
_HOPS_AT_ONCE = 3
"""How many redirects are followed without a pause: more is a loop, of maps that differ for a moment."""
_TRUSTS_MAX = 256
_decode = msgspec.json.Decoder(CellMap).decode


class CellChannels:
    """A carrier for each cell that was used. In the place of the channels to shards, which it delegates to."""

    def __init__(
        self,
        near: "Channel",
        inner: "ShardChannels | None",
        make: Callable[[Cell], tuple[Carrier, "Channel"]],
        told: tuple[str, CellMap],
    ) -> None:
        """`near`: to the cell that is connected to; `inner`: to its shards, if it has several."""
        self._near, self._inner, self._make = near, inner, make
        self.cell, self.map = told
        self._far: dict[str, tuple[Carrier, Channel]] = {}
        self._granted: OrderedDict[int, tuple[Trust, str]] = OrderedDict()
        """In which cell: by the trust of the session that has it."""

    def of(self, names: Sequence[str]) -> "Channel":
        """The channel to the cell of these names; in the near one, to their shard.

        Raises:
            UsageError: they are not of one cell, or not of one shard.
        """
        cell = self._cell_of(names)
        if cell == self.cell:
            return self._near if self._inner is None else self._inner.of(names)
        return self._to(cell)[1]

    async def newest_home_of(self, name: str) -> "Channel":
        """The channel to the shard of a name in its cell, by the newest map of shards there."""
        cell = self._cell_of((name,))
        if cell != self.cell:
            return await self._to(cell)[1].newest_home_of(name)
        return self._near if self._inner is None else await self._inner.newest_home_of(name)

    async def under(self, prefix: str) -> "list[Channel]":
        """The channels to all cells, and shards, that names with a prefix may be at home in."""
        cells = dict.fromkeys(home.cell for home in self.map.homes_under(prefix))
        found: list[Channel] = []
        for cell in cells:
            if cell != self.cell:
                found += await self._to(cell)[1].homes_of(prefix, is_one=False)
            elif self._inner is not None:
                found += await self._inner.under(prefix)
            else:
                found.append(self._near)
        return found

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None) -> Grant | None:
        """Acquire where the names are at home, following redirects."""
        clock = self._near.clock
        until = None if terms.timeout is None else clock() + terms.timeout
        cell, hops, pause_s = self._cell_of(terms.names), 0, _PAUSE_S
        refusal: Unavailable
        while True:
            left_s = None if until is None else max(0.0, until - clock())
            part = terms if left_s == terms.timeout else terms.part(terms.names, left_s)
            try:
                return self._noted(cell, await self._acquire_in(cell, part, who, owner))
            except Elsewhere as error:
                await self._learn(cell)
                cell, hops, refusal = self._next(cell, terms.names, error.cell), hops + 1, error
            except Moving as error:
                hops, refusal = _HOPS_AT_ONCE, error
            except Overloaded:
                raise
            except Unavailable as error:
                cell = await self._promoted(cell, terms.names, error)
                hops, refusal = hops + 1, error
            if hops < _HOPS_AT_ONCE:
                continue
            if until is not None and clock() + pause_s > until:
                raise refusal
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            cell = self._cell_of(terms.names)

    def release(self, grant: Grant) -> "asyncio.Future[None]":
        """Release a grant where it was made. It is done whether or not the future is awaited."""
        cell = self._cell_of_grant(grant)
        if cell == self.cell:
            return self._near.release_here(grant) if self._inner is None else self._inner.release(grant)
        return self._to(cell)[1].release(grant)

    async def extend(self, grant: Grant, ttl: float | None) -> None:
        """Move the end of a grant where it was made."""
        cell = self._cell_of_grant(grant)
        if cell != self.cell:
            await self._to(cell)[1].extend(grant, ttl)
        elif self._inner is not None:
            await self._inner.extend(grant, ttl)
        else:
            await self._near.extend_here(grant, ttl)

    async def close_others(self) -> None:
        """Close all but the near one."""
        async with AsyncExitStack() as stack:
            if self._inner is not None:
                stack.push_async_callback(self._inner.close_others)
            for carrier, _ in self._far.values():
                stack.push_async_callback(carrier.close)

    async def _acquire_in(self, cell: str, terms: Terms, who: Who, owner: bytes | None) -> Grant | None:
        if cell != self.cell:
            return await self._to(cell)[0].acquire(terms, who, owner)
        if self._inner is not None:
            return await self._inner.acquire(terms, who, owner)
        return await self._near.acquire_here(terms, who, owner)

    def _cell_of(self, names: Sequence[str]) -> str:
        cells = sorted({self.map.home_of(name).cell for name in names})
        if len(cells) > 1:
            listed = ", ".join(map(repr, names))
            raise UsageError(
                f"{listed} are at home in the cells {', '.join(cells)}: they cannot be acquired in one step"
            )
        return cells[0]

    def _next(self, cell: str, names: Sequence[str], by_word: str) -> str:
        """Where to go after a redirect by a cell: by the map, unless the map is what led to that cell."""
        by_map = self._cell_of(names)
        return by_word if by_map == cell and by_word in self.map.by_name else by_map

    def _noted(self, cell: str, grant: Grant | None) -> Grant | None:
        if grant is not None:
            self._granted[id(grant.trust)] = (grant.trust, cell)
            if len(self._granted) > _TRUSTS_MAX:
                self._granted.popitem(last=False)
        return grant

    def _cell_of_grant(self, grant: Grant) -> str:
        known = self._granted.get(id(grant.trust))
        return known[1] if known is not None else self.cell

    async def _learn(self, cell: str) -> None:
        """Take the map of a cell, if it is newer."""
        channel = self._near if cell == self.cell else self._to(cell)[1]
        found = read(await channel.read(READ))
        if found is not None:
            self.map = self.map.newest(found[1])

    async def _promoted(self, cell: str, names: Sequence[str], away: Unavailable) -> str:
        """Where names are at home now that were in a cell that is unreachable.

        Raises:
            Unavailable: still there, as far as the other cells know.
        """
        others = [each for each in (self.cell, *self._far) if each != cell]
        others += [each.name for each in self.map.cells if each.name not in (*others, cell)]
        for other in others:
            try:
                await self._learn(other)
            except FenceholdError:
                continue
            if self._cell_of(names) != cell:
                return self._cell_of(names)
            break
        listed = ", ".join(map(repr, names))
        raise Unavailable(f"the home of {listed}, cell {cell}, does not answer for it: {away}") from away

    def _to(self, cell: str) -> "tuple[Carrier, Channel]":
        if cell == self.cell:
            return self._near, self._near
        far = self._far.get(cell)
        if far is None:
            self._near.check_open()
            far = self._far[cell] = self._make(self.map.by_name[cell])
            # Shared: a task is the same owner in every cell.
            far[1].owners = self._near.owners
        return far


def read(reply: dict[bytes, Any]) -> tuple[str, CellMap] | None:
    """Which cell answered, and its map; None if it has none."""
    told = reply[b"map"]
    return (reply[b"cell"].decode(), _decode(told)) if told else None
