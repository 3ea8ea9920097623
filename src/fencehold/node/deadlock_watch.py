"""The deadlock watch: finds circles of owners that wait for one another through several shards, and breaks each.

1. Every server follows the journals of all shards, so each sees the waits of all. One that leads a shard looks,
   now and then; while owners wait in fewer than two shards, or no wait has begun since, that costs two numbers of
   each.
2. What it finds in one round of readings may never have been at one instant. So it reads every shard once more,
   each *after* the first round: one that it leads behind an entry of its own (a barrier), the others up to where
   their journals ended when it asked their engine. A circle whose every link is still there was there in between
   (`core.wait_graph`, rule 3). Shards that are not in the circle are read before those that are: an owner that
   waits there as well is not one task. A node that is behind, or was paused, only finds it later.
3. The leader of the shard whose request is to be refused does that, and no other node: by a command that changes
   nothing if the request does not wait any more. A leader that was sealed cannot write it.
4. What it cannot read it leaves out, and then it refuses no request. Timeouts end what is never found.
5. It takes a small part of its node's time, however much waits: reading and searching are bounded, and the pause
   after a look is so many times what it took.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from fencehold.core.state import State
from fencehold.core.wait_graph import (
    WAITS_MAX,
    Circle,
    Reading,
    WaitGraph,
    is_confirmed,
    may_cross,
    read,
    refusal_of,
    victim_of,
)
from fencehold.errors import FenceholdError, Unavailable
from fencehold.node.node import Node
from fencehold.types import Position

LOOK_S = 0.5
"""How often it looks at most."""
_PAUSE_FACTOR = 50
"""A look that took long is followed by a pause of so many times that."""
_CONFIRM_S_MAX = 2.0
"""How long it waits for the journals of a circle to be read to their ends; then it looks again, later."""
_FOLLOW_S = 0.01
"""How often it is seen how far this node has followed."""
_CIRCLES_MAX = 16
"""Circles that are ended after one look."""
_SHARE_MIN = 64
"""Waits that are read of each shard in any case; together they are `WAITS_MAX`."""
_AT_ONCE_MAX = 256
"""Waits that are searched at once, in a millisecond or two; more in a thread."""


class DeadlockWatch:
    """Looks for circles through the shards of one server, and ends those that it is to end."""

    def __init__(self, nodes: Sequence[Node], look_s: float = LOOK_S) -> None:
        self._nodes = tuple(nodes)
        self._look_s = look_s
        self._seen: tuple[tuple[int, int], ...] = ()
        """What there was when it last looked and found nothing: of each shard, the last ticket, and the waits."""
        self._took_s = 0.0
        self.looks = self.refused = 0
        """How often it read what waits; and how many requests it has refused."""

    async def run(self) -> None:
        """Look, for as long as this server runs."""
        while True:
            await asyncio.sleep(max(self._look_s, _PAUSE_FACTOR * self._took_s))
            self._took_s = 0.0
            await self.look()

    async def look(self) -> None:
        """Look once."""
        states = [node.replica.machine.state for node in self._nodes]
        seen = tuple((state.ticket, len(state.waiters)) for state in states)
        if seen == self._seen or not may_cross(states) or not any(node.leads for node in self._nodes):
            return
        self.looks += 1
        waiting = [shard for shard, state in enumerate(states) if state.waiting]
        share = max(_SHARE_MIN, WAITS_MAX // len(waiting))
        shown = [await self._read(shard, partial(read, shard=shard, waits_max=share)) for shard in waiting]
        circles = await self._search([reading for reading in shown if reading is not None])
        for circle in circles:
            if self._nodes[victim_of(circle).shard].leads:
                await self._end(circle, share)
        # A circle that another leader is to end may still be there, or one through a shard that could not be read,
        # and is the same when it can be: look again.
        self._seen = () if circles or None in shown else seen

    async def _search(self, readings: list[Reading]) -> list[Circle]:
        begun_ms = self._now_ms()
        if sum(len(reading.waits) for reading in readings) > _AT_ONCE_MAX:
            # In a thread: the event loop is not blocked meanwhile.
            circles = await asyncio.to_thread(_search, readings)
        else:
            circles = _search(readings)
        self._took_s += (self._now_ms() - begun_ms) / 1000
        return circles

    async def _end(self, circle: Circle, share: int) -> None:
        """Refuse the request of a circle that is to be refused, if the circle is certain."""
        try:
            async with asyncio.timeout(_CONFIRM_S_MAX):
                readings = await self._read_again(circle, share)
        except TimeoutError:
            return
        if len(readings) == len(self._nodes) and is_confirmed(circle, WaitGraph(readings.values())):
            node = self._nodes[victim_of(circle).shard]
            refused = asyncio.get_running_loop().create_future()
            node.submit(refusal_of(circle, readings), partial(_settle, refused))
            # So that the next circle is checked when this one is over.
            await refused
            self.refused += 1

    async def _read_again(self, circle: Circle, share: int) -> dict[int, Reading]:
        """What all shards show now: those outside the circle first, in which none of its owners may wait."""
        links, parties = {step.wait.shard for step in circle}, {step.to for step in circle}
        readings: list[Reading | None] = []
        for shards in (set(range(len(self._nodes))) - links, links):
            asked = [
                self._read(shard, partial(read, shard=shard, waits_max=share, of=parties), is_current=True)
                for shard in sorted(shards)
            ]
            readings += await asyncio.gather(*asked)
        return {reading.shard: reading for reading in readings if reading is not None}

    async def _read(
        self, shard: int, question: Callable[[State], Reading], *, is_current: bool = False
    ) -> Reading | None:
        """What a shard shows: as far as this node has followed it, or as it is after this was called."""
        node, found = self._nodes[shard], asyncio.get_running_loop().create_future()
        timed = partial(self._timed, question)
        try:
            if is_current and node.leads:
                node.ask(timed, partial(_settle, found))
            else:
                if is_current:
                    await _follow_to_end(node)
                node.look(timed, partial(_settle, found))
            reading = await found
        except FenceholdError:
            return None
        return reading if isinstance(reading, Reading) else None

    def _timed(self, question: Callable[[State], Reading], state: State) -> Reading:
        begun_ms = self._now_ms()
        reading = question(state)
        self._took_s += (self._now_ms() - begun_ms) / 1000
        return reading

    def _now_ms(self) -> float:
        # Not the loop's time, which stands still within one iteration of the loop.
        return self._nodes[0].clock.now_ms()


def _search(readings: list[Reading]) -> list[Circle]:
    return list(islice(WaitGraph(readings).circles(), _CIRCLES_MAX))


async def _follow_to_end(node: Node) -> None:
    """Wait until a node has followed its journal to where that ends now, as the engine says."""
    end = node.position
    async for record in node.journal.read(after=Position(end)):
        end = record.position
    while node.position < end:
        if node.role == "waiting":
            raise Unavailable("the journal is not followed")
        await asyncio.sleep(_FOLLOW_S)


def _settle(future: "asyncio.Future[Any]", found: Any, *_: object) -> None:
    if not future.done():
        future.set_result(found)
