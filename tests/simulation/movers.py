"""Who moves slots: by lot, again and again, while everybody goes on and everything fails.

It tells the first shard the next map and leaves the rest to the service. It is told when slots are still on their
way, or that who it asked does not lead; then it asks again. When all faults are over it moves nothing more, and
what it has begun must come to an end.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from fencehold.placement.map import ShardMap, SlotRange
from fencehold.placement.plans import shifts, shown
from fencehold.placement.slots import SLOTS, slot_of
from tests.simulation.administrator import ANSWER_S, CallLine
from tests.simulation.nodes import PORT
from tests.simulation.process import Process

EVERY_S = 1.5
AGAIN_S = 0.1
COMPANY = (0, 0, 1, 40, 2_000)
"""Slots that go along, of which hardly anything is in use."""


class Mover:
    """Of one run."""

    def __init__(
        self,
        process: Process,
        nodes: list[str],
        groups: int,
        random: Random,
        on_move: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self.process = process
        self._nodes, self._random, self._on_move, self._note = nodes, random, on_move, note
        self._wanted = sorted({slot_of(f"{{{group}}}") for group in range(groups)} | {slot_of("permits")})
        self._stopping = False
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Begin no more moves."""
        self._stopping = True
        self._stopped.set()

    async def run(self) -> None:
        """Move slots until told to stop."""
        while not self._stopping:
            try:
                await self._move_some()
            except (OSError, TimeoutError) as error:
                self._note(f"{error!r}")
            await self._pause(AGAIN_S)

    async def _move_some(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(ANSWER_S):
            line: CallLine
            _, line = await loop.create_connection(CallLine, self._random.choice(self._nodes), PORT)
        try:
            await line.call("HELLO", 3, "SHARD", 0)
            while not self._stopping:
                await self._move(line)
                await self._pause(self._random.expovariate(1 / EVERY_S))
        finally:
            if line.transport is not None:
                line.transport.abort()

    async def _move(self, line: CallLine) -> None:
        known = map_of(await line.call("SHARD.MAP"))
        after = self._next(known)
        changes = [word for each in shifts(known, after) for word in (each.to, shown(each.slots))]
        if changes:
            await line.call("SHARD.PLACE", after.version, *changes)
            self._note(f"moves slots by version {after.version}: {changes}")
            self._on_move()

    def _next(self, known: ShardMap) -> ShardMap:
        random = self._random
        first = random.randrange(SLOTS)
        company = range(first, min(SLOTS, first + random.choice(COMPANY)))
        slots = random.sample(self._wanted, random.randint(1, len(self._wanted)))
        return known.moved((*slots, *company), random.randrange(known.shards))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return


def map_of(told: dict[bytes, Any]) -> ShardMap:
    """The map as `SHARD.MAP` tells it."""
    ranges = tuple(SlotRange(*each) for each in told[b"ranges"])
    return ShardMap(int(told[b"version"]), int(told[b"shards"]), ranges)
