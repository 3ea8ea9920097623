"""The shards of one server: a node and a volatile machine for each, and who leads which.

1. Every server hosts all shards. It leads some of them and follows the journals of the others, so it knows of each
   who leads it, without asking another node.
2. The first shard is the home of the policy. The leaders of the others follow it: a change takes effect there with
   an entry of their own later, never half, and an older one never replaces a newer one.
3. The map is the newest that any shard has taken, and the leaders bring slots where it says (`slot_mover`).
4. Deadlocks through several shards are found by a watch (`deadlock_watch`).
5. Leaders spread themselves over the nodes that are alive, as `placement.spread` decides: a leader lets the node
   that is to take over go first among its standbys, tells them so, answers what it has taken, and steps back.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from fencehold.core.commands import FollowPolicy
from fencehold.node.deadlock_watch import DeadlockWatch
from fencehold.node.leader_link import BEAT_S
from fencehold.node.node import Node
from fencehold.node.slot_mover import Place, SlotMover
from fencehold.node.standbys import Member
from fencehold.node.turns import Turns
from fencehold.node.volatile import Volatile
from fencehold.placement.map import ShardMap
from fencehold.placement.slots import slot_of
from fencehold.placement.spread import SETTLE_FACTOR, Membership, Sight, handovers

_LOOK_S = 0.5
"""How often to check whether leaders are spread."""
_HEARD_S = 12 * BEAT_S
"""A standby that was heard from so recently is alive. One whose connection is lost is not among them any more."""
_LAG_MAX = 1_000
"""Entries that a node may be behind and still take over: reading more would keep all clients waiting."""


class ShardHost(NamedTuple):
    """What serves one shard here."""

    node: Node
    volatile: Volatile


class Shards:
    """All shards of a service that has several, as this server hosts them."""

    def __init__(self, hosts: Sequence[ShardHost], placed: ShardMap) -> None:
        self.hosts = tuple(hosts)
        self.map = placed
        """The newest that is known here. It is durable in some shard."""
        self.on_map: Callable[[], None] = _ignore
        """Called when there is a newer one."""
        self.mover = SlotMover([Place(*host) for host in self.hosts], placed, self._on_map)
        self.deadlocks = DeadlockWatch([host.node for host in self.hosts])
        turns = Turns()
        for host in self.hosts:
            if not host.node.journal.declared.shared:
                host.node.turns = turns
        first, *others = self.hosts
        for host in others:
            follow = partial(_follow_policy, first.node, host.node)
            first.node.on_policy.append(follow)
            host.node.on_promoted = partial(_one_by_one, host.node.on_promoted, follow)

    def _on_map(self, placed: ShardMap) -> None:
        self.map = placed
        self.on_map()

    def shard_of(self, name: str) -> int:
        """The home of a name."""
        return self.map.shard_of(slot_of(name))

    def leader_of(self, shard: int) -> Member:
        """Who leads a shard, as far as is known here."""
        node = self.hosts[shard].node
        return node.member if node.leads else node.leader

    @property
    def led(self) -> int:
        """How many are led here."""
        return sum(host.node.leads for host in self.hosts)

    def sight(self, now: float) -> Sight:
        """What is known of all nodes here, now."""
        me = self.hosts[0].node.member.name
        alive = {me}
        for host in self.hosts:
            if host.node.leads:
                standbys = host.node.standbys.all()
                alive.update(each.member.name for each in standbys if now - each.heard_at <= _HEARD_S)
            elif host.node.role == "standby":
                # One that is gone is replaced long before a membership counts as settled.
                alive.add(host.node.leader.name)
        leaders = tuple(self.leader_of(shard).name for shard in range(len(self.hosts)))
        return Sight(leaders, frozenset(alive))

    async def keep_spread(self, leader_timeout_s: float) -> None:
        """Hand over what other nodes are to lead, for as long as this server runs."""
        loop, membership = asyncio.get_running_loop(), Membership(SETTLE_FACTOR * leader_timeout_s)
        while True:
            await asyncio.sleep(_LOOK_S)
            sight = self.sight(loop.time())
            if membership.is_settled(sight, loop.time()):
                await self._hand_over(sight, loop)

    async def _hand_over(self, sight: Sight, loop: asyncio.AbstractEventLoop) -> None:
        me = self.hosts[0].node.member.name
        due = {shard: to for shard, to in handovers(sight, me).items() if self._is_ready(shard, to)}
        if not due:
            return
        # All of them get their new ranks with the next heartbeat, and the one that is preferred goes first.
        await asyncio.sleep(2 * BEAT_S)
        if self.sight(loop.time()) == sight:
            for shard in due:
                self.hosts[shard].node.cede()

    def _is_ready(self, shard: int, to: str) -> bool:
        """Let a node be the first among the standbys of a shard, if it follows closely enough."""
        node = self.hosts[shard].node
        lags = [node.position - each.position for each in node.standbys.all() if each.member.name == to]
        return bool(lags) and min(lags) <= _LAG_MAX and node.standbys.prefer(to)


def _follow_policy(first: Node, node: Node) -> None:
    book = first.rulebook
    if book is not None and node.leads and book.revision > node.replica.machine.state.policy.revision:
        node.submit(FollowPolicy(book.policy), _ignore)


def _one_by_one(*calls: Callable[[], None]) -> None:
    for call in calls:
        call()


def _ignore(*_: object) -> None:
    """No caller waits for the answer."""
