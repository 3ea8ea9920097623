"""Sinks under load: what it costs an acquire that the server of a sink is killed for a while, and what is lost.

For each target: a server under a steady load of acquires and releases, a sink in a process of its own, and the
target killed in the middle (for 30 s; 3 s in the short form). Kafka's mock cluster keeps what it has in memory; a
file's folder is moved away; SQLite is locked. Afterwards the target is read back: every acquire and release must
be there, once, or be named by a gap.

The reference is the same load with the same sink, whose target is there all the time: where all share two
processors, a sink is felt by being there at all, and the question is what its target's death adds to that. Beside
it stands the load without a sink, while the same target is killed and started again: a server that recovers is
felt, too, whatever it is the server of. Targets have their files in memory: in life their disks are not those of
the lock service. (On a machine whose disk is shared with others, `BENCH_FOLDER=/dev/shm` takes the disk of the
lock service out of the figures, too.) The p99 of the median second tells what a sink does from what a neighbour of
the machine does once.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

import uvloop

from bench import isolated, latency
from bench.contest import Benchmark, Contest, Contestant, Family, Fixture
from bench.musts import at_most, median, ratio
from bench.procfs import cpu_seconds
from bench.samples import Figures
from bench.servers import Fencehold
from rig.event_targets import File, KafkaTarget, NatsTarget, PostgresTarget, Receiver, RedisTarget, Sqlite, digest
from rig.processes import leash

RATE = 400
"""Acquires per second, each with its release: steady, so that a slow answer is not answered by fewer questions."""
WELL, KILLED = "a sink", "a sink, its target killed"
_CAUGHT_UP_S = 90.0
_IN_MEMORY = Path("/dev/shm")
_FILE_BYTES = 500_000
"""Less than a second of events: then the next file is begun, which cannot be while the folder is away."""
TARGETS: dict[str, Callable[[Path], Any]] = {
    "kafka": lambda _: KafkaTarget(),
    "redis": RedisTarget,
    "nats": NatsTarget,
    "postgres": lambda folder: PostgresTarget(folder.parent),
    "sqlite": Sqlite,
    "jsonl": lambda folder: File(folder, _FILE_BYTES),
    "webhook": Receiver,
}


def paced(port: int, seconds: float) -> Figures:
    """A steady load through the SDK; how long acquires took."""
    from fencehold import aio  # noqa: PLC0415 - in a process of its own

    async def main() -> Figures:
        took_ns: list[int] = []
        async with aio.connect(f"fencehold://127.0.0.1:{port}") as client:

            async def turn(number: int) -> None:
                begun = perf_counter_ns()
                hold = await client.lock(f"bench:{number % 1000}").acquire()
                took_ns.append(perf_counter_ns() - begun)
                assert hold is not None
                await hold.release()

            begun, number = perf_counter(), 0
            async with asyncio.TaskGroup() as tasks:
                while (now := perf_counter() - begun) < seconds:
                    while number < now * RATE:
                        tasks.create_task(turn(number))
                        number += 1
                    await asyncio.sleep(1 / RATE)
        seconds_ns = [sorted(took_ns[at : at + RATE]) for at in range(0, len(took_ns) - RATE + 1, RATE)]
        usual_ns = sorted(latency.percentile(each, 99) for each in seconds_ns)
        found = latency.figures(took_ns, int(seconds * 1e9))
        return {**found, "p99_of_a_second_us": usual_ns[len(usual_ns) // 2] / 1e3}

    return uvloop.run(main())


class Away(Fixture):
    """A target that is killed for a while, in the middle of a round."""

    def __init__(self, name: str, seconds: float, away_s: float) -> None:
        super().__init__(f"{name} as a target")
        self._kind = name
        self._before_s, self._away_s = (seconds - away_s) / 2, away_s
        self.folder = Path()
        self.target: Any = None

    def setup(self) -> None:
        parent = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="fencehold-sink-", dir=parent))
        self.target = TARGETS[self._kind](self.folder)

    def teardown(self) -> None:
        if self.target is not None:
            self.target.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def go_and_come_back(self) -> None:
        await asyncio.sleep(self._before_s)
        await asyncio.to_thread(self.target.down)
        await asyncio.sleep(self._away_s)
        await asyncio.to_thread(self.target.up)


class Without(Contestant):
    """The load alone, while the target is killed for a while."""

    def __init__(self, server: Fencehold, away: Away, seconds: float) -> None:
        super().__init__("no sink, the target killed")
        self._server, self._away, self._seconds = server, away, seconds

    async def round(self) -> Figures:
        self._away.target.fresh()
        load = asyncio.create_task(_called(self._server.port, self._seconds))
        await self._away.go_and_come_back()
        return await load


class With(Contestant):
    """The load with a sink, whose target is killed for a while, or not."""

    def __init__(self, server: Fencehold, away: Away, seconds: float, *, is_killed: bool) -> None:
        super().__init__(KILLED if is_killed else WELL)
        self._server, self._away, self._seconds = server, away, seconds
        self._is_killed = is_killed
        self._status_folder = Path()

    async def round(self) -> Figures:
        self._away.target.fresh()
        self._status_folder = Path(tempfile.mkdtemp(dir=self._away.folder))
        sink = await self._started()
        try:
            load = asyncio.create_task(_called(self._server.port, self._seconds))
            began_s, begun = cpu_seconds(sink.pid), perf_counter()
            if self._is_killed:
                await self._away.go_and_come_back()
            figures = await load
            share = (cpu_seconds(sink.pid) - began_s) / (perf_counter() - begun)
            return {**figures, "cores": share, **await self._read_back()}
        finally:
            sink.terminate()
            await sink.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        words = [sys.executable, "-m", "fencehold.cli", "sink", "run", "--from", "now"]
        words += ["--url", f"fencehold://127.0.0.1:{self._server.port}", "--status", str(self._status_folder)]
        environment = {**os.environ, "FENCEHOLD_SINK": self._away.target.url}
        log = (self._away.folder / "log.txt").open("ab")
        sink = await asyncio.create_subprocess_exec(*leash(None), *words, env=environment, stdout=log, stderr=log)
        log.close()
        async with asyncio.timeout(_CAUGHT_UP_S):
            while 'reads_from": "' not in self._status():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        return sink

    def _status(self) -> str:
        return "".join(path.read_text() for path in self._status_folder.glob("*.json"))

    async def _read_back(self) -> Figures:
        """Wait until nothing more comes, then look at what is there."""
        before = "?"
        async with asyncio.timeout(_CAUGHT_UP_S):
            while True:
                if '"waiting": 0' in self._status() and '"error": null' in self._status():
                    found = await asyncio.to_thread(self._away.target.read)
                    now = digest(found)
                    if now == before:
                        return _figures(found)
                    before = now
                await asyncio.sleep(1.5)


async def _called(port: int, seconds: float) -> Figures:
    return await isolated.call(paced, {"port": port, "seconds": seconds})


def _figures(found: list[dict[str, Any]]) -> Figures:
    """What is missing of holds that began and ended, and what is there twice."""
    ids = [event["id"] for event in found]
    fences = {
        kind: {e["data"]["fence"] for e in found if e["data"]["kind"] == kind} for kind in ("acquired", "released")
    }
    gaps = [event for event in found if event["data"]["kind"] == "gap"]
    every = sorted(fences["acquired"] | fences["released"])
    wanted = set(range(every[0], every[-1] + 1)) if every else set()
    missing = 0 if gaps else len(wanted - fences["acquired"]) + len(wanted - fences["released"])
    return {
        "delivered": float(len(ids)),
        "missing": float(missing),
        "twice": float(len(ids) - len(set(ids))),
        "gaps": float(len(gaps)),
    }


def build(name: str, quick: bool) -> Contest:
    """The contest of one target."""
    seconds, away_s = (6.0, 3.0) if quick else (33.0, 30.0)
    server, away = Fencehold(), Away(name, seconds, away_s)
    return Contest(
        contestants=[
            Without(server, away, seconds),
            With(server, away, seconds, is_killed=False),
            With(server, away, seconds, is_killed=True),
        ],
        rounds=2 if quick else 3,
        warmups=0,
        reference=WELL,
        fixtures=[server, away],
        musts=[
            at_most(f"{name} killed, p99 times of one that is well", ratio(KILLED, WELL, "p99_us"), 1.2, "×"),
            at_most(f"{name} killed, events missing", median(KILLED, "missing"), 0, ""),
            at_most(f"{name} killed, events twice", median(KILLED, "twice"), 0, ""),
        ],
    )


BENCHMARK = Family(
    "sinks",
    "Acquires while the server of a sink is away.",
    {name: Benchmark(name, f"with a sink into {name}", partial(build, name)) for name in TARGETS},
)
