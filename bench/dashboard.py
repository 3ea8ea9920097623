"""The dashboard: what it shows how soon with many names, and what viewers cost clients that lock.

1. 100,000 names are held, and 500 events happen a second, by 250 acquires and releases. The same load runs without
   a dashboard, and beside a real browser that shows the list of names, from opening it on: once the names of
   another server like it, once its own.
2. The load at the door, `redis-benchmark` with 64 connections, alone and beside ten dashboards: streams as ten
   browsers open them, which is all that a server sees of a browser.
3. Of 500,000 names one searches: each search is another, so that nothing is remembered.

Browsers run on machines of their own, and so may a listener. The question is what the leader pays: it has a
processor of its own. The load has the other one, with the listener, the browser and the benchmark behind it at a
priority (`SCHED_IDLE`) that yields at once, except inside the kernel. There a browser may stay for milliseconds,
and the load waits. So the two arms with a browser run the same processes, two servers with a load each among
them, and differ only in the server that is shown. The browser's files are in memory.
"""

import asyncio
import contextlib
import json
import os
import shutil
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
from playwright.async_api import Page, Playwright, async_playwright

from bench import isolated
from bench.contest import Benchmark, Contest, Contestant, Fixture
from bench.embedded import AtTheDoor
from bench.musts import at_least, at_most, median, ratio
from bench.samples import Figures
from bench.servers import Fencehold, Server, free_port
from bench.wire import Wire
from rig.processes import leash

HELD, MANY = 100_000, 500_000
PAIRS_PER_S = 250
DASHBOARDS = 10
_PER_SESSION = 5_000
_DAY_MS = 86_400_000
_PROBES = 5
_LEADER, _OTHERS = ("taskset", "-c", "0"), ("taskset", "-c", "1")
"""Their processors."""
_LOAD = (*_OTHERS, "chrt", "--other", "0")
_BEHIND = (*_OTHERS, "chrt", "--idle", "0")
"""On the load's processor, whenever it leaves it."""
_IN_MEMORY = Path("/dev/shm")
_PATIENCE_S = 120.0
_ACQUIRE = ["LOCK.ACQUIRE", "n:__rand_int__", "WAIT", "0"]
_OBSERVE = """
window.longTasks = [];
new PerformanceObserver(list => longTasks.push(...list.getEntries().map(entry => entry.duration)))
  .observe({type: "longtask", buffered: true});
"""


@contextlib.contextmanager
def behind() -> Iterator[None]:
    """Run this process, and all that it starts, behind the load."""
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(processors)})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, processors)


class Apart(Fencehold):
    """A server on its own processor."""

    def command(self) -> list[str]:
        return [*_LEADER, *super().command()]


class Behind(Fencehold):
    """A server behind the load of another. It syncs nothing: the disk is the other's."""

    def command(self) -> list[str]:
        return [*_BEHIND, *super().command()]


class HeldNames(Fixture):
    """So many names that are held by sessions which stay, with the names that shops and banks use."""

    def __init__(self, server: Server, count: int) -> None:
        super().__init__(f"{count:,} held names")
        self._server, self._count = server, count
        self._wires: list[Wire] = []

    async def setup(self) -> None:
        for first in range(0, self._count, _PER_SESSION):
            wire = await Wire.open(self._server.port)
            self._wires.append(wire)
            meta = json.dumps({"client": f"service-{first % 7}", "host": f"host-{first}", "pid": first})
            await wire.ask("SESSION.OPEN", "TTL", _DAY_MS, "META", meta)
            for number in range(first, min(first + _PER_SESSION, self._count), 500):
                last = min(number + 500, first + _PER_SESSION, self._count)
                for each in range(number, last):
                    kind = ("order", "invoice", "wallet", "shipment")[each % 4]
                    wire.send("LOCK.ACQUIRE", f"{kind}:{each * 7919 % 1_000_003:07}:{each}", "WAIT", 0)
                for _ in range(number, last):
                    await wire.reply()

    async def teardown(self) -> None:
        for wire in self._wires:
            with contextlib.suppress(OSError):
                await wire.close()


async def steady(port: int, seconds: float, per_s: float) -> dict[str, float]:
    """Acquires and releases at a steady pace, whatever their answers take; microseconds of acquires."""
    took_s: list[float] = []
    wires = [await Wire.open(port) for _ in range(16)]
    free: asyncio.Queue[Wire] = asyncio.Queue()
    for wire in wires:
        await wire.ask("HELLO", 3)
        await wire.ask("SESSION.OPEN", "TTL", 60_000, "META", '{"client":"load","host":"bench","pid":1}')
        free.put_nowait(wire)

    async def pair(number: int) -> None:
        wire = await free.get()
        name, started = f"load:{number}", perf_counter()
        granted = await wire.ask("LOCK.ACQUIRE", name, "WAIT", 0)
        took_s.append(perf_counter() - started)
        await wire.ask("LOCK.RELEASE", name, granted["fence"])
        free.put_nowait(wire)

    count, started = int(seconds * per_s), perf_counter()
    tasks = []
    for number in range(count):
        await asyncio.sleep(max(0.0, started + number / per_s - perf_counter()))
        tasks.append(asyncio.create_task(pair(number)))
    await asyncio.gather(*tasks)
    for wire in wires:
        await wire.close()
    took_s.sort()
    return {
        "p50_us": statistics.median(took_s) * 1e6,
        "p99_us": took_s[int(0.99 * len(took_s))] * 1e6,
        "pairs_per_s": count / (perf_counter() - started),
    }


@contextlib.asynccontextmanager
async def listener(server: Server) -> AsyncIterator[str]:
    """An HTTP listener before a server, for as long as it is needed; its address."""
    port = free_port()
    url = f"fencehold://127.0.0.1:{server.port}"
    words = [sys.executable, "-m", "fencehold.cli", "listener", "http", "--url", url, "--port", str(port)]
    process = await asyncio.create_subprocess_exec(
        *leash(None), *_BEHIND, *words, stderr=asyncio.subprocess.DEVNULL
    )
    base = f"http://127.0.0.1:{port}/dashboard/"
    try:
        async with asyncio.timeout(_PATIENCE_S), httpx.AsyncClient() as http:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if (await http.get(f"http://127.0.0.1:{port}/healthz")).is_success:
                        break
                await asyncio.sleep(0.05)
        yield base
    finally:
        process.terminate()
        await process.wait()


async def loaded(base: str) -> float:
    """Wait until all names are known to the listener; seconds."""
    started = perf_counter()
    async with asyncio.timeout(_PATIENCE_S), httpx.AsyncClient(timeout=_PATIENCE_S) as http:
        while not (await http.get(base + "api/view/sessions?count=1")).json()["view"]["status"]["is_loaded"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return perf_counter() - started


class Without(Contestant):
    """The steady load, alone."""

    def __init__(self, name: str, server: Server, seconds: float) -> None:
        super().__init__(name)
        self._server, self._seconds = server, seconds

    async def round(self) -> Figures:
        return await self._load()

    async def _load(self) -> dict[str, float]:
        return await isolated.call(steady, _said(self._server, self._seconds), _LOAD)


class Beside(Without):
    """The same beside a browser that shows a server, from its opening on; and what is seen in it.

    A second server has the same load; one of the two is shown.
    """

    def __init__(self, name: str, server: Server, second: Server, shown: Server, seconds: float) -> None:
        super().__init__(name, server, seconds)
        self._second, self._shown = second, shown

    async def round(self) -> Figures:
        with behind():
            second = asyncio.create_task(isolated.call(steady, _said(self._second, self._seconds), _BEHIND))
            try:
                return await self._round()
            finally:
                await _ended([second])

    async def _round(self) -> dict[str, float]:
        async with listener(self._shown) as base, self._playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            context = await browser.new_context(viewport={"width": 1360, "height": 860})
            await context.add_init_script(_OBSERVE)
            page = await context.new_page()
            load = asyncio.create_task(self._load())
            figures = await self._seen(page, base)
            figures |= await load
            long_task_ms = await page.evaluate("Math.max(0, ...longTasks)")
            figures["update_ms"] = await self._update_ms(page, base)
            figures["long_task_ms"] = max(long_task_ms, await page.evaluate("Math.max(0, ...longTasks)"))
            await browser.close()
        return figures

    @contextlib.asynccontextmanager
    async def _playwright(self) -> AsyncIterator[Playwright]:
        """With its files in memory: a browser that starts syncs dozens, and its disk is not that of who leads."""
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = str(_IN_MEMORY)
        try:
            async with async_playwright() as playwright:
                yield playwright
        finally:
            del os.environ["TMPDIR"]
            if before is not None:
                os.environ["TMPDIR"] = before

    async def _seen(self, page: Page, base: str) -> dict[str, float]:
        started = perf_counter()
        await page.goto(base + "names")
        await page.locator(".table-body .name").first.wait_for()
        rows_ms = (perf_counter() - started) * 1e3
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        first_paint_ms = await page.evaluate(paint)
        loaded_s = await loaded(base)
        # A viewer scrolls, sorts and searches.
        for at in (0.2, 0.7, 0.4):
            await page.locator(".table-body").evaluate("(box, at) => box.scrollTop = box.scrollHeight * at", at)
            await asyncio.sleep(0.5)
        await page.get_by_role("button", name="Name").click()
        await page.get_by_label("Search names").fill("wallet")
        return {"first_paint_ms": first_paint_ms, "rows_ms": rows_ms, "all_names_s": loaded_s}

    async def _update_ms(self, page: Page, base: str) -> float:
        """How long it takes until a grant is on the screen; the longest of some."""
        took_ms = []
        await page.goto(base + "names?prefix=probe%3A")
        await page.locator(".live.is-live").wait_for()
        wire = await Wire.open(self._shown.port)
        await wire.ask("SESSION.OPEN", "TTL", 60_000)
        for number in range(_PROBES):
            started = perf_counter()
            await wire.ask("LOCK.ACQUIRE", f"probe:{number}", "WAIT", 0)
            await page.get_by_text(f"probe:{number}", exact=True).wait_for()
            took_ms.append((perf_counter() - started) * 1e3)
        await wire.close()
        return max(took_ms)


class Throughput(Contestant):
    """The load at the door beside so many dashboards."""

    def __init__(self, name: str, server: Server, dashboards: int, requests: int) -> None:
        super().__init__(name)
        self._server, self._dashboards, self._requests = server, dashboards, requests
        self._load = AtTheDoor(name, server, 64, _ACQUIRE, requests)

    async def round(self) -> Figures:
        async with contextlib.AsyncExitStack() as stack:
            if self._dashboards:
                base = await stack.enter_async_context(listener(self._server))
                http = await stack.enter_async_context(httpx.AsyncClient(timeout=None))
                views = ["overview", "names", "graph", "sessions", "name?name=n:1"]
                tasks = [
                    asyncio.create_task(_read(http, f"{base}api/live/{views[number % len(views)]}"))
                    for number in range(self._dashboards)
                ]
                stack.push_async_callback(_ended, tasks)
                await asyncio.sleep(2)
            cpu_s = self._server.cpu_seconds()
            figures = dict(await self._load.round())
            figures["server_us_per_op"] = (self._server.cpu_seconds() - cpu_s) / self._requests * 1e6
        await self._all_gone()
        return figures

    async def _all_gone(self) -> None:
        """Nobody is measured beside the end of who ran before."""
        wire = await Wire.open(self._server.port)
        while (info := await wire.info())["connected_clients"] > 1 or info["sessions"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await wire.close()


async def _read(http: httpx.AsyncClient, url: str) -> None:
    async with http.stream("GET", url) as stream:
        async for _ in stream.aiter_raw():
            pass


def _said(server: Server, seconds: float) -> dict[str, float]:
    return {"port": server.port, "seconds": seconds, "per_s": PAIRS_PER_S}


async def _ended(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Search(Contestant):
    """Searches in the list of all names, by an HTTP listener that has read it."""

    def __init__(self, server: Server, searches: int) -> None:
        super().__init__("searches in 500,000")
        self._server, self._searches = server, searches

    async def round(self) -> Figures:
        took_ms = []
        async with listener(self._server) as base, httpx.AsyncClient(timeout=_PATIENCE_S) as http:
            await http.get(base + "api/view/names")
            all_names_s = await loaded(base)
            for number in range(self._searches):
                sort = ("age", "name", "queue")[number % 3]
                started = perf_counter()
                answer = await http.get(f"{base}api/view/names", params={"q": str(1_000 + number), "sort": sort})
                took_ms.append((perf_counter() - started) * 1e3)
                assert answer.json()["view"]["total"]
        took_ms.sort()
        return {"p50_ms": statistics.median(took_ms), "most_ms": took_ms[-1], "all_names_s": all_names_s}


def build(quick: bool) -> Contest:
    """The contest."""
    server, second = Apart(), Behind("another server", memory=True)
    crowded, busy = Apart("a crowded server", memory=True), Apart("a busy server")
    seconds, requests = (15.0, 120_000) if quick else (15.0, 200_000)
    without = Without("without a dashboard", server, seconds)
    other = Beside("beside another's dashboard", server, second, second, seconds)
    beside = Beside("beside the dashboard", server, second, server, seconds)
    alone = Throughput("throughput alone", busy, 0, requests)
    ten = Throughput("throughput beside ten dashboards", busy, DASHBOARDS, requests)
    search = Search(crowded, 30)
    return Contest(
        contestants=[without, other, beside, alone, ten, search],
        # A page is opened once in a round, and the slowest hundredth of its acquires scatter by half.
        rounds=2 if quick else 9,
        warmups=0,
        fixtures=[
            *(server, HeldNames(server, HELD), second, HeldNames(second, HELD)),
            *(crowded, HeldNames(crowded, MANY), busy),
        ],
        musts=[
            at_most("first paint", median(beside.name, "first_paint_ms"), 1_000, "ms"),
            at_most("a grant is on the screen within", median(beside.name, "update_ms"), 1_000, "ms"),
            at_most("the longest task in the page", median(beside.name, "long_task_ms"), 100, "ms"),
            at_most("acquire p99, times beside another's", ratio(beside.name, other.name, "p99_us"), 1.2, "×"),
            at_most("a search in 500,000 names", median(search.name, "most_ms"), 200, "ms"),
            at_least("throughput beside ten, times alone", ratio(ten.name, alone.name), 0.97, "×"),
        ],
    )


BENCHMARK = Benchmark("dashboard", "the dashboard with many names, and what it costs those who lock", build)
