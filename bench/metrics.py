"""What it costs to be measured: the load at the door of a server whose page of metrics is read every second,
beside one whose page is not, and beside one without an observer.

The load is `redis-benchmark` with 64 connections and a billion names; the page must not grow with them.

Throughput scatters by more than what a page costs. So the processor time of a page is measured, too, over all of
the server's processes: read once a second it may take a fiftieth of a core.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from bench.contest import Benchmark, Contest, Contestant
from bench.embedded import AtTheDoor
from bench.musts import at_least, at_most, median, ratio
from bench.procfs import cpu_seconds, family
from bench.samples import Figures
from bench.servers import Fencehold, free_port

CONNECTIONS = 64
ACQUIRE = ["LOCK.ACQUIRE", "n:__rand_int__", "WAIT", "0", "TTL", "5"]
PAGES = 50
_READY_S_MAX = 30.0


class Measured(Fencehold):
    """A server with a page of metrics; or without an observer."""

    def __init__(self, name: str, *, is_observed: bool = True) -> None:
        super().__init__(name)
        self.http_port = free_port()
        self._is_observed = is_observed

    def command(self) -> list[str]:
        more = [] if self._is_observed else ["--no-observer"]
        words = [word for word in super().command() if word != "--no-http"]
        return [*words, "--http", str(self.http_port), *more]

    async def page(self) -> bytes:
        """The page, when it is there."""
        async with asyncio.timeout(_READY_S_MAX):
            while True:
                with contextlib.suppress(OSError):
                    return await self._read()
                await asyncio.sleep(0.1)

    async def _read(self) -> bytes:
        """By as little as will do: Prometheus runs elsewhere, and is not what is measured."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
        try:
            # By its address: a host that the server does not know is refused.
            host = f"127.0.0.1:{self.http_port}".encode()
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % host)
            page = await reader.read(-1)
            if not page.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(f"no page of metrics: {page[:200]!r}")
            return page
        finally:
            writer.close()


class Loaded(Contestant):
    """The load, with the page read so often or not at all."""

    def __init__(self, name: str, server: Measured, requests: int, every_s: float = 0.0) -> None:
        super().__init__(name)
        self._server, self._every_s = server, every_s
        self._load = AtTheDoor(name, server, CONNECTIONS, ACQUIRE, requests)

    async def setup(self) -> None:
        await self._server.page()

    async def round(self) -> Figures:
        async with self._scraped() as told:
            figures = dict(await self._load.round())
        return {**figures, **told}

    @contextlib.asynccontextmanager
    async def _scraped(self) -> AsyncIterator[dict[str, float]]:
        told: dict[str, float] = {}
        if not self._every_s:
            yield told
            return
        scraping = asyncio.create_task(self._scrape(told))
        try:
            yield told
        finally:
            scraping.cancel()
            await asyncio.gather(scraping, return_exceptions=True)

    async def _scrape(self, told: dict[str, float]) -> None:
        while True:
            page = await self._server.page()
            told["page_lines"] = float(page.count(b"\n"))
            told["scrapes"] = told.get("scrapes", 0) + 1
            await asyncio.sleep(self._every_s)


class Pages(Contestant):
    """Pages one after another, of a server that has nothing else to do."""

    def __init__(self, name: str, server: Measured) -> None:
        super().__init__(name)
        self._server = server

    async def round(self) -> Figures:
        processes = family(self._server.pid)
        before_s = sum(map(cpu_seconds, processes))
        for _ in range(PAGES):
            await self._server.page()
        return {"cpu_ms": (sum(map(cpu_seconds, processes)) - before_s) / PAGES * 1e3}


def build(quick: bool) -> Contest:
    """The contest."""
    server, bare = Measured("a server"), Measured("a server without an observer", is_observed=False)
    requests = 20_000 if quick else 100_000
    alone = Loaded("not scraped", server, requests)
    scraped = Loaded("scraped every second", server, requests, 1.0)
    unobserved = Loaded("without an observer", bare, requests)
    pages = Pages("a page", server)
    return Contest(
        contestants=[alone, scraped, unobserved, pages],
        rounds=3 if quick else 9,
        reference=alone.name,
        fixtures=[server, bare],
        musts=[
            at_least("scraped every second, times not scraped", ratio(scraped.name, alone.name), 0.98, "×"),
            at_most("processor time of a page", median(pages.name, "cpu_ms"), 20, "ms"),
            at_most("lines of the page, with a billion names", median(scraped.name, "page_lines"), 400, "lines"),
        ],
    )


BENCHMARK = Benchmark("metrics", "the load at the door while its metrics are read", build)
