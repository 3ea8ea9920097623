"""The history of holds: how soon a question about the past is answered with a million holds kept, whether the
file keeps its bound, and what it costs to keep it.

A server is started on a history that was filled before: most of it of many names, some of one that all clients
want. Questions are put over the wire, as `fencehold history NAME --at TIME` puts them, and by that command.
"""

import asyncio
import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter_ns

from bench import latency
from bench.contest import Benchmark, Call, Contest, Contestant
from bench.musts import at_most, median
from bench.observed import observed
from bench.samples import Figures
from bench.servers import Fencehold
from bench.wire import Wire
from fencehold.observe.history.recorder import ROWS_PER_BATCH, who_of
from fencehold.observe.history.span import HOLD, Span
from fencehold.observe.history.store import Bounds, Store

HOT = "hot"
QUESTIONS = 200
_START_MS = 1_790_000_000_000
_EVERY_MS = 7
_WHO = who_of('{"client": "worker-17", "host": "app-3", "pid": 4711}', "billing")


def _hold(number: int, names: int) -> Span:
    """One of many: each fifth of the name that all clients want."""
    name = HOT if number % 5 == 0 else f"order:{number * 7_919 % names}"
    since = _START_MS + number * _EVERY_MS
    lasted = 5 if number % 50 else 60_000
    return Span(HOLD, name, number + 1, "X", 17, _WHO, "task-1", since, number, since + lasted, 2, "released")


def fill(path: Path, count: int, bounds: Bounds | None = None) -> Store:
    """A history of so many holds."""
    store = Store(path, bounds)
    # In batches as they are in life: the bound is kept after each, and by so many rows at a time.
    for start in range(0, count, ROWS_PER_BATCH):
        store.begin()
        store.set_fact("known_since", _START_MS)
        store.add(_hold(number, count // 10) for number in range(start, min(start + ROWS_PER_BATCH, count)))
        # Its journal is empty: what is in the history came from elsewhere.
        store.commit(0)
        store.keep_bound(_START_MS)
    return store


class Filled(Fencehold):
    """A server on a history of so many holds."""

    def __init__(self, holds: int) -> None:
        super().__init__(f"a server with {holds:,} holds in its history")
        self.holds = holds

    async def start(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            data.mkdir()
            fill(data / "history.sqlite", self.holds).close()
        await super().start()


class Asked(Contestant):
    """Who held a name at a time, over the wire."""

    def __init__(self, name: str, server: Filled, *, is_hot: bool) -> None:
        super().__init__(name)
        self._server = server
        self._is_hot = is_hot
        self._lots = random.Random(17)

    async def round(self) -> Figures:
        wire = await Wire.open(self._server.port)
        took_ns = []
        for _ in range(QUESTIONS):
            number = self._lots.randrange(self._server.holds)
            name = HOT if self._is_hot else _hold(number, self._server.holds // 10).name
            begun = perf_counter_ns()
            reply = await wire.ask("LOCK.HISTORY", name, "AT", _START_MS + number * _EVERY_MS + 1)
            took_ns.append(perf_counter_ns() - begun)
            if self._is_hot or number % 5:
                assert '"fence"' in reply
        await wire.close()
        figures = latency.figures(took_ns, sum(took_ns))
        return {"p50_ms": figures["p50_us"] / 1e3, "p99_ms": figures["p99_us"] / 1e3, "max_ms": max(took_ns) / 1e6}


class Commanded(Contestant):
    """The same by `fencehold history NAME --at TIME`, its start included."""

    def __init__(self, server: Filled) -> None:
        super().__init__("fencehold history --at")
        self._server = server

    async def round(self) -> Figures:
        at = datetime.fromtimestamp((_START_MS + self._server.holds // 2 * _EVERY_MS) / 1000, UTC).isoformat()
        words = ["history", HOT, "--at", at, "--url", f"fencehold://127.0.0.1:{self._server.port}"]
        begun = perf_counter_ns()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fencehold.cli", *words, stdout=asyncio.subprocess.DEVNULL
        )
        await process.wait()
        return {"total_ms": (perf_counter_ns() - begun) / 1e6}


def filled_beyond(count: int, rows_max: int, bytes_max: int) -> Figures:
    """Fill a history with several times what it may keep."""
    from bench import folders  # noqa: PLC0415 - in a process of its own

    folder = folders.new_folder()
    try:
        begun = perf_counter_ns()
        store = fill(folder / "history.sqlite", count, Bounds(rows_max, bytes_max))
        took_s = (perf_counter_ns() - begun) / 1e9
        store.close()
        size = (folder / "history.sqlite").stat().st_size
        return {
            "rows": float(store.rows),
            "times_rows_max": store.rows / rows_max,
            "times_bytes_max": size / bytes_max,
            "holds_per_s": count / took_s,
        }
    finally:
        folders.remove(folder)


def build(quick: bool) -> Contest:
    """The contest."""
    server = Filled(100_000 if quick else 1_000_000)
    asked, hot = Asked("at a time", server, is_hot=False), Asked("at a time, of a hot name", server, is_hot=True)
    many = 40_000 if quick else 400_000
    beyond = Call(
        "filled beyond its rows",
        filled_beyond,
        {"count": many, "rows_max": many // 4, "bytes_max": 1 << 30},
        isolated=True,
    )
    beyond_bytes = Call(
        "filled beyond its bytes",
        filled_beyond,
        {"count": many, "rows_max": 10 * many, "bytes_max": 64 * many},
        isolated=True,
    )
    operations = {"operations": many, "rows_max": many // 2}
    beside = Call("the observer, an operation", observed, operations, isolated=True)
    return Contest(
        contestants=[asked, hot, Commanded(server), beyond, beyond_bytes, beside],
        rounds=3,
        warmups=1,
        fixtures=[server],
        musts=[
            at_most("an answer, p99", median(asked.name, "p99_ms"), 50, "ms"),
            at_most("an answer about a hot name, p99", median(hot.name, "p99_ms"), 50, "ms"),
            at_most("rows, times the bound", median(beyond.name, "times_rows_max"), 1, "×"),
            at_most("bytes, times the bound", median(beyond_bytes.name, "times_bytes_max"), 1, "×"),
            at_most("the observer, an operation", median(beside.name, "us"), 7, "µs"),
        ],
    )


BENCHMARK = Benchmark("history", "questions about the past, with a million holds kept", build)
