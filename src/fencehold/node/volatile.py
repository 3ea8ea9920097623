"""The volatile machine: a second machine beside the node's own, over memory, for locks that only save work.

1. Nothing of it waits for the journal: it is a node over the memory engine, with a leader, sessions,
   queues and events of its own. The two machines know nothing of one another's names and sessions.
2. It serves where the node beside it leads, and from then on. Elsewhere it refuses as that node does, with the
   address of the one that leads: all requests for a name of this tier meet at one machine.
3. A node that is deposed forgets it at once, before it disconnects all clients. What leads next, here or
   elsewhere, begins with an empty machine, as after a restart: no session of an earlier *life* is known.
4. Fences and positions of a life begin at the time of day in microseconds. No machine grants or writes that often,
   so they are above those of every earlier life, as far as the clocks of the nodes agree: a late release meets no
   new holder, and a watcher that comes back is told what it missed.
5. A node that is alone is never deposed. While its journal fails and is tried again, this machine keeps serving.
6. It follows the policy of the node beside it: begins with it, and is told of each change when that is durable.
7. Anything but `stop` that ends it is as much a failure as one of the node beside it.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from fencehold.core.commands import Command, Entry, FollowMap, FollowPolicy, FoundShard, OpenSlots, RaiseFence
from fencehold.core.events import Event
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.policy import for_efficiency
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Unavailable
from fencehold.journal.port import Snapshot
from fencehold.node.leader import Bounds
from fencehold.node.node import Node
from fencehold.placement.map import even_map
from fencehold.runtime.calendar import Calendar, now_us, unix_ms
from fencehold.runtime.clock import Clock
from fencehold.types import Position, Tier


class Life(Node):
    """One life of the volatile machine; before it begins and after it ended it refuses."""

    tier = Tier.EFFICIENCY

    def __init__(self, beside: Node, clock: Clock, limits: Limits, bounds: Bounds, calendar: Calendar) -> None:
        self._store = MemoryStore()
        journal = MemoryJournal(self._store)
        super().__init__(journal, clock, limits=limits, bounds=bounds, calendar=calendar, home=beside.home)
        self._beside = beside
        self.speech = beside.speech
        self.on_broken = self._tell_beside
        # Between its first entry and its first command the policy may have changed.
        self.on_promoted = self.follow_policy

    def begin_at(self, number: int) -> None:
        """Let its positions and fences be above a number. To be called before `run`."""
        machine = Machine(self._limits)
        machine.state.position = number - 1
        first: tuple[Command, ...] = (RaiseFence(number),)
        if self.home is not None:
            first += (FoundShard(*self.home),)
        if self._beside.rulebook is not None:
            first += (FollowPolicy(for_efficiency(self._beside.rulebook.policy)),)
        placed = self._beside.replica.machine.state.placed
        if self.home is not None and placed is not None:
            before, shard = even_map(placed.shards), self.home.shard
            own = [slot for each in placed.ranges_of(shard) for slot in range(each.first, each.last + 1)]
            came = tuple(slot for slot in own if before.shard_of(slot) != shard)
            first += (FollowMap(placed), OpenSlots(came, 0, placed.version))
        machine.apply(number, Entry(0, first))
        position = Position(number)
        self._store.snapshot = Snapshot(position, b"".join(machine.snapshot()))
        self._store.trimmed = position

    def follow_policy(self) -> None:
        """The node beside it has another policy: let it hold here, too."""
        book = self._beside.rulebook
        if book is not None and self.leads and book.revision != self.replica.machine.state.policy.revision:
            self.submit(FollowPolicy(for_efficiency(book.policy)), _ignore)

    @property
    def role(self) -> str:
        """`leader` while it serves; else that of the node beside it, or `waiting` for its turn."""
        if self.leads:
            return "leader"
        return "waiting" if self._beside.leads else self._beside.role

    def _tell_beside(self, event: Event, principal: str) -> None:
        """Report a force-release here as one of the node beside it."""
        self._beside.on_broken(event, principal)

    def refusal(self) -> Unavailable:
        """Why it answers nothing: mostly that another node leads."""
        return Unavailable("not up yet") if self._beside.leads else self._beside.refusal()


class Volatile:
    """The lives of the volatile machine of one server, one after the other."""

    def __init__(
        self,
        beside: Node,
        clock: Clock,
        *,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
        now_us: Callable[[], int] = now_us,
        calendar: Calendar = unix_ms,
    ) -> None:
        self._new_life = partial(Life, beside, clock, limits or Limits(), bounds or Bounds(), calendar)
        self._now_us = now_us
        self._last = 0
        """The greatest fence or position of the lives before this one: the time of day may have been set back."""
        self._due = asyncio.Event()
        """It is to serve, or to stop."""
        self._stopping = False
        self.on_life: Callable[[Life], None] = _ignore
        """Called with each further life, before it begins."""
        self.node = self._new_life()
        beside.on_promoted = self.begin
        beside.on_policy.append(self._follow_policy)

    def begin(self) -> None:
        """The node beside it leads: serve, unless it does already."""
        if not self._due.is_set():
            self.node.begin_at(max(self._now_us(), self._last + 1))
            self._due.set()

    def _follow_policy(self) -> None:
        self.node.follow_policy()

    def forget(self) -> None:
        """The node beside it leads no more: end this life. The next one waits to begin.

        Connections to this one are to be closed.
        """
        self._due.clear()
        self.node.stop()
        machine = self.node.replica.machine
        self._last = max(self._last, machine.fence, machine.position)
        if not self._stopping:
            self.node = self._new_life()
            self.on_life(self.node)

    def stop(self) -> None:
        """Have `run` return when all that was taken is answered."""
        self._stopping = True
        self.node.stop()
        self._due.set()

    async def run(self) -> None:
        """Serve whenever it is to, until stopped.

        Raises: what trying again cannot fix.
        """
        while not self._stopping:
            await self._due.wait()
            # Not so if it was forgotten before this had its turn.
            if self._due.is_set():
                await self.node.run()


def _ignore(*_: object) -> None:
    """No caller waits for the answer."""
