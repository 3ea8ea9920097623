"""Watchers: what they cost clients that lock.

The same load at the door, `redis-benchmark` with 64 connections, alone and beside a crowd that watches: prefixes
that nothing happens to, one each, or everything. The crowd is a process of its own that reads what it is told as
fast as it can, so beside those who watch everything the load also shares the processors with them.
"""

import asyncio
import contextlib
import json
import selectors
import socket
import sys
from collections.abc import AsyncIterator

from bench.contest import Benchmark, Contest, Contestant
from bench.embedded import AtTheDoor
from bench.isolated import ROOT
from bench.musts import at_least, ratio
from bench.samples import Figures
from bench.servers import Fencehold
from bench.wire import Wire, command

CONNECTIONS = 64
ACQUIRE = ["LOCK.ACQUIRE", "n:__rand_int__", "WAIT", "0"]
_READ_BYTES = 256 << 10


class Beside(Contestant):
    """The load beside so many watchers, each with a prefix."""

    def __init__(self, name: str, server: Fencehold, requests: int, watchers: int = 0, prefix: str = "") -> None:
        super().__init__(name)
        self._server, self._requests = server, requests
        self._load = AtTheDoor(name, server, CONNECTIONS, ACQUIRE, requests)
        self._watchers, self._prefix = watchers, prefix

    async def round(self) -> Figures:
        async with self._crowd() as told:
            cpu_s = self._server.cpu_seconds()
            figures = dict(await self._load.round())
            figures["server_us_per_op"] = (self._server.cpu_seconds() - cpu_s) / self._requests * 1e6
        await self._all_gone()
        return {**figures, **told}

    @contextlib.asynccontextmanager
    async def _crowd(self) -> AsyncIterator[dict[str, float]]:
        """A crowd that watches; in the end, the events that one of them got."""
        arguments = (self._server.port, self._watchers, self._prefix)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.watchers", *map(str, arguments)),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        told: dict[str, float] = {}
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            await process.stdout.readline()
            yield told
            process.stdin.close()
            told.update(json.loads(await process.stdout.readline()))
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _all_gone(self) -> None:
        """No contestant is measured while the one before still leaves."""
        wire = await Wire.open(self._server.port)
        while (info := await wire.info())["connected_clients"] > 1 or info["sessions"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await wire.close()


def crowd(port: int, count: int, prefix: str) -> dict[str, float]:
    """Watch with so many connections until standard input ends; `#` in the prefix is each one's number."""
    selector = selectors.DefaultSelector()
    for number in range(count):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(command("HELLO", 3) + command("LOCK.WATCH", prefix.replace("#", str(number))))
        while b"position" not in sock.recv(_READ_BYTES):
            pass
        selector.register(sock, selectors.EVENT_READ, number)
    selector.register(sys.stdin, selectors.EVENT_READ, None)
    print("ready", flush=True)
    told_bytes = events = gaps = 0
    while True:
        for key, _ in selector.select():
            if not isinstance(key.fileobj, socket.socket):
                return {"told_mib": told_bytes / (1 << 20), "events_each": events, "gaps_each": gaps}
            data = key.fileobj.recv(_READ_BYTES)
            told_bytes += len(data)
            if key.data == 0:
                events += data.count(b"$4\r\nkind\r\n")
                gaps += data.count(b"$4\r\nkind\r\n$3\r\ngap\r\n")


def build(quick: bool) -> Contest:
    """The contest."""
    server = Fencehold()
    requests = 20_000 if quick else 60_000
    alone = Beside("alone", server, requests)
    unrelated = Beside("beside 1,000 of unrelated prefixes", server, requests, 1_000, "watched:#:")
    everything = Beside("beside 200 of everything", server, requests, 200)
    return Contest(
        contestants=[alone, unrelated, everything],
        rounds=5 if quick else 15,
        reference=alone.name,
        fixtures=[server],
        musts=[at_least("beside 1,000 of unrelated prefixes", ratio(unrelated.name, alone.name), 0.9, "×")],
    )


BENCHMARK = Benchmark("watchers", "the load at the door beside those who watch", build)

if __name__ == "__main__":
    print(json.dumps(crowd(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])), flush=True)
