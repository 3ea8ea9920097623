"""Loads whose size is the question: more connections, waiters, names or holds, on any peer of `peers`.

Each runs in a process of its own and returns figures. Names are new in every round (`stamp`), so that nothing an
earlier round left is met again. An acquire and a release count as one operation each.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter, perf_counter_ns, time_ns
from typing import Any

import uvloop

from bench import latency, peers
from bench.loads import counted
from bench.samples import Figures

DESKS_MAX = 16
"""Clients that a crowd of tasks is spread over, where the crowd is what is measured."""
POPULAR_NAMES = 1_000_000
ZIPF = 0.99
SHARED = 0.9
SHARED_NAMES = 16
_GRANTS_EACH = 3
"""So often each task should have had its turn before fairness is reported, if time allows."""
_PATIENCE = 4
"""By how much longer than asked a load may take for that."""


def turns(peer: str, where: Mapping[str, Any], connections: int, in_flight: int, seconds: float) -> Figures:
    """Tasks that lock an uncontended name, and unlock it."""
    stamp, numbers = time_ns(), itertools.count()
    return _driven(peer, where, connections, in_flight, seconds, lambda: [f"t{stamp}:{next(numbers)}"])


def several(peer: str, where: Mapping[str, Any], names: int, workers: int, seconds: float) -> Figures:
    """Tasks that lock so many uncontended names at once."""
    stamp, numbers = time_ns(), itertools.count()

    def draw() -> list[str]:
        turn = next(numbers)
        return [f"m{stamp}:{turn}:{name:02}" for name in range(names)]

    return _driven(peer, where, 1, workers, seconds, draw)


def popular(peer: str, where: Mapping[str, Any], workers: int, seconds: float) -> Figures:
    """Tasks that lock names of which some are wanted far more often than others."""
    stamp, ranks = time_ns(), zipf(POPULAR_NAMES, ZIPF, random.Random(workers))
    desks = min(DESKS_MAX, workers)
    return _driven(peer, where, desks, workers // desks, seconds, lambda: [f"z{stamp}:{next(ranks)}"], rivals=True)


def shared(peer: str, where: Mapping[str, Any], workers: int, seconds: float) -> Figures:
    """Tasks that lock few names, nine times of ten shared."""
    stamp, drawn = time_ns(), random.Random(workers)
    desks = min(DESKS_MAX, workers)

    def draw() -> list[str]:
        return [f"s{stamp}:{drawn.randrange(SHARED_NAMES)}"]

    return _driven(
        peer, where, desks, workers // desks, seconds, draw, lambda: drawn.random() < SHARED, rivals=True
    )


def _driven(
    peer: str,
    where: Mapping[str, Any],
    connections: int,
    in_flight: int,
    seconds: float,
    draw: Callable[[], list[str]],
    is_shared: Callable[[], bool | None] = lambda: None,
    *,
    rivals: bool = False,
) -> Figures:
    async def main() -> Figures:
        async with peers.desks(peer, where, connections, in_flight, rivals=rivals) as desks:
            return await driven(desks, in_flight, seconds, draw, is_shared)

    return uvloop.run(main())


async def driven(
    desks: list[peers.Desk],
    in_flight: int,
    seconds: float,
    draw: Callable[[], list[str]],
    is_shared: Callable[[], bool | None] = lambda: None,
) -> Figures:
    """Let so many tasks at each desk lock what they draw, and unlock it, until the time is over."""
    latencies_ns: list[int] = []
    started = perf_counter()
    until = started + seconds

    async def work(desk: peers.Desk) -> None:
        while perf_counter() < until:
            begun = perf_counter_ns()
            await desk.unlock(await desk.lock(draw(), shared=is_shared()))
            latencies_ns.append(perf_counter_ns() - begun)

    await asyncio.gather(*(work(desk) for desk in desks for _ in range(in_flight)))
    return counted(latencies_ns, perf_counter() - started)


def zipf(count: int, skew: float, drawn: random.Random) -> Iterator[int]:
    """Ranks from 0, the first the likeliest (Gray et al., "Quickly generating billion-record databases", 1994)."""
    zeta = sum(1 / rank**skew for rank in range(1, count + 1))
    half = 1 + 0.5**skew
    alpha = 1 / (1 - skew)
    eta = (1 - (2 / count) ** (1 - skew)) / (1 - half / zeta)
    while True:
        place = drawn.random()
        scaled = place * zeta
        if scaled < half:
            yield 0 if scaled < 1 else 1
        else:
            yield int(count * (eta * place - eta + 1) ** alpha)


def contended(peer: str, where: Mapping[str, Any], waiters: int, hold_ms: float, seconds: float) -> Figures:
    """Tasks that all want the same name, hold it for so long and ask again at once.

    A hand-over is from the moment at which a holder begins to unlock until the next one has the lock. Fairness is
    Jain's index of how often each had it: 1 if all had it equally often, 1/n if one had it always.
    """

    async def main() -> Figures:
        rivalry = Rivalry(waiters, hold_ms / 1_000, f"c{time_ns()}")
        desks = min(DESKS_MAX, waiters)
        async with peers.desks(peer, where, desks, -(-waiters // desks), rivals=True) as opened:
            await rivalry.run(opened, seconds)
        return rivalry.figures()

    return uvloop.run(main())


class Rivalry:
    """Tasks that want one name."""

    def __init__(self, waiters: int, hold_s: float, name: str) -> None:
        self._hold_s = hold_s
        self._name = name
        self._granted = [0] * waiters
        self._handovers_ns: list[int] = []
        self._left_ns = 0
        self._elapsed_s = 0.0

    async def run(self, desks: list[peers.Desk], seconds: float) -> None:
        """Until the time is over and each task had some turns, or it takes several times as long."""
        started = perf_counter()
        tasks = [asyncio.create_task(self._want(desks[n % len(desks)], n)) for n in range(len(self._granted))]
        enough = _GRANTS_EACH * len(self._granted)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE * seconds):
                await asyncio.sleep(seconds)
                while sum(self._granted) < enough:  # noqa: ASYNC110 - to look now and then costs little
                    await asyncio.sleep(0.05)
        self._elapsed_s = perf_counter() - started
        await _ended(tasks)

    async def _want(self, desk: peers.Desk, number: int) -> None:
        while True:
            locked = await desk.lock([self._name])
            if self._left_ns:
                self._handovers_ns.append(perf_counter_ns() - self._left_ns)
            self._granted[number] += 1
            if self._hold_s:
                await asyncio.sleep(self._hold_s)
            self._left_ns = perf_counter_ns()
            await desk.unlock(locked)

    def figures(self) -> Figures:
        # If the holder never changed in all that time, a hand-over took longer than that.
        ordered = sorted(self._handovers_ns) or [int(self._elapsed_s * 1e9)]
        grants = sum(self._granted)
        return {
            "grants_per_s": grants / self._elapsed_s,
            "handover_p50_us": latency.percentile(ordered, 50) / 1e3,
            "handover_p99_us": latency.percentile(ordered, 99) / 1e3,
            "fairness": jain(self._granted),
            "of_hold_time": grants * self._hold_s / self._elapsed_s,
        }


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks, again and again: in Python 3.11 one that waits with a timeout may miss it."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.2)
    for task in tasks:
        if not task.cancelled():
            task.result()


def jain(counts: list[int]) -> float:
    """Jain's index of fairness."""
    squares = len(counts) * sum(count * count for count in counts)
    return sum(counts) ** 2 / squares if squares else 0.0
