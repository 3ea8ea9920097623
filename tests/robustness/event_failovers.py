"""Events over failovers: leaders and a sink end and begin again, drawn by lot; what the sink has in the end is
what the journal says, event by event.

``python -m tests.robustness.event_failovers 1000 --seed 7`` does it a thousand times; the test a few times.
The nodes are real servers with real listeners in one process, over a journal in memory that they share, of which
all entries are put aside before a snapshot lets go of them. The sink reads from a standby where it finds one.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fencehold.core.commands import Acquire, Break, CloseSession, Command, OpenSession, Release
from fencehold.core.events import events_of
from fencehold.core.machine import Machine
from fencehold.errors import OutcomeUnknown
from fencehold.journal.codec import decode
from fencehold.server import Server
from fencehold.sinks.follower import Follower
from fencehold.sinks.runner import Runner
from fencehold.sinks.sql import SqliteRows
from tests.unit.node.doubles import until
from tests.unit.node.test_cluster import Cluster
from tests.unit.node.test_node import told

NAMES = tuple(f"job:{number}" for number in range(5))


class Found(NamedTuple):
    """What became of it."""

    failovers: int
    sink_restarts: int
    events: int
    gaps: int
    wrong: list[str]


class Scene:
    """A cluster, and a sink that follows it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._cluster = Cluster()
        self._path = folder / "events.db"
        self._servers: list[Server] = []
        self._archive: list[Any] = []
        self._carrying: asyncio.Task[None] | None = None
        self._runner: Runner | None = None
        self._count = 0
        self.failovers = self.sink_restarts = 0

    async def play(self, rounds: int, say: Callable[[int], None]) -> None:
        for _ in range(2):
            await self._add_node()
        self._start_sink()
        for number in range(rounds):
            await self._work()
            if self._chance.random() < 0.6:
                await self._fail_over()
            else:
                await self._restart_sink()
            say(number + 1)
        await self._work()
        await self._caught_up()

    async def end(self) -> None:
        await self._stop_sink()
        for server in self._servers:
            await server.stop()

    @property
    def _leader(self) -> Server:
        return next(server for server in self._servers if server.node.leads)

    async def _add_node(self) -> None:
        self._count += 1
        server = await self._cluster.start(f"n{self._count}")
        self._servers.append(server)
        if len(self._servers) == 1:
            await until(lambda: server.node.leads)
        else:
            await self._cluster.stands_by(server, self._leader)

    async def _fail_over(self) -> None:
        """End the leader, in good order or in the middle of an append; another one stands by next."""
        self.failovers += 1
        leader = self._leader
        if self._chance.random() < 0.4:
            await self._lose_reply(leader)
            return
        if self._chance.random() < 0.5:
            # What is under way may be in the journal, or not.
            leader.node.submit(OpenSession(60_000), lambda *_: None)
        self._servers.remove(leader)
        await leader.stop()
        self._put_aside()
        await until(lambda: any(server.node.leads for server in self._servers))
        await self._add_node()

    async def _lose_reply(self, leader: Server) -> None:
        """Let it append, and not hear of it: it leads no more, and the next leader tells what was appended."""
        epoch = leader.node.epoch
        self._cluster.faults[leader.config.node].armed = ("append.stored", OutcomeUnknown("the reply was lost"))
        leader.node.submit(OpenSession(60_000, meta='{"client":"lost"}'), lambda *_: None)
        await until(lambda: any(each.node.leads and each.node.epoch > epoch for each in self._servers))
        for server in self._servers:
            if not server.node.leads:
                await self._cluster.stands_by(server, self._leader)
        self._put_aside()

    async def _work(self) -> None:
        """Some commands that make events."""
        leader = self._leader
        for _ in range(self._chance.randrange(1, 12)):
            outcome = await told(leader.node, self._drawn(leader.node.replica.machine))
            assert outcome is not None
        self._put_aside()

    def _drawn(self, machine: Machine) -> Command:
        chance, sessions = self._chance, sorted(machine.state.sessions)
        if len(sessions) < 3:
            return OpenSession(60_000, meta=json.dumps({"client": f"c{machine.position}"}))
        session, names = chance.choice(sessions), tuple(chance.sample(NAMES, chance.choice((1, 1, 2))))
        held = [(hold.name, hold.fence, hold.session) for name in NAMES for hold in machine.state.holders(name)]
        if held and chance.random() < 0.4:
            name, fence, holder = chance.choice(held)
            return Release(holder, (name,), fence)
        acquire = Acquire(session, names, owner="t", wait_ms=chance.choice((0, 50, 5_000)))
        return chance.choice((acquire, acquire, acquire, Break(names[0], by="ann"), CloseSession(session)))

    def _put_aside(self) -> None:
        """Keep what the journal has, beyond its snapshots."""
        store = self._cluster.store
        known = self._archive[-1].position if self._archive else 0
        assert store.trimmed <= known, "entries were let go of before they were put aside"
        self._archive += [record for record in store.records if record.position > known]

    # The sink.

    def _start_sink(self) -> None:
        nodes = ",".join(f"127.0.0.1:{server.port}" for server in self._servers)
        follower = Follower(f"fencehold://{nodes}", prefers_standby=self._chance.random() < 0.7)
        self._runner = Runner(follower, SqliteRows(self._path, "test"), cluster="test")
        self._carrying = asyncio.create_task(self._runner.run())

    async def _stop_sink(self) -> None:
        if self._carrying is not None:
            self._carrying.cancel()
            with suppress(asyncio.CancelledError):
                await self._carrying

    async def _restart_sink(self) -> None:
        self.sink_restarts += 1
        if self._chance.random() < 0.3:
            await self._caught_up()
        await self._stop_sink()
        self._start_sink()

    async def _caught_up(self) -> None:
        """Wait until the sink has what there is, or has ended; by nodes that are all gone it cannot have it."""
        await self._stop_sink()
        self._start_sink()
        self._put_aside()
        last = self.expected()[-1]
        runner = self._runner
        assert runner is not None
        await until(lambda: runner.outbox.cursors.get(0, (0, 0)) >= (last[0], last[1]) or self._has_ended())
        assert not self._has_ended(), self._carrying

    def _has_ended(self) -> bool:
        return self._carrying is not None and self._carrying.done()

    # What should be there, and what is.

    def expected(self) -> list[tuple[int, int, str, str]]:
        machine, found = Machine(), []
        for record in self._archive:
            entry = decode(record.entry)
            for event in events_of(entry, machine.apply(record.position, entry)):
                found.append((event.position, event.index, event.kind.value, ",".join(event.names)))
        return found

    def there(self) -> list[tuple[int, int, str, str]]:
        with sqlite3.connect(self._path) as connection:
            rows = connection.execute(
                "SELECT position, idx, kind, subject FROM fencehold_events ORDER BY position, idx"
            ).fetchall()
        connection.close()
        return [tuple(row) for row in rows]


async def fail_over(folder: Path, rounds: int, seed: int, say: Callable[[int], None] = lambda _: None) -> Found:
    """Play so many rounds, and compare."""
    scene = Scene(folder, seed)
    try:
        await scene.play(rounds, say)
        expected, there = scene.expected(), scene.there()
    finally:
        await scene.end()
    gaps = [event for event in there if event[2] == "gap"]
    wrong = [f"missing: {event}" for event in expected if event not in set(there)]
    wrong += [f"not in the journal: {event}" for event in there if event not in set(expected)]
    wrong += ["not in order, or twice"] if there != sorted(set(there)) else []
    return Found(scene.failovers, scene.sink_restarts, len(there), len(gaps), wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()

    def say(number: int) -> None:
        if number % 50 == 0:
            sys.stderr.write(f"{number} of {asked.rounds}\n")

    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(fail_over(Path(folder), asked.rounds, asked.seed, say))
    sys.stdout.write(
        f"{found.failovers} failovers, {found.sink_restarts} restarts of the sink: {found.events} events, "
        f"{found.gaps} gaps, {len(found.wrong)} wrong\n"
    )
    for line in found.wrong[:20]:
        sys.stdout.write(f"{line}\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
