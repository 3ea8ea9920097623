"""`fencehold bench`: a quick measurement of a server from here, through the SDK.

Each client has a connection and a name of its own, and acquires and releases it, one operation at a time. It
measures this machine as much as the server; for figures to compare, use the project's benchmarks.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer

from fencehold import aio
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Json, Url, lasting
from fencehold.cli.output import console, say_json, tell, to_person
from fencehold.cli.wire import connect

_SAMPLES_MAX = 200_000
_PREFIX = "fencehold-bench"


class Figures(NamedTuple):
    """The results."""

    clients: int
    seconds: float
    ops_per_s: float
    """Acquires and releases, each counted as one."""
    acquire_p50_us: float
    acquire_p99_us: float


def bench(
    clients: Annotated[int, typer.Option(min=1, max=10_000, help="How many connections.")] = 16,
    seconds: Annotated[
        float, typer.Option(parser=lasting, metavar="DURATION", help="For how long.", show_default="3s")
    ] = 3.0,
    same_name: Annotated[bool, typer.Option("--same-name", help="Let all clients contend for one name.")] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Measure acquires and releases against a server for a few seconds."""
    # Fails at once if no server answers.
    connect(url).close()
    with _showing(to_person() and not as_json, seconds) as progress:
        figures = asyncio.run(_measure(url, clients, seconds, same_name, progress))
    if as_json:
        say_json(
            {
                "clients": figures.clients,
                "for_s": figures.seconds,
                "ops_per_s": figures.ops_per_s,
                "acquire_p50_s": round(figures.acquire_p50_us / 1e6, 7),
                "acquire_p99_s": round(figures.acquire_p99_us / 1e6, 7),
            }
        )
        return
    tell(
        f"{figures.ops_per_s:,.0f} ops/s with {clients} client{'s' if clients > 1 else ''}; "
        f"acquire p50 {figures.acquire_p50_us:,.0f} µs, p99 {figures.acquire_p99_us:,.0f} µs"
    )


async def _measure(url: str, clients: int, seconds: float, same_name: bool, progress: "Progress") -> Figures:
    async with contextlib.AsyncExitStack() as stack:
        made = [await stack.enter_async_context(aio.connect(url, name=_PREFIX)) for _ in range(clients)]
        names = [f"{_PREFIX}:{0 if same_name else number}" for number in range(clients)]
        took: list[float] = []
        started_at = time.perf_counter()
        until = started_at + seconds
        workers = [_work(client.lock(name), until, took) for client, name in zip(made, names, strict=True)]
        showing = asyncio.create_task(progress.follow(took))
        done = sum(await asyncio.gather(*workers))
        showing.cancel()
        elapsed = time.perf_counter() - started_at
    if not took:
        raise fail(Exit.NO, "no operation finished in that time", "run it for longer: --seconds 10")
    p50, p99 = _percentiles(took)
    return Figures(clients, round(elapsed, 3), round(done / elapsed, 1), p50, p99)


async def _work(lock: aio.Lock[aio.Hold], until: float, took: list[float]) -> int:
    done = 0
    while (started_at := time.perf_counter()) < until:
        hold = await lock.acquire()
        if len(took) < _SAMPLES_MAX:
            took.append(time.perf_counter() - started_at)
        if hold is not None:
            await hold.release()
            done += 2
    return done


def _percentiles(took: list[float]) -> tuple[float, float]:
    if len(took) < 2:
        return took[0] * 1e6, took[0] * 1e6
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return round(cuts[49] * 1e6, 1), round(cuts[98] * 1e6, 1)


class Progress:
    """The progress; shown only on a terminal."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar = bar
        self._task = task

    async def follow(self, took: list[float]) -> None:
        """Move on until cancelled."""
        started_at, before = time.perf_counter(), 0
        while self._bar is not None:
            await asyncio.sleep(0.1)
            now = len(took)
            self._bar.update(
                self._task,
                completed=time.perf_counter() - started_at,
                description=f"{(now - before) * 20:>9,} ops/s",
            )
            before = now


@contextlib.contextmanager
def _showing(wanted: bool, seconds: float) -> Iterator[Progress]:
    if not wanted:
        yield Progress()
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        yield Progress(bar, bar.add_task("connecting", total=seconds))
