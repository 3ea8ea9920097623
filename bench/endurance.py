"""Minutes of full load on three nodes and an etcd: whether its database stays small, and the nodes' memory flat.

One client process keeps 256 requests in flight all the time; each round only looks, every few seconds. Memory is
flat when it does not grow once the caches are full: judged on the second half, by its slope and beside the first
half. `BENCH_MINUTES` says how long, 10 by default.
"""

import asyncio
import os
from collections.abc import Sequence
from itertools import combinations
from statistics import median
from time import perf_counter

import uvloop

from bench import isolated, loads, procfs, v3lock
from bench.contest import Benchmark, Contest, Contestant, Fixture
from bench.ensembles import MEMBERS, Etcd, Nodes
from bench.musts import at_least, at_most
from bench.samples import Figures, Results
from bench.wire import Wire

MINUTES, QUICK_MINUTES = 10.0, 1.5
EVERY_S = 5.0
CONNECTIONS, IN_FLIGHT = 4, 64
_SLACK_S = 60.0
"""How much longer the load may run than is planned for the looking."""
_RESIDENT = "resident_mb"
NAME = f"full load, {CONNECTIONS}x{IN_FLIGHT}"


def full_load(url: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """Keep so many requests in flight, so long; nothing is kept of them but counts."""
    from fencehold import aio  # noqa: PLC0415

    async def main() -> Figures:
        clients = [await aio.connect(url) for _ in range(connections)]
        turns = [loads.fencehold_turn(client) for client in clients]
        until = perf_counter() + seconds
        stretches = [await loads.drive(turns, in_flight, EVERY_S)]
        while perf_counter() < until:
            stretches.append(await loads.drive(turns, in_flight, EVERY_S))
        return {"ops_per_s": median(figures["ops_per_s"] for figures in stretches)}

    return uvloop.run(main())


class Load(Fixture):
    """The load, in a process of its own, from before the first round until after the last."""

    def __init__(self, nodes: Nodes, seconds: float) -> None:
        super().__init__("the load")
        self._nodes, self._seconds = nodes, seconds
        self._running: asyncio.Task[dict[str, float]] | None = None

    async def setup(self) -> None:
        arguments = {"connections": CONNECTIONS, "in_flight": IN_FLIGHT, "seconds": self._seconds}
        call = isolated.call(full_load, {"url": self._nodes.group.url, **arguments})
        self._running = asyncio.create_task(call)

    async def check(self) -> None:
        """Raises what ended the load, if it has ended."""
        if self._running is not None and self._running.done():
            raise RuntimeError(f"the load ended before its time, with {await self._running}")

    async def teardown(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)


class Looks(Contestant):
    """What can be seen from outside while the load runs."""

    def __init__(self, etcd: Etcd, nodes: Nodes, load: Load) -> None:
        super().__init__(NAME)
        self._etcd, self._nodes, self._load = etcd, nodes, load

    def setup(self) -> None:
        # Called what they are now: if another comes to lead, a must says so.
        leader = self._nodes.group.leader()
        self._memory_names = {
            node.name: f"{'leader' if node is leader else 'standby'}_{node.name}_{_RESIDENT}"
            for node in self._nodes.group.nodes
        }

    async def round(self) -> Figures:
        before = await self._info()
        started = perf_counter()
        await asyncio.sleep(EVERY_S)
        await self._load.check()
        after = await self._info()
        grants = after["fence"] - before["fence"]
        return {
            # A grant and its release.
            "ops_per_s": 2 * grants / (perf_counter() - started),
            "appends_per_s": (after["appends"] - before["appends"]) / (perf_counter() - started),
            "epoch": after["epoch"],
            **self._databases(),
            **self._memory(),
            "snapshots": await self._snapshots(),
        }

    async def _info(self) -> dict[str, int]:
        wire = await Wire.open(self._nodes.group.leader().port)
        try:
            return await wire.info()
        finally:
            await wire.close()

    def _databases(self) -> Figures:
        """The largest of the members': its file, and what of that is in use."""
        told = [self._etcd.cluster.status(index) for index in range(MEMBERS)]
        return {
            "file_mb": max(int(status["dbSize"]) for status in told) / 1e6,
            "in_use_mb": max(int(status["dbSizeInUse"]) for status in told) / 1e6,
        }

    def _memory(self) -> Figures:
        nodes = self._nodes.group.nodes
        return {self._memory_names[node.name]: procfs.resident_mb(node.process.pid) for node in nodes}

    async def _snapshots(self) -> int:
        """How many there were so far: so often was the pointer to the newest put."""
        from fencehold.drivers.etcd import messages, services  # noqa: PLC0415

        channel = v3lock.channel(self._etcd.leader())
        try:
            found = await services.KV(channel).Range(messages.RangeRequest(key=self._nodes.keys().snapshot))
            return int(found.kvs[0].version) if found.kvs else 0
        finally:
            await channel.close()


def slope(values: Sequence[float]) -> float:
    """By how much they grow from one to the next: the median over all pairs, which no few of them can sway.

    Raises:
        ZeroDivisionError: fewer than two tell no slope.
    """
    slopes = [(values[b] - values[a]) / (b - a) for a, b in combinations(range(len(values)), 2)]
    return median(slopes) if slopes else 1 / 0


def growth_mb_per_min(results: Results) -> float:
    """How fast the node that grew fastest grew in the second half."""
    halves = (series[len(series) // 2 :] for series in _memories(results))
    return max(slope(half) * 60 / EVERY_S for half in halves)


def late_to_early(results: Results) -> float:
    """The second half's memory, times that of the first half after warming up; of the node where it is most."""
    return max(
        median(series[len(series) // 2 :]) / median(series[len(series) // 5 : len(series) // 2])
        for series in _memories(results)
    )


def _memories(results: Results) -> list[list[float]]:
    """Of each node, in the order of time."""
    figures = [figure for figure in results.figures(NAME) if figure.endswith(_RESIDENT)]
    return [[value for _, value in sorted(results.series(NAME, figure).items())] for figure in figures]


def _most(results: Results, figure: str) -> float:
    return max(results.series(NAME, figure).values())


def _replaced(results: Results) -> float:
    epochs = results.series(NAME, "epoch").values()
    return max(epochs) - min(epochs)


def build(quick: bool) -> Contest:
    """The contest."""
    seconds = 60 * float(os.environ.get("BENCH_MINUTES") or (QUICK_MINUTES if quick else MINUTES))
    etcd = Etcd()
    nodes = Nodes(etcd)
    load = Load(nodes, seconds * 1.5 + _SLACK_S)
    return Contest(
        contestants=[Looks(etcd, nodes, load)],
        rounds=max(10, round(seconds / EVERY_S)),
        fixtures=[etcd, nodes, load],
        musts=[
            at_most("the largest file of etcd's database", lambda r: _most(r, "file_mb"), 200, "MB"),
            at_most("growth of a node's memory in the second half", growth_mb_per_min, 1, "MB per minute"),
            at_most("a node's memory in the second half, times that in the first", late_to_early, 1.1, "×"),
            at_most("leaders that were replaced under the load", _replaced, 0, "leaders"),
            at_least("snapshots meanwhile", lambda r: _most(r, "snapshots"), 1, "snapshots"),
        ],
    )


BENCHMARK = Benchmark("endurance", "ten minutes of full load: etcd's database and the nodes' memory", build)
