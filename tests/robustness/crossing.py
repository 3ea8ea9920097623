"""Deadlocks through shards that different nodes lead, on three nodes and an etcd, one of them killed meanwhile.

`python -m tests.robustness.crossing 20`: so many rounds. In each, two clients take names of two shards crosswise:
each waits for what the other holds. In every other round the leader of one of the shards is killed in between,
when both hold their first name and neither has asked for its second.

What must be seen in each round: exactly one of them is refused, with the whole circle, and the other is granted
what it waited for. How long the refusal took is told.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple

from fencehold import aio
from fencehold.cli.wire import connect
from fencehold.errors import Deadlock, FenceholdError
from fencehold.placement.map import even_map
from rig.etcd import EtcdCluster
from rig.nodes import FenceholdNode, NodeGroup
from rig.processes import await_true

SHARDS = 3
LOW, HIGH = 0, 2
"""The shards that are crossed. Who asks against their order is refused."""
WAIT_S = 60.0
"""What a request would wait, if nobody found the circle."""
SPREAD_S = 60.0


class Crossing(NamedTuple):
    """One round."""

    killed: str
    """The node that was killed, if one was."""
    refused_s: float
    """From when both asked for their second names to the refusal."""
    wrong: tuple[str, ...]


def names_in(shard: int) -> Iterator[str]:
    """Names that are at home in a shard, one after the other."""
    placed = even_map(SHARDS)
    return (name for name in map(str, count()) if placed.shard_of_name(name) == shard)


class Stage:
    """Nodes that lead a shard each, and two clients."""

    def __init__(self, nodes: NodeGroup, clients: tuple[aio.Client, aio.Client]) -> None:
        self._nodes, self._clients = nodes, clients
        self._names = zip(names_in(LOW), names_in(HIGH), strict=True)
        self._victims = cycle((LOW, HIGH))

    def leaders(self) -> list[str]:
        """The nodes that lead each shard, as the leader of the first knows it; none, if that cannot be asked."""
        with contextlib.suppress(FenceholdError), contextlib.closing(connect(self._nodes.url, shard=0)) as wire:
            return list(wire.call("SHARD.MAP")["nodes"])
        return []

    def is_spread(self) -> bool:
        """Whether the shards that are crossed are led by different nodes that run."""
        running, led = {node.name for node in self._nodes.nodes if node.is_running}, self.leaders()
        return bool(led) and len({led[LOW], led[HIGH]} & running) == 2

    async def cross(self, *, is_struck: bool) -> Crossing:
        """One round. All nodes run when it is over."""
        await asyncio.to_thread(await_true, self.is_spread, "the shards have different leaders", SPREAD_S)
        low, high = next(self._names)
        hold_one, go = asyncio.Barrier(3), asyncio.Event()

        async def take(client: aio.Client, first: str, second: str) -> tuple[Deadlock | None, float]:
            async with client.lock(first, timeout=WAIT_S):
                await hold_one.wait()
                await go.wait()
                try:
                    async with client.lock(second, timeout=WAIT_S):
                        return None, time.monotonic()
                except Deadlock as deadlock:
                    return deadlock, time.monotonic()

        one, other = self._clients
        tasks = [asyncio.create_task(take(one, low, high)), asyncio.create_task(take(other, high, low))]
        await hold_one.wait()
        killed = await asyncio.to_thread(self._kill) if is_struck else None
        asked_at = time.monotonic()
        go.set()
        (kept, _), (refused, refused_at) = await asyncio.gather(*tasks)
        if killed is not None:
            await asyncio.to_thread(killed.start)
        wrong = tuple(_wrong(kept, refused, {low: LOW, high: HIGH}))
        return Crossing("" if killed is None else killed.name, refused_at - asked_at, wrong)

    def _kill(self) -> FenceholdNode:
        leader = self.leaders()[next(self._victims)]
        node = next(node for node in self._nodes.nodes if node.name == leader)
        node.kill()
        return node


def _wrong(kept: Deadlock | None, refused: Deadlock | None, homes: dict[str, int]) -> Iterator[str]:
    """What is wrong with how a round ended, of who asked in the order of the shards and who did not."""
    if kept is not None:
        yield f"who asked in the order of the shards was refused: {kept}"
    if refused is None:
        yield "nobody was refused who asked against the order of the shards"
    elif {link.name: link.shard for link in refused.circle} != homes or len(refused.circle) != len(homes):
        yield f"the circle is that of {homes}, and was told as {refused.circle}"


async def crossed(folder: Path, rounds: int) -> list[Crossing]:
    """So many rounds; in every other one a leader is killed."""
    etcd = EtcdCluster(folder / "etcd", 1)
    etcd.start()
    try:
        with NodeGroup(etcd.url("crossing"), folder / "nodes", options=("--shards", str(SHARDS))) as nodes:
            async with (
                aio.connect(nodes.url, ttl=40, grace=20, connect_timeout=30) as one,
                aio.connect(nodes.url, ttl=40, grace=20, connect_timeout=30) as other,
            ):
                stage = Stage(nodes, (one, other))
                return [await stage.cross(is_struck=number % 2 == 1) for number in range(rounds)]
    finally:
        etcd.stop()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.crossing", description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=20)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix=".robustness-", dir=Path.cwd()) as folder:
        rounds = asyncio.run(crossed(Path(folder), given.rounds))
    for each in rounds:
        killed = f"{each.killed} killed, " if each.killed else ""
        sys.stdout.write(
            f"{killed}refused after {each.refused_s:.2f} s{''.join(map('; {}'.format, each.wrong))}\n"
        )
    return 1 if any(each.wrong for each in rounds) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
