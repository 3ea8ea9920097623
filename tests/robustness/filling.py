"""Somebody fills the journal: with what is taken, and with what is refused. It never is full, and lifts by itself.

``python -m tests.robustness.filling --quota-mib 64 --rounds 2000`` floods one node over an etcd with a quota of
that size, and says how large its database became; the tests do the same, briefly, and on other engines.

In each round of a flood a session is opened and hundreds of acquires come, with words and names as long as they
may be. Meanwhile a session is renewed and something is released: that succeeds in every round. New work is refused
with `Overloaded`. In the end all is released, and the node takes new work again, by itself.
"""

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fencehold.core.commands import Acquire, Command, OpenSession, Release
from fencehold.core.outcomes import Granted, Opened, Refused, Released, Renewed
from fencehold.engines.etcd import EtcdJournal
from fencehold.errors import Unavailable
from fencehold.journal.port import Journal
from fencehold.node.node import Node
from fencehold.node.room import Level
from fencehold.runtime.clock import MonotonicClock
from rig.etcd import EtcdCluster

BATCH = 200
_LIFTS_S = 30.0
_TTL_MS = 3_600_000


class Flood:
    """One client that asks for all it can get, and one that keeps what it has."""

    def __init__(self, node: Node, seed: int = 7) -> None:
        self.node = node
        self.told: Counter[str] = Counter()
        """What acquires and openings came to."""
        self.failed: list[object] = []
        """What became of releases and renewals that were not done."""
        self.absent: set[str] = set()
        """Names whose acquire certainly did not happen, as it was told."""
        self.levels: set[Level] = set()
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._sessions: list[int] = []
        self._holds: list[Granted] = []

    async def begin(self) -> None:
        """Come in before the crowd."""
        opened = await self.ask(OpenSession(_TTL_MS, secret="first"))
        self._sessions.append(opened.session)

    async def ask(self, command: Command) -> Any:
        """What became of a command."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.node.submit(command, lambda outcome, _: answered.set_result(outcome))
        return await answered

    async def round(self, *, name_bytes: int = 250) -> None:
        """Ask for much at once; release something, and renew, beside it."""
        opening = self.ask(OpenSession(_TTL_MS, secret="s", meta="m" * 1_000))
        asks = [self._greedy(name_bytes) for _ in range(BATCH)]
        opened, _, _, *outcomes = await asyncio.gather(
            opening, self._renew(), self._release_one(), *map(self.ask, asks)
        )
        for ask, outcome in zip(asks, outcomes, strict=True):
            if isinstance(outcome, Unavailable):
                self.absent.update(ask.names)
        for outcome in (opened, *outcomes):
            self.told[type(outcome).__name__] += 1
        if isinstance(opened, Opened):
            self._sessions = [self._sessions[0], *self._sessions[-20:], opened.session]
        self._holds += [outcome for outcome in outcomes if isinstance(outcome, Granted)]
        self.levels.add(self.node.room.level)

    def wrong(self) -> set[str]:
        """Names that are held though that did not happen, or are not though they were granted."""
        held = self.node.replica.machine.state.held.keys()
        return (self.absent & held) | {name for hold in self._holds for name in hold.names if name not in held}

    async def release_all(self) -> None:
        """Give everything back."""
        await asyncio.gather(*(self._release(hold) for hold in self._holds))
        self._holds.clear()

    async def lifted(self) -> None:
        """Wait until new work is taken again."""
        async with asyncio.timeout(_LIFTS_S):
            while not isinstance(outcome := await self.ask(OpenSession(_TTL_MS, secret="new")), Opened):
                assert isinstance(outcome, Unavailable), outcome
                await asyncio.sleep(0.05)

    def _greedy(self, name_bytes: int) -> Acquire:
        number = next(self._numbers)
        count = self._random.choice((1, 1, 1, 32))
        names = tuple(f"{number}-{at}-".ljust(name_bytes, "x") for at in range(count))
        return Acquire(self._random.choice(self._sessions), names, meta="y" * 1_000)

    async def _renew(self) -> None:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.node.renew(self._sessions[0], lambda outcome, _: answered.set_result(outcome))
        self._check(await answered, Renewed)

    async def _release_one(self) -> None:
        if self._holds:
            await self._release(self._holds.pop(self._random.randrange(len(self._holds))))

    async def _release(self, hold: Granted) -> None:
        self._check(await self.ask(Release(hold.session, hold.names, hold.fence)), Released)

    def _check(self, outcome: object, expected: type) -> None:
        if not isinstance(outcome, expected):
            self.failed.append(outcome)


@asynccontextmanager
async def flooded(journal: Journal) -> AsyncIterator[Flood]:
    """A node that serves, and whoever floods it."""
    node = Node(journal, MonotonicClock())
    running = asyncio.create_task(node.run())
    await asyncio.wait_for(node.ready(), 20)
    flood = Flood(node)
    try:
        await flood.begin()
        yield flood
    finally:
        node.stop()
        await asyncio.gather(running, return_exceptions=True)


async def accepted(journal: Journal, rounds: int) -> Flood:
    """Flood with what is taken, until it is refused, and for so many rounds more; then release all."""
    async with flooded(journal) as flood:
        async with asyncio.timeout(120):
            while not flood.told["Overloaded"]:
                await flood.round()
        for _ in range(rounds):
            await flood.round()
        await flood.release_all()
        await flood.lifted()
        return flood


async def refused(journal: Journal, rounds: int) -> Flood:
    """Flood with what is refused, for it is too long."""
    async with flooded(journal) as flood:
        for _ in range(rounds):
            await flood.round(name_bytes=20_000)
        await flood.lifted()
        assert flood.told[Refused.__name__] or flood.told["LimitExceeded"], flood.told
        return flood


@asynccontextmanager
async def small_etcd(folder: Path, quota_mib: int) -> AsyncIterator[EtcdCluster]:
    cluster = EtcdCluster(folder, 1, flags=["--quota-backend-bytes", str(quota_mib << 20)])
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def alarms_of(cluster: EtcdCluster) -> Iterator[str]:
    """What is wrong with the members, as they say."""
    for index in range(cluster.size):
        yield from cluster.status(index).get("errors", [])


async def _main(quota_mib: int, rounds: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        async with small_etcd(Path(folder), quota_mib) as cluster:
            wrong: list[object] = []
            for flooding in (accepted, refused):
                flood = await flooding(EtcdJournal.from_url(cluster.url(flooding.__name__)), rounds)
                size_mib = int(cluster.status(0)["dbSize"]) >> 20
                levels = sorted(level.name for level in flood.levels)
                said = f"{dict(flood.told)}, {levels}, {size_mib} of {quota_mib} MiB"
                sys.stdout.write(f"{flooding.__name__}: {said}\n")
                wrong += [*flood.failed, *alarms_of(cluster)]
    sys.stdout.writelines(f"  {found!r}\n" for found in wrong[:20])
    return not wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.filling")
    parser.add_argument("--quota-mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=500)
    given = parser.parse_args()
    sys.exit(0 if asyncio.run(_main(given.quota_mib, given.rounds)) else 1)
