"""The mover: the leaders of shards bring slots where the map says, each by itself, from what they see.

1. To change the map, only the first shard is told: the rest is in the journals. A command, a leader or a node that
   dies at any moment leaves a state from which the next leaders continue.
2. Every server follows the journals of all shards. So a leader sees the newest map wherever it was taken, and
   takes it over; sees which of its own slots have drained, and closes them; sees that a slot that is to come was
   closed for it where it was, and opens it above that fence.
3. Only what is durable counts of other shards: what a leader of this same server has applied and not yet appended
   may never have happened (`Standing` is noted when an entry is durable).
4. The next map is taken only when every shard has done what this one says: such a state does not change by itself,
   so a node that saw it may rely on it, as long as the version is still the same; and the first shard checks that.
5. The volatile machines follow the map of the nodes beside them, and open at once: for their tier it is enough
   that all clients ask the same machine.
6. While a slot is on its way its free names wait, so the journals that report it are followed closely. All of them
   for a moment, when a map is about to be taken: the leader of the first shard tells the others beforehand, and a
   server that misses that learns of the map from the journal, a little later. Then, as long as a slot is to come
   to a shard led here, the journals of shards that have not closed all they are to.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from fencehold.core.commands import Command, FollowMap, OpenSlots, SealSlots
from fencehold.core.slot_moves import can_seal
from fencehold.core.state import SlotMove, Stage, State
from fencehold.journal.port import PacedJournal
from fencehold.node.node import Node
from fencehold.node.volatile import Volatile
from fencehold.placement.map import ShardMap

_LOOK_S = 0.5
"""At least how often it looks: a leader that has just taken over has not been called yet."""
_PAUSE_S = 0.002
"""At least so long between two looks: while something drains, every entry asks for one."""
_PAUSE_FACTOR = 5
"""A look that took long is followed by a pause of so many times that."""
_HURRY_S = 1.0
"""How long all journals are followed closely when a map is about to be taken, or was."""


class Standing(NamedTuple):
    """How far a shard is with the map, by what is durable of it."""

    placed: ShardMap
    slots: Mapping[int, SlotMove] = {}
    closing: int = 0
    arriving: tuple[int, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is on its way."""
        return not self.closing and not self.arriving


class Place(NamedTuple):
    """A shard's machines on this server."""

    node: Node
    volatile: Volatile


class SlotMover:
    """What one server does so that slots come where they belong."""

    def __init__(self, places: Sequence[Place], first: ShardMap, on_map: Callable[[ShardMap], None]) -> None:
        """`on_map`: called with the newest map, whenever there is one."""
        self._places = tuple(places)
        self.standings = [Standing(first) for _ in places]
        self._seen: list[tuple[State | None, int]] = [(None, 0)] * len(self._places)
        """Of which state they are, and after how many steps: one that was built anew counts from zero again."""
        self._newest, self._on_map = first, on_map
        self._asked: set[Node] = set()
        """Machines with a command in flight."""
        self._wanted = asyncio.Event()
        self._hurried_until = 0.0
        self._close = [False] * len(self._places)
        """Whether each journal is followed closely."""
        for shard, place in enumerate(self._places):
            place.node.on_steps = partial(self._on_steps, shard)

    @property
    def is_settled(self) -> bool:
        """Whether every shard has the newest map, and has done what it says."""
        return all(each.placed.version == self._newest.version and each.is_settled for each in self.standings)

    def expect(self) -> None:
        """A map is about to be taken here: let every server follow closely."""
        self._places[0].node.standbys.hurry()
        self.hurry()

    def hurry(self) -> None:
        """Follow all journals closely for a while."""
        self._hurried_until = asyncio.get_running_loop().time() + _HURRY_S
        self._set_pace()

    def _set_pace(self) -> None:
        is_hurried = asyncio.get_running_loop().time() < self._hurried_until
        awaits = any(self._places[shard].node.leads and each.arriving for shard, each in enumerate(self.standings))
        for shard, each in enumerate(self.standings):
            is_behind = each.closing or each.placed.version < self._newest.version
            closely = is_hurried or bool(awaits and is_behind)
            journal = self._places[shard].node.journal
            if closely is not self._close[shard] and isinstance(journal, PacedJournal):
                self._close[shard] = closely
                journal.follow_closely(closely)

    def _on_steps(self, shard: int) -> None:
        """Called when something is durable. Nothing is ahead of the journal then."""
        state = self._places[shard].node.replica.machine.state
        seen, steps = self._seen[shard]
        if state.placed is not None and (state is not seen or state.steps != steps):
            self._seen[shard] = state, state.steps
            self.standings[shard] = Standing(
                state.placed, dict(state.slots), len(state.draining), tuple(state.arriving)
            )
            if state.placed.version > self._newest.version:
                self._newest = state.placed
                self._on_map(state.placed)
                self.hurry()
            self._wanted.set()
        elif state.draining:
            self._wanted.set()

    async def run(self) -> None:
        """Do what there is to do, for as long as this server runs."""
        # Not the event loop's own clock: uvloop looks at it once in a turn, and a look is within one.
        now_ms = self._places[0].node.clock.now_ms
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._wanted.wait()
            self._wanted.clear()
            begun_ms = now_ms()
            self._look()
            await asyncio.sleep(max(_PAUSE_S, _PAUSE_FACTOR * (now_ms() - begun_ms) / 1000))

    def _look(self) -> None:
        self._set_pace()
        for shard, place in enumerate(self._places):
            if place.node.leads:
                self._tell(place.node, self._due(shard, place.node.replica.machine.state))
                beside = place.volatile.node
                if beside.leads:
                    self._tell(beside, _due_beside(beside.replica.machine.state, self.standings[shard].placed))

    def _due(self, shard: int, state: State) -> Command | None:
        """What the leader of a shard has to do next, if anything."""
        own = self.standings[shard]
        if own.is_settled:
            return FollowMap(self._newest) if self._newest.version > own.placed.version else None
        if own.closing and can_seal(state):
            return SealSlots()
        ready = {
            slot: move.fence
            for slot in own.arriving
            for source in self.standings
            if (move := source.slots.get(slot)) is not None and _is_for(move, shard, own.placed.version)
        }
        if ready:
            return OpenSlots(tuple(sorted(ready)), max(ready.values()), own.placed.version)
        return None

    def _tell(self, node: Node, command: Command | None) -> None:
        if command is None or node in self._asked:
            return
        self._asked.add(node)
        node.submit(command, partial(self._on_answer, node))

    def _on_answer(self, node: Node, *_: object) -> None:
        # Whatever the answer: what was not done is still to be seen as not done.
        self._asked.discard(node)
        self._wanted.set()


def _is_for(move: SlotMove, shard: int, version: int) -> bool:
    """Whether a slot was closed, elsewhere, for this shard and by this map."""
    return move.stage is Stage.CLOSED and move.to == shard and move.version == version


def _due_beside(state: State, placed: ShardMap) -> Command | None:
    """What a volatile machine has to do next, to match the map of the node beside it."""
    known = 1 if state.placed is None else state.placed.version
    if state.arriving:
        return OpenSlots(tuple(sorted(state.arriving)), 0, known)
    if state.draining:
        return SealSlots() if can_seal(state) else None
    return FollowMap(placed) if placed.version > known else None
