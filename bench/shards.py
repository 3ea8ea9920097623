"""What shards cost and carry: processor time, two journals beside one, a leader killed, slots that move.

*Processor time*: connections choose a shard each, by turns, and lock names of it, one command in flight; the
server has 8 shards, or 1, under the same load; and 8 with that load for each of them. What decides is how many
commands an entry carries, as with one shard.

*Two journals*: a machine and its journal on disk in a process, fed entries of acquires and releases; then two of
them at once, as two nodes would lead. Clients and listeners are left out: here they would share the cores.

*On a cluster*: three nodes with four shards on a 3-member etcd. Clients lock names of all shards. The leader of
some of the shards is killed: how long names of the others then took beside before, and when its own were granted
again. And slots of free names move again and again: how long an acquire took while the slot of its name moved.
"""

import sys
from collections.abc import Awaitable
from pathlib import Path

from bench import shard_loads
from bench.cluster import OnCluster
from bench.contest import Benchmark, Call, Contest, Contestant, Family
from bench.ensembles import MEMBERS, Ensemble, Etcd
from bench.musts import Must, at_least, at_most, median, ratio
from bench.samples import Figures
from bench.servers import Server
from rig.nodes import NodeGroup

SHARDS = 8
WIDTHS = (64, 256)
ON_CLUSTER = 4


class ShardedFencehold(Server):
    """The embedded server with so many shards, every batch synced."""

    def __init__(self, shards: int) -> None:
        super().__init__(f"a Fencehold server with {shards} shards")
        self.shards = shards

    def command(self) -> list[str]:
        where = ["--data", str(self.folder / "data"), "--shards", str(self.shards)]
        return [sys.executable, "-m", "fencehold.cli", "serve", "--no-http", "--port", str(self.port), *where]


class OnShards(Call):
    """The load on one server, whose port and process are known only when it runs."""

    def __init__(self, server: ShardedFencehold, connections: int, operations: int, reference: str | None) -> None:
        arguments = {"shards": server.shards, "connections": connections, "operations": operations}
        super().__init__(
            _named(server.shards, connections), shard_loads.serve, arguments, isolated=True, reference=reference
        )
        self._server = server

    def setup(self) -> None:
        self.arguments.update(port=self._server.port, pid=self._server.pid)


class ShardedNodes(Ensemble):
    """Nodes with several shards on an etcd that is set up before them."""

    def __init__(self, etcd: Etcd) -> None:
        super().__init__(f"{MEMBERS} Fencehold nodes with {ON_CLUSTER} shards")
        self._etcd = etcd

    def start(self, folder: Path) -> None:
        options = ("--shards", str(ON_CLUSTER))
        self.group = NodeGroup(self._etcd.cluster.url("bench-shards"), folder, MEMBERS, options=options)
        self.group.start()

    def stop(self) -> None:
        self.group.stop()


class LeaderKilled(Contestant):
    """A node that leads a shard is killed under load, and started again when that is measured."""

    def __init__(self, nodes: ShardedNodes) -> None:
        super().__init__("a leader killed")
        self._nodes = nodes

    def round(self) -> Awaitable[Figures]:
        return shard_loads.around_a_kill(self._nodes.group, ON_CLUSTER)


def build_cost(quick: bool) -> Contest:
    """Processor time per operation."""
    one, many = ShardedFencehold(1), ShardedFencehold(SHARDS)
    operations = 8_000 if quick else 80_000
    loads = [
        OnShards(server, width, operations, None if server is one else _named(1, width))
        for width in WIDTHS
        for server in (one, many)
    ]
    # As many connections for each shard as the one shard had.
    loads.append(OnShards(many, SHARDS * WIDTHS[0], operations, _named(1, WIDTHS[0])))
    each = f"server CPU at {SHARDS} shards, {WIDTHS[0]} connections for each, times that at 1"
    return Contest(
        contestants=loads,
        rounds=3 if quick else 7,
        warmups=0,
        fixtures=[one, many],
        musts=[
            *(
                _costs_no_more(f"server CPU at {SHARDS} shards, {w} connections, times that at 1", w, w)
                for w in WIDTHS
            ),
            _costs_no_more(each, SHARDS * WIDTHS[0], WIDTHS[0]),
        ],
    )


def _costs_no_more(label: str, connections: int, beside: int) -> Must:
    return at_most(label, ratio(_named(SHARDS, connections), _named(1, beside), "cpu_us"), 1.1, "×")


def build_journals(quick: bool) -> Contest:
    """Two journals beside one."""
    arms = [
        Call(name, shard_loads.journals, {"count": count, "seconds": 1.0 if quick else 4.0}, isolated=True)
        for count, name in ((1, "one journal"), (2, "two journals"))
    ]
    return Contest(
        contestants=arms,
        rounds=3 if quick else 7,
        warmups=0,
        musts=[at_least("two journals, times one", ratio("two journals", "one journal"), 1.5, "×")],
    )


def build_cluster(quick: bool) -> Contest:
    """A leader killed, and slots that move."""
    etcd = Etcd()
    nodes = ShardedNodes(etcd)
    moving = OnCluster(
        "slots that move",
        shard_loads.while_slots_move,
        lambda: {"url": nodes.group.url},
        shards=ON_CLUSTER,
        moves=12 if quick else 40,
    )
    killed = LeaderKilled(nodes)
    return Contest(
        contestants=[moving, killed],
        rounds=2 if quick else 7,
        warmups=0,
        fixtures=[etcd, nodes],
        musts=[
            at_most("p99 of other shards after a kill, times before", median(killed.name, "others"), 1.3, "×"),
            at_most("names of the killed leader granted again", median(killed.name, "back_s"), 1.5, "s"),
            at_most("acquires in moving slots, p99", median(moving.name, "moving_p99_ms"), 50, "ms"),
        ],
    )


def _named(shards: int, connections: int) -> str:
    return f"{shards} shards, {connections} connections"


BENCHMARK = Family(
    "shards",
    "what shards cost and carry, a leader killed, slots that move",
    {
        "cost": Benchmark("shards-cost", "processor time per operation with 8 shards and with 1", build_cost),
        "journals": Benchmark("shards-journals", "two machines with journals beside one", build_journals),
        "cluster": Benchmark(
            "shards-cluster", "a shard's leader killed, and slots that move, on etcd", build_cluster
        ),
    },
)
