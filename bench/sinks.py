"""Sinks under load: what it costs an acquire that the server of a sink is killed for a while, and what is lost.

For each target: a server under a steady load of acquires and releases, a sink in a process of its own, and the
target killed in the middle (for 30 s; 3 s in the short form). The same load without a sink is the reference.
Afterwards the target is read back: every acquire and release must be there, once, or be named by a gap.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

import uvloop

from bench import isolated, latency
from bench.contest import Benchmark, Contest, Contestant
from bench.musts import Must, at_most, median, ratio
from bench.samples import Figures
from bench.servers import Fencehold
from rig.event_targets import NatsTarget, PostgresTarget, Receiver, RedisTarget, digest
from rig.processes import leash

RATE = 400
"""Acquires per second, each with its release: steady, so that a slow answer is not answered by fewer questions."""
_CAUGHT_UP_S = 90.0
TARGETS: dict[str, Callable[[Path], Any]] = {
    "redis": RedisTarget,
    "nats": NatsTarget,
    "postgres": lambda _: PostgresTarget(),
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
        return latency.figures(took_ns, int(seconds * 1e9))

    return uvloop.run(main())


class Without(Contestant):
    """The load alone."""

    def __init__(self, server: Fencehold, seconds: float) -> None:
        super().__init__("no sink")
        self._server = server
        self._seconds = seconds

    async def round(self) -> Figures:
        arguments = {"port": self._server.port, "seconds": self._seconds}
        return await isolated.call(paced, arguments)


class With(Contestant):
    """The load with a sink, whose target is killed for a while."""

    def __init__(self, name: str, server: Fencehold, seconds: float, away_s: float) -> None:
        super().__init__(name)
        self._server = server
        self._seconds = seconds
        self._away_s = away_s
        self._folder = Path()
        self._target: Any = None

    def setup(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fencehold-bench-sink-"))
        self._target = TARGETS[self.name](self._folder)

    def teardown(self) -> None:
        self._target.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def round(self) -> Figures:
        self._target.fresh()
        sink = await self._started()
        try:
            arguments = {"port": self._server.port, "seconds": self._seconds}
            load = asyncio.create_task(_called(arguments))
            await asyncio.sleep((self._seconds - self._away_s) / 2)
            await asyncio.to_thread(self._target.down)
            await asyncio.sleep(self._away_s)
            await asyncio.to_thread(self._target.up)
            figures = await load
            return {**figures, **await self._read_back()}
        finally:
            sink.terminate()
            await sink.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        words = [sys.executable, "-m", "fencehold.cli", "sink", "run", "--from", "now"]
        words += ["--url", f"fencehold://127.0.0.1:{self._server.port}", "--status", str(self._folder)]
        environment = {**os.environ, "FENCEHOLD_SINK": self._target.url}
        log = (self._folder / "log").open("ab")
        sink = await asyncio.create_subprocess_exec(*leash(None), *words, env=environment, stdout=log, stderr=log)
        log.close()
        async with asyncio.timeout(_CAUGHT_UP_S):
            while 'reads_from": "' not in self._status():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        return sink

    def _status(self) -> str:
        return "".join(path.read_text() for path in self._folder.glob("*.json"))

    async def _read_back(self) -> Figures:
        """Wait until nothing more comes, then look at what is there."""
        found: list[dict[str, Any]] = []
        before = "?"
        async with asyncio.timeout(_CAUGHT_UP_S):
            while True:
                with_new = await asyncio.to_thread(self._target.read)
                now = digest(with_new)
                found = with_new
                if now == before and '"waiting": 0' in self._status():
                    break
                before = now
                await asyncio.sleep(2.0)
        return _figures(found)


async def _called(arguments: dict[str, Any]) -> Figures:
    return await isolated.call(paced, arguments)


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


def build(quick: bool) -> Contest:
    """The contest."""
    server = Fencehold()
    seconds, away_s = (6.0, 3.0) if quick else (33.0, 30.0)
    musts: list[Must] = []
    for name in TARGETS:
        musts.append(at_most(f"{name} away, p99 times without", ratio(name, "no sink", "p99_us"), 1.2, "×"))
        musts.append(at_most(f"{name}, events missing", median(name, "missing"), 0, ""))
        musts.append(at_most(f"{name}, events twice", median(name, "twice"), 0, ""))
    return Contest(
        contestants=[Without(server, seconds), *(With(name, server, seconds, away_s) for name in TARGETS)],
        rounds=1,
        warmups=0,
        reference="no sink",
        fixtures=[server],
        musts=musts,
    )


BENCHMARK = Benchmark("sinks", "Acquires while the server of a sink is away.", build)
