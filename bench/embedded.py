"""The embedded server beside Redis, on one machine, in one run: through the SDKs, and at the door.

*C* × *F* is *C* connections with *F* requests in flight on each. Fencehold syncs every batch; the Redis it is
held against syncs every write (`appendfsync always`); the other keeps all in memory. At the door it is
`redis-benchmark` that drives both, so that only the servers are compared; `server_us` is the processor time that
an operation costs the server, and `beside_us` what processes beside it had of it, such as the observer.

Where the compiled build is installed (`make compiled-build`), it is measured as well, and held to the same bars.
"""

import asyncio
import csv
import io

from bench import compiled, loads, procfs
from bench import libraries as of_threads
from bench.bare import bare
from bench.contest import Benchmark, Call, Contest, Contestant
from bench.hot import hand_over
from bench.musts import Must, at_least, at_most, ratio
from bench.samples import Figures, Results
from bench.servers import Fencehold, Redis, Server

COMPILED = "compiled: "
SHAPES = ((1, 1), (64, 1), (256, 1))
WAITERS = 200


class AtTheDoor(Contestant):
    """`redis-benchmark` with so many connections, each with one command in flight."""

    def __init__(self, name: str, server: Server, connections: int, command: list[str], requests: int) -> None:
        super().__init__(name)
        self._server, self._connections = server, connections
        self._command, self._requests = command, requests
        self.options: tuple[str, ...] = ()
        """More of `redis-benchmark`."""

    async def round(self) -> Figures:
        before = self._cpu_s()
        process = await asyncio.create_subprocess_exec(
            *("redis-benchmark", "-p", str(self._server.port), "-c", str(self._connections), *self.options),
            *("-n", str(self._requests), "-r", "1000000000", "--csv", *self._command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output, _ = await process.communicate()
        server_us, beside_us = (
            (late - early) / self._requests * 1e6 for early, late in zip(before, self._cpu_s(), strict=True)
        )
        row = list(csv.DictReader(io.StringIO(output.decode())))[-1]
        return {
            "server_us": server_us,
            "beside_us": beside_us,
            "ops_per_s": float(row["rps"]),
            "p50_us": float(row["p50_latency_ms"]) * 1e3,
            "p99_us": float(row["p99_latency_ms"]) * 1e3,
        }

    def _cpu_s(self) -> tuple[float, float]:
        """Processor time of the server so far, and of its children."""
        first, *children = procfs.family(self._server.pid)
        return procfs.cpu_seconds(first), sum(map(procfs.cpu_seconds, children))


class OnServer(Call):
    """A load through a library, in a process of its own, on a server whose port is known only when it runs."""

    def __init__(self, name: str, server: Server, load: object, **arguments: float | str) -> None:
        super().__init__(name, load, arguments, isolated=True)  # type: ignore[arg-type]
        self._server = server

    def setup(self) -> None:
        self.arguments["port"] = self._server.port


class Bare(Call):
    """What no durable answer over a socket can undercut, on the server's own disk."""

    def __init__(self, server: Server, count: int) -> None:
        super().__init__("bare fdatasync + loopback", bare, {"count": count}, isolated=True)
        self._server = server

    def setup(self) -> None:
        self.arguments["folder"] = str(self._server.folder)


def build(quick: bool) -> Contest:
    """The contest."""
    ours, synced, unsynced = (
        Fencehold(),
        Redis("a Redis that syncs", synced=True),
        Redis("a Redis in memory", synced=False),
    )
    asked = ["LOCK.ACQUIRE", "n:__rand_int__", "WAIT", "0"]
    seconds = 1.0 if quick else 2.5
    requests = {1: 2_000, 64: 20_000, 256: 20_000} if quick else {1: 6_000, 64: 60_000, 256: 60_000}
    builds: list[tuple[str, Server]] = [("", ours)]
    python = compiled.python()
    if python is not None:
        builds.append((COMPILED, Fencehold("a compiled Fencehold server", python=python)))
    through = [
        OnServer(f"SDK {c}x{f}", ours, loads.fencehold, connections=c, in_flight=f, seconds=seconds)
        for c, f in (*SHAPES, (1, 256))
    ]
    blocking = [
        OnServer("redis-py blocking, memory", unsynced, of_threads.redis_py_alone, seconds=seconds),
        OnServer("redis-py blocking, synced", synced, of_threads.redis_py_alone, seconds=seconds),
        *(
            OnServer(
                f"{build}SDK blocking, {name}", server, of_threads.fencehold_alone, tier=tier, seconds=seconds
            )
            for build, server in builds
            for name, tier in (("volatile", "efficiency"), ("journal", "correctness"))
        ),
    ]
    libraries = [
        OnServer(f"{name} {c}x{f}", server, load, connections=c, in_flight=f, seconds=seconds)
        for name, server, load in (
            ("redis-py, synced", synced, loads.redis_py),
            ("redis-py, memory", unsynced, loads.redis_py),
            ("python-redis-lock, synced", synced, loads.python_redis_lock),
        )
        for c, f in SHAPES
    ]
    door = [
        contestant
        for c in (1, 64, 256)
        for contestant in (
            *(AtTheDoor(f"{build}door {c}", server, c, asked, requests[c]) for build, server in builds),
            AtTheDoor(
                f"Redis {c}, synced", synced, c, ["SET", "n:__rand_int__", "v", "NX", "PX", "30000"], requests[c]
            ),
        )
    ]
    alone = [
        OnServer(f"{build}SDK acquire alone", server, loads.acquire_only, seconds=seconds)
        for build, server in builds
    ]
    hot = OnServer(f"SDK hot name, {WAITERS} waiters", ours, hand_over, waiters=WAITERS, turns=3 if quick else 10)
    return Contest(
        contestants=[*blocking, *through, *libraries, *door, *alone, Bare(ours, 300 if quick else 2_000), hot],
        rounds=3 if quick else 7,
        warmups=0 if quick else 1,
        reference="redis-py, synced 64x1",
        fixtures=[synced, unsynced, *(server for _, server in builds)],
        musts=[*_musts(), *(must for build, _ in builds for must in _musts_of(build))],
    )


def _musts() -> list[Must]:
    reference = "redis-py, synced 64x1"
    return [
        at_least("through the SDK at 64x1, times redis-py", ratio("SDK 64x1", reference), 2, "×"),
        at_least("through the SDK at 1x256, times redis-py at 64x1", ratio("SDK 1x256", reference), 4, "×"),
        at_most("waiters that starved or were told out of order", _unfair, 0, "waiters"),
    ]


def _musts_of(build: str) -> list[Must]:
    """What each build is held to."""
    return [
        at_least(
            f"{build}the blocking client, one thread, volatile tier, times redis-py",
            ratio(f"{build}SDK blocking, volatile", "redis-py blocking, memory"),
            1,
            "×",
        ),
        at_least(
            f"{build}the blocking client, one thread, file journal, times redis-py",
            ratio(f"{build}SDK blocking, journal", "redis-py blocking, synced"),
            1,
            "×",
        ),
        at_least(
            f"{build}at the door, 64 connections, times Redis",
            ratio(f"{build}door 64", "Redis 64, synced"),
            0.8,
            "×",
        ),
        at_least(
            f"{build}at the door, 256 connections, times Redis",
            ratio(f"{build}door 256", "Redis 256, synced"),
            0.8,
            "×",
        ),
        at_most(
            f"{build}one client's acquire p50, times the bare cost",
            ratio(f"{build}SDK acquire alone", "bare fdatasync + loopback", "p50_us"),
            1.5,
            "×",
        ),
    ]


def _unfair(results: Results) -> float:
    return max(results.series(f"SDK hot name, {WAITERS} waiters", "unfair").values())


BENCHMARK = Benchmark("embedded", "the embedded server beside Redis: through the SDKs and at the door", build)
