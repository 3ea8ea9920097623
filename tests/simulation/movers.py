"""Who moves slots: by lot, again and again, while everybody goes on and everything fails.

It tells the first shard the next map and leaves the rest to the service. It is told when slots are still on their
way, or that who it asked does not lead; then it asks again. When all faults are over it moves nothing more, and
what it has begun must come to an end.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from fencehold.placement.map import ShardMap, SlotRange
from fencehold.placement.plans import shifts, shown
from fencehold.placement.slots import SLOTS, slot_of
from tests.simulation.clients import tags
from tests.simulation.operators import CallLine, Operator
from tests.simulation.process import Process

EVERY_S = 1.5
COMPANY = (0, 0, 1, 40, 2_000)
"""Slots that go along, of which hardly anything is in use."""


class Mover(Operator):
    """Of one run."""

    again_s = 0.1

    def __init__(
        self,
        process: Process,
        nodes: list[str],
        random: Random,
        note: Callable[[str], None],
        *,
        shards: int,
        groups: int,
        on_move: Callable[[], None],
    ) -> None:
        super().__init__(process, nodes, shards, random, note)
        self._on_move = on_move
        self._wanted = sorted({slot_of(tag) for tag in tags(groups)} | {slot_of("permits")})

    async def _use(self, line: CallLine) -> bool:
        """Move slots until told to stop."""
        while not self._stopping:
            await self._move(line)
            await self._pause(self._random.expovariate(1 / EVERY_S))
        return True

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


def map_of(told: dict[bytes, Any]) -> ShardMap:
    """The map as `SHARD.MAP` tells it."""
    ranges = tuple(SlotRange(*each) for each in told[b"ranges"])
    return ShardMap(int(told[b"version"]), int(told[b"shards"]), ranges)
