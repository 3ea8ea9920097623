"""Ten thousand idle sessions: what their keep-alives cost the server, and whether any is lost.

The clients are bare sockets in a process of their own, each with one session, each sending a keep-alive every
third of its ttl: no more and no less than the SDK sends when it is idle.
"""

import asyncio
import random
import resource
from typing import cast

import uvloop

from bench import isolated
from bench.contest import Benchmark, Contest, Contestant
from bench.musts import at_most, median
from bench.samples import Figures, Results
from bench.servers import Fencehold
from bench.wire import Wire

SESSIONS = 10_000
TTL_S = 30
_OPEN = b"*5\r\n$12\r\nSESSION.OPEN\r\n$3\r\nTTL\r\n$5\r\n%d\r\n$5\r\nGRACE\r\n$4\r\n1000\r\n" % (TTL_S * 1_000)


class Client(asyncio.Protocol):
    """One session that only stays alive."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_OPEN)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"-"):
            self.lost = True
        if not self.opened.done():
            self.opened.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if not self.opened.done():
            self.opened.set_result(None)

    async def live(self, seconds: float) -> None:
        """Send keep-alives, the first at some moment of the first third."""
        await asyncio.sleep(random.random() * TTL_S / 3)
        for _ in range(int(seconds // (TTL_S / 3)) + 1):
            if self._transport is not None and not self.lost:
                self._transport.write(b"*1\r\n$17\r\nSESSION.KEEPALIVE\r\n")
            await asyncio.sleep(TTL_S / 3)


def sessions(port: int, count: int, seconds: float) -> Figures:
    """Open so many sessions and keep them alive so long; how many were lost."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def main() -> Figures:
        loop = asyncio.get_running_loop()
        clients = [(await loop.create_connection(Client, "127.0.0.1", port))[1] for _ in range(count)]
        await asyncio.gather(*(client.opened for client in clients))
        lives = [asyncio.create_task(client.live(seconds)) for client in clients]
        await asyncio.sleep(seconds)
        for life in lives:
            life.cancel()
        return {"sessions": float(count), "lost": float(sum(client.lost for client in clients))}

    return uvloop.run(main())


class Idle(Contestant):
    """The server's side: processor time and appends while the sessions are idle."""

    def __init__(self, server: Fencehold, seconds: float) -> None:
        super().__init__(f"{SESSIONS:,} idle sessions")
        self._server, self._seconds = server, seconds

    async def round(self) -> Figures:
        arguments = {"port": self._server.port, "count": SESSIONS, "seconds": self._seconds}
        clients = asyncio.create_task(isolated.call(sessions, arguments))
        await self._all_open()
        before_cpu, before_appends = self._server.cpu_seconds(), (await self._info())["appends"]
        watched_s = self._seconds * 0.8
        await asyncio.sleep(watched_s)
        cpu_s = self._server.cpu_seconds() - before_cpu
        appends = (await self._info())["appends"] - before_appends
        figures = await clients
        return {
            "core_percent": cpu_s / watched_s * 100,
            "appends_per_s": appends / watched_s,
            "lost": figures["lost"],
        }

    async def _all_open(self) -> None:
        # Another process opens them, so there is nothing here to wait for but their count.
        while (await self._info())["sessions"] < SESSIONS:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def _info(self) -> dict[str, int]:
        wire = await Wire.open(self._server.port)
        try:
            return await wire.info()
        finally:
            await wire.close()


def build(quick: bool) -> Contest:
    """The contest."""
    server = Fencehold()
    idle = Idle(server, 20 if quick else 60)
    return Contest(
        contestants=[idle],
        rounds=1,
        warmups=0,
        fixtures=[server],
        musts=[
            at_most("keep-alives of 10,000 sessions", median(idle.name, "core_percent"), 25, "% of a core"),
            at_most("appends meanwhile", median(idle.name, "appends_per_s"), 10, "per second"),
            at_most("sessions lost", lambda results: _lost(results, idle.name), 0, "sessions"),
        ],
    )


def _lost(results: Results, name: str) -> float:
    return max(results.series(name, "lost").values())


BENCHMARK = Benchmark("idle", "ten thousand idle sessions: what their keep-alives cost", build)
