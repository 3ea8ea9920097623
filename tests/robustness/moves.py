"""Slots that move under load, on real nodes and an etcd, with nodes killed and paused in the middle of it.

`python -m tests.robustness.moves 20 [--seed N] [--calm]`: so many moves drawn by lot. Clients contend for a few
names, and others lock names that nobody else wants. In each move some slots of these names, and as many others as
come along, go to another shard. `--calm` makes no faults, and measures how long free names in moving slots had to
wait.

What must not be seen, of each name, wherever it was granted:

1. a fence that is not greater than all before it;
2. two holders: one that was granted while another had it and had not asked to release it;
3. a waiter that is overtaken by one who asked much later;
4. a request that never ends.
"""

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fencehold import aio
from fencehold.cli.wire import connect, map_of
from fencehold.errors import FenceholdError
from fencehold.placement import plans
from fencehold.placement.map import ShardMap
from fencehold.placement.slots import slot_of
from rig.etcd import EtcdCluster
from rig.nodes import FenceholdNode, NodeGroup

SHARDS = 4
WANTED = tuple(f"wanted:{number}" for number in range(6))
CONTENDERS = 4
"""Tasks that want each of those."""
FREE = tuple(f"free:{number}" for number in range(400))
PROBES = 4
SETTLE_S = 90.0
ENDED_S = 90.0
OVERTAKEN_S = 10.0
"""Who asked so much later is not to be granted first; a request may be on its way to a paused node for a while."""
PAUSE_S = (0.3, 2.0)
FAULTS = ("nothing", "kill", "kill two", "pause", "pause two")


class Claim(NamedTuple):
    """What became of one request, in seconds of this machine's clock."""

    name: str
    asked_at: float
    granted_at: float
    fence: int
    released_at: float
    """When it was about to ask for the release."""


class Round(NamedTuple):
    """One move."""

    fault: str
    slots: frozenset[int]
    begun_at: float
    ended_at: float


class Load:
    """Clients at work, and what they saw."""

    def __init__(self, url: str, seed: int) -> None:
        self._url, self._lots = url, random.Random(seed)
        self.claims: list[Claim] = []
        self.failed = 0
        self._over = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        """Let it end what it has begun."""
        self._over.set()

    async def run(self) -> None:
        """Work until it is over; raises if a request has not ended a while after that."""
        async with contextlib.AsyncExitStack() as stack:
            # Failovers are waited for, and sessions outlast them.
            clients = [
                await stack.enter_async_context(aio.connect(self._url, ttl=40, grace=20, connect_timeout=30))
                for _ in range(3)
            ]
            tasks = [self._contend(clients[task % 3], name) for name in WANTED for task in range(CONTENDERS)]
            tasks += [self._probe(clients[probe % 3], FREE[probe::PROBES]) for probe in range(PROBES)]
            running = [asyncio.create_task(task) for task in tasks]
            await self._over.wait()
            async with asyncio.timeout(ENDED_S):
                await asyncio.gather(*running)

    async def _contend(self, client: aio.Client, name: str) -> None:
        while not self.is_over:
            await self._claim(client, name, self._lots.uniform(0.001, 0.02))
            await asyncio.sleep(self._lots.uniform(0, 0.05))

    async def _probe(self, client: aio.Client, names: tuple[str, ...]) -> None:
        while not self.is_over:
            for name in names:
                await self._claim(client, name, 0.0)
                await asyncio.sleep(0.002)

    async def _claim(self, client: aio.Client, name: str, hold_s: float) -> None:
        asked_at = time.monotonic()
        try:
            async with client.lock(name, timeout=60) as hold:
                granted_at = time.monotonic()
                await asyncio.sleep(hold_s)
                self.claims.append(Claim(name, asked_at, granted_at, hold.fence, time.monotonic()))
        except FenceholdError:
            self.failed += 1


def violations(claims: list[Claim]) -> list[str]:
    """What is wrong with what was seen."""
    wrong: list[str] = []
    by_name: defaultdict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_name[claim.name].append(claim)
    for name, own in sorted(by_name.items()):
        own.sort(key=lambda claim: claim.granted_at)
        for before, after in pairwise(own):
            if after.fence <= before.fence:
                wrong.append(f"{name}: fence {after.fence} came after {before.fence}")
            if after.granted_at < before.released_at:
                wrong.append(f"{name}: granted with {after.fence} while held with {before.fence}")
        latest = 0.0
        for claim in own:
            if claim.asked_at < latest - OVERTAKEN_S:
                wrong.append(f"{name}: {claim.fence} was overtaken by {latest - claim.asked_at:.1f} s")
            latest = max(latest, claim.asked_at)
    return wrong


class Mover:
    """Moves, drawn by lot, and faults in the middle of them."""

    def __init__(self, nodes: NodeGroup, seed: int, calm: bool) -> None:
        self._nodes, self._lots, self._calm = nodes, random.Random(seed), calm

    def move(self) -> Round:
        """One move, from the first question to the end of it. It blocks."""
        lots = self._lots
        with contextlib.closing(self._wire()) as wire:
            placed = map_of(wire)
        assert placed is not None
        names = lots.sample(WANTED + FREE, lots.choice((3, 60, 200)))
        start = lots.randrange(16_000)
        slots = {*map(slot_of, names), *range(start, start + lots.choice((0, 1, 300)))}
        after = placed.moved(sorted(slots), lots.randrange(SHARDS))
        if after.ranges == placed.ranges:
            after = placed.moved(sorted(slots), (placed.shard_of(min(slots)) + 1) % SHARDS)
        begun_at = time.monotonic()
        self._tell(placed, after)
        fault = "nothing" if self._calm else lots.choice(FAULTS)
        time.sleep(lots.uniform(0, 0.05))
        self._strike(fault)
        self._await_settled(after.version)
        ended_at = time.monotonic()
        for node in self._nodes.nodes:
            if not node.is_running:
                node.start()
        moved = frozenset(slot for slot in slots if placed.shard_of(slot) != after.shard_of(slot))
        return Round(fault, moved, begun_at, ended_at)

    def _strike(self, fault: str) -> None:
        what, _, two = fault.partition(" ")
        victims = self._lots.sample(self._nodes.nodes, 2 if two else 1)
        if what == "kill":
            for node in victims:
                node.kill()
        elif what == "pause":
            self._pause(victims)

    def _pause(self, victims: list[FenceholdNode]) -> None:
        for node in victims:
            node.pause()
        time.sleep(self._lots.uniform(*PAUSE_S))
        for node in victims:
            node.resume()

    def _wire(self) -> Any:
        until = time.monotonic() + SETTLE_S
        while True:
            with contextlib.suppress(FenceholdError):
                wire = connect(self._nodes.url, shard=0)
                if wire.leads:
                    return wire
                wire.close()
            assert time.monotonic() < until, "nobody leads the first shard"
            time.sleep(0.05)

    def _tell(self, before: ShardMap, after: ShardMap) -> None:
        changes = [word for each in plans.shifts(before, after) for word in (each.to, plans.shown(each.slots))]
        until = time.monotonic() + SETTLE_S
        while True:
            # The same map may be told again: it is taken once.
            with contextlib.suppress(FenceholdError), contextlib.closing(self._wire()) as wire:
                wire.call("SHARD.PLACE", after.version, *changes)
                return
            assert time.monotonic() < until, "the map is not taken"
            time.sleep(0.05)

    def _await_settled(self, version: int) -> None:
        until = time.monotonic() + SETTLE_S
        told: dict[str, Any] = {}
        while time.monotonic() < until:
            with contextlib.suppress(FenceholdError), contextlib.closing(self._wire()) as wire:
                told = wire.call("SHARD.MOVES")
                if told["settled"] and told["version"] == version:
                    return
            time.sleep(0.02)
        raise AssertionError(f"slots are still on their way: {told}")


def pauses_s(claims: list[Claim], rounds: list[Round]) -> tuple[list[float], list[float]]:
    """How long free names waited while their slots moved; and while others did."""
    moving: list[float] = []
    staying: list[float] = []
    for claim in claims:
        if claim.name.startswith("free:"):
            for each in rounds:
                if claim.asked_at <= each.ended_at and claim.granted_at >= each.begun_at:
                    took_s = claim.granted_at - claim.asked_at
                    (moving if slot_of(claim.name) in each.slots else staying).append(took_s)
    return moving, staying


async def moved(folder: Path, moves: int, seed: int, *, calm: bool = False) -> tuple[list[Round], Load]:
    """So many moves, and what clients saw."""
    etcd = EtcdCluster(folder / "etcd", 1)
    etcd.start()
    try:
        with NodeGroup(etcd.url("moves"), folder / "nodes", options=("--shards", str(SHARDS))) as nodes:
            load, mover = Load(nodes.url, seed), Mover(nodes, seed, calm)
            working = asyncio.create_task(load.run())
            rounds: list[Round] = []
            try:
                for number in range(moves):
                    await asyncio.sleep(0.5)
                    rounds.append(await asyncio.to_thread(mover.move))
                    took_s = rounds[-1].ended_at - rounds[-1].begun_at
                    said = (
                        f"{number + 1}/{moves} {len(rounds[-1].slots)} slots, {rounds[-1].fault}: {took_s:.2f} s"
                    )
                    sys.stderr.write(said + "\n")
            finally:
                load.end()
                await working
            return rounds, load
    finally:
        etcd.stop()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.moves", description=__doc__)
    parser.add_argument("moves", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calm", action="store_true", help="make no faults; measure pauses")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix=".robustness-", dir=Path.cwd()) as folder:
        rounds, load = asyncio.run(moved(Path(folder), given.moves, given.seed, calm=given.calm))
    wrong = violations(load.claims)
    sys.stdout.write(
        f"{len(rounds)} moves of {sum(len(each.slots) for each in rounds)} slots, {len(load.claims)} grants, "
        f"{load.failed} requests failed, {len(wrong)} things wrong\n"
    )
    moving, staying = pauses_s(load.claims, [each for each in rounds if each.fault == "nothing"])
    for what, times in (("moving", moving), ("staying", staying)):
        if len(times) > 1:
            p50, p99, worst = statistics.median(times), statistics.quantiles(times, n=100)[98], max(times)
            told = f"p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, worst {worst * 1000:.1f} ms"
            sys.stdout.write(f"free names of {what} slots, {len(times)} acquires: {told}\n")
    for line in wrong[:20]:
        sys.stdout.write(f"  wrong: {line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
