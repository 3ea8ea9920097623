"""Regions: three cells, each a real server with its journal, and 80 ms between the client and the far ones.

``python -m tests.robustness.regions`` prints what it measures; the tests do it in short. The client is at home in
eu: it reaches eu directly, and us and ap through proxies that delay each direction by half of the distance.

1. Names that are at home here are granted in less than 5 ms (p50), far ones in one round trip.
2. A home moves under load, there and back: no acquire fails, no fence goes back, no two tasks are inside at once.
3. A home is lost (its process stopped, and woken up later), and another promoted after its lease: the old one
   grants nothing when it wakes up, and a guard refuses what it had granted.
4. A home is killed and another promoted by an operator's word: started again, the old one is told, and grants
   nothing; a guard refuses what it had granted.
5. A cell that is away costs its own names only, and from the second time on that is said at once.
"""

import argparse
import asyncio
import contextlib
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import fencehold.aio
from fencehold.aio import Client, Hold
from fencehold.drivers.resp.wire import command
from fencehold.errors import FenceholdError, StaleFence, Unavailable
from fencehold.guards.offer import Offer
from fencehold.guards.sqlite import Guard
from rig.processes import Process, accepts, free_port
from tests.behaviour.proxy import Proxy

CELLS = ("ap", "eu", "us")
NEAR, FAR = "eu", "us"
DISTANCE_MS = 80.0
LEASE_S = 2.0
HOLD_TTL_S = 3.0
_COMMAND_S = 120.0

_REFUSALS = (b"-ELSEWHERE", b"-SUSPENDED", b"-UNAVAILABLE", b"-UNKNOWN", b"-MOVING", b"*-1", b"$-1")
"""What an old home may say: anything but a grant."""

Say = Callable[[str], None]


class DelayingProxy(Proxy):
    """Carries bytes as a long line does: each direction takes half of a round trip, and nothing is reordered."""

    def __init__(self, port: int, round_trip_ms: float) -> None:
        super().__init__("127.0.0.1", port)
        self._way_s = round_trip_ms / 2_000

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool = False
    ) -> None:
        loop, under_way = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]](1_024)

        async def deliver() -> None:
            while True:
                at, data = await under_way.get()
                await asyncio.sleep(max(0.0, at - loop.time()))
                writer.write(data)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(65_536):
                    await under_way.put((loop.time() + self._way_s, data))
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)


class Regions:
    """The cells, their proxies, and the command line of an operator."""

    def __init__(self, folder: Path, distance_ms: float) -> None:
        self.folder = folder
        self.servers: dict[str, Process] = {}
        self.ports = {cell: free_port() for cell in CELLS}
        self.proxies = {cell: DelayingProxy(self.ports[cell], distance_ms) for cell in CELLS if cell != NEAR}
        self.guard, self.data = Guard(), sqlite3.connect(folder / "guarded.sqlite")
        self.guard.create(self.data)
        self.data.commit()

    def start(self, cell: str) -> None:
        port = self.ports[cell]
        words = [sys.executable, "-m", "fencehold.cli", "serve", "--port", str(port), "--no-http"]
        self.servers[cell] = server = Process(cell, [*words, "--no-observer"], self.folder / cell)
        server.start()
        server.await_ready(lambda: accepts(port))

    def address(self, cell: str) -> str:
        """As it is in the map: seen from eu."""
        return f"127.0.0.1:{self.proxies[cell].port if cell in self.proxies else self.ports[cell]}"

    def url(self, cell: str) -> str:
        """From beside the cell."""
        return f"fencehold://127.0.0.1:{self.ports[cell]}"

    def map_file(self) -> Path:
        path = self.folder / "cells.toml"
        cells = "".join(f'[cells.{cell}]\naddresses = ["{self.address(cell)}"]\n' for cell in CELLS)
        homes = '[homes]\n"" = "eu"\n"far." = "us"\n"orders." = "eu"\n"pay." = { cell = "eu", goal = "region" }\n'
        path.write_text(f'lease = "{LEASE_S:g}s"\n{cells}{homes}')
        return path

    async def operate(self, at: str, *words: str) -> str:
        """Run the command line beside a cell; what it wrote.

        Raises:
            AssertionError: it failed.
        """
        clean = {key: value for key, value in os.environ.items() if not key.startswith("FENCEHOLD_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fencehold.cli",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=clean | {"FENCEHOLD_URL": self.url(at)},
        )
        async with asyncio.timeout(_COMMAND_S):
            out, _ = await process.communicate()
        assert process.returncode == 0, f"{' '.join(words)}: {out.decode()}"
        return out.decode()

    def write(self, name: str, fence: int) -> None:
        """Write to what a name protects.

        Raises:
            StaleFence: the guard refuses the fence.
        """
        with self.data:
            self.guard.enter(self.data, Offer(name, fence))

    def is_refused(self, name: str, fence: int) -> bool:
        try:
            self.write(name, fence)
        except StaleFence:
            return True
        return False

    def close(self) -> None:
        for server in self.servers.values():
            server.stop()


@asynccontextmanager
async def regions(folder: Path, distance_ms: float = DISTANCE_MS) -> AsyncIterator[Regions]:
    """Three cells with a map."""
    found = Regions(folder, distance_ms)
    try:
        async with contextlib.AsyncExitStack() as stack:
            for proxy in found.proxies.values():
                await stack.enter_async_context(proxy)
            for cell in CELLS:
                await asyncio.to_thread(found.start, cell)
            await found.operate(NEAR, "cells", "apply", str(found.map_file()))
            yield found
    finally:
        found.data.close()
        await asyncio.to_thread(found.close)


class Took(NamedTuple):
    """How long acquires took, in milliseconds."""

    p50_ms: float
    p99_ms: float


async def latency(client: Client, name: str, rounds: int) -> Took:
    """Acquire and release a name, again and again."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        hold = await client.lock(name, timeout=30).acquire()
        took.append((time.perf_counter() - began) * 1_000)
        assert hold is not None
        await hold.release()
    took.sort()
    return Took(statistics.median(took), took[int(0.99 * len(took))])


class Load:
    """Tasks that take names of one prefix in turns, and see what must not be."""

    def __init__(self, client: Client, prefix: str, names: int = 4, tasks: int = 8) -> None:
        self._client = client
        self._names = [f"{prefix}{number}" for number in range(names)]
        self._tasks = [asyncio.create_task(self._work(number)) for number in range(tasks)]
        self._inside: dict[str, int] = {}
        self.fences: dict[str, int] = {}
        self.grants = 0
        self.wrong: list[str] = []
        self.longest_s = 0.0
        self._stopping = False

    async def _work(self, number: int) -> None:
        while not self._stopping:
            name = self._names[number % len(self._names)]
            began = time.perf_counter()
            try:
                async with self._client.lock(name, timeout=60) as hold:
                    self.longest_s = max(self.longest_s, time.perf_counter() - began)
                    await self._be_inside(name, hold.fence)
            except FenceholdError as error:
                self.wrong.append(f"{name}: {error!r}")
            number += 1
            await asyncio.sleep(0.002)

    async def _be_inside(self, name: str, fence: int) -> None:
        self.grants += 1
        if self._inside.get(name):
            self.wrong.append(f"{name}: two inside, fences {self._inside[name]} and {fence}")
        if fence <= self.fences.get(name, 0):
            self.wrong.append(f"{name}: fence {fence} after {self.fences[name]}")
        self._inside[name], self.fences[name] = fence, fence
        await asyncio.sleep(0.001)
        self._inside[name] = 0

    async def end(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)


async def move_under_load(found: Regions, client: Client, moves: int, say: Say) -> Load:
    """Move a home there and back while it is in use."""
    load = Load(client, "orders.")
    for number in range(moves):
        await asyncio.sleep(0.3)
        to = (FAR, NEAR)[number % 2]
        began = time.perf_counter()
        await found.operate(to, "home", "move", "orders.", "--to", to)
        say(f"  orders. moved to {to} in {time.perf_counter() - began:.2f} s")
    await asyncio.sleep(0.3)
    await load.end()
    return load


async def lose_by_sleep(found: Regions, client: Client, say: Say) -> None:
    """Stop the home of pay., promote us after its lease, and wake the old home up."""
    hold = await until(lambda: client.lock("pay.1", timeout=10).acquire())
    found.write("pay.1", hold.fence)
    found.servers[NEAR].pause()
    began = time.perf_counter()
    try:
        ttl = f"{HOLD_TTL_S:g}s"
        await found.operate(FAR, "home", "promote", "pay.", "--to", FAR, "--hold-ttl", ttl)
        say(
            f"  pay. promoted in us {time.perf_counter() - began:.1f} s after eu was stopped (lease {LEASE_S:g} s)"
        )
        async with fencehold.aio.connect(found.url(FAR)) as other:
            newer = await until(lambda: other.lock("pay.1", timeout=20).acquire())
            assert newer.fence > hold.fence
            found.write("pay.1", newer.fence)
    finally:
        found.servers[NEAR].resume()
    assert found.is_refused("pay.1", hold.fence), "the guard took a fence of the old home"
    await refused_here(found, "pay.1", say)


async def lose_by_kill(found: Regions, say: Say) -> None:
    """Kill the home of all other names, promote us by an operator's word, and start the old home again."""
    async with fencehold.aio.connect(found.url(NEAR)) as client:
        hold = await until(lambda: client.lock("plain", timeout=10).acquire())
        found.write("plain", hold.fence)
        found.servers[NEAR].kill()
    await found.operate(FAR, "home", "promote", "", "--to", FAR, "--switched-off", "--hold-ttl", "0")
    async with fencehold.aio.connect(found.url(FAR)) as other, other.lock("plain", timeout=20) as newer:
        assert newer.fence > hold.fence
        found.write("plain", newer.fence)
    await asyncio.to_thread(found.start, NEAR)
    assert found.is_refused("plain", hold.fence), "the guard took a fence of the old home"
    await refused_here(found, "plain", say)


async def refused_here(found: Regions, name: str, say: Say) -> None:
    """See that the old home grants a name to nobody, from the first moment on, and sends clients on."""
    answers: dict[str, int] = {}
    until_at = time.monotonic() + 3.0
    while time.monotonic() < until_at or "ELSEWHERE" not in answers:
        assert time.monotonic() < until_at + 60, f"the old home was not told: {answers}"
        with contextlib.suppress(OSError):
            async for line in _asked(found.ports[NEAR], name, until_at):
                assert line.startswith(_REFUSALS), f"the old home granted {name}: {line!r}"
                word = line.split()[0].decode()[1:]
                answers[word] = answers.get(word, 0) + 1
    told = ", ".join(f"{word} {count}" for word, count in answers.items())
    say(f"  the old home, woken up, answered for {name!r}: {told}; granted 0")


async def _asked(port: int, name: str, until_at: float) -> AsyncIterator[bytes]:
    """Try to acquire a name on a plain connection, again and again: the first line of each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while time.monotonic() < until_at + 1:
            writer.write(command("LOCK.ACQUIRE", name, "WAIT", 0))
            line = await reader.readline()
            if not line:
                return
            yield line
            await asyncio.sleep(0.01)
    finally:
        writer.transport.abort()


async def cell_away(found: Regions, say: Say) -> None:
    """Stop a far cell: names at home here go on, those of the far one are refused, and soon at once."""
    found.servers[FAR].pause()
    try:
        async with fencehold.aio.connect(found.url("ap"), connect_timeout=2.0) as client:
            times = []
            for _ in range(3):
                began = time.perf_counter()
                error = await refusal(client.lock("far.1", timeout=5).acquire())
                times.append(time.perf_counter() - began)
                assert isinstance(error, Unavailable), f"a cell that is stopped: {error!r}"
                assert FAR in str(error), error
        say("  names of a cell that is away are refused after " + ", ".join(f"{took:.3f} s" for took in times))
        assert times[-1] < 1.0
    finally:
        found.servers[FAR].resume()


async def refusal(asked: Awaitable[object]) -> Exception | None:
    """What it raises."""
    try:
        await asked
    except FenceholdError as error:
        return error
    return None


async def until(attempt: Callable[[], Awaitable[Hold | None]]) -> Hold:
    """Try until a home that was just opened is confirmed."""
    while True:
        try:
            hold = await attempt()
        except Unavailable:
            await asyncio.sleep(0.1)
            continue
        assert hold is not None, "nobody else wants it"
        return hold


async def run(folder: Path, *, rounds: int, moves: int, say: Say, distance_ms: float = DISTANCE_MS) -> None:
    """All of it."""
    async with regions(folder, distance_ms) as found:
        async with fencehold.aio.connect(found.url(NEAR), ttl=HOLD_TTL_S) as client:
            await latency(client, "far.0", 1)
            near, far = await latency(client, "near", rounds), await latency(client, "far.1", max(3, rounds // 10))
            say(
                f"  near: p50 {near.p50_ms:.2f} ms, p99 {near.p99_ms:.2f} ms; far: p50 {far.p50_ms:.1f} ms, "
                f"p99 {far.p99_ms:.1f} ms, with {distance_ms:g} ms between"
            )
            assert far.p50_ms >= distance_ms
            load = await move_under_load(found, client, moves, say)
            wrong = "nothing wrong" if not load.wrong else f"wrong: {load.wrong[:3]}"
            say(f"  {load.grants} grants over {moves} moves, longest wait {load.longest_s:.2f} s, {wrong}")
            assert not load.wrong
            assert load.grants > 50
            await lose_by_sleep(found, client, say)
        await lose_by_kill(found, say)
        await cell_away(found, say)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--moves", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        say: Say = lambda text: print(text, flush=True)  # noqa: E731, T201
        asyncio.run(run(Path(folder), rounds=options.rounds, moves=options.moves, say=say))


if __name__ == "__main__":
    main()
