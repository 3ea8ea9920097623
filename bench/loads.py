"""Loads: what clients do in a round, each kind through its own library, all in the same shape.

`connections` clients each keep `in_flight` tasks that acquire an uncontended name and release it, for so many
seconds. An acquire and a release each count as one operation. Runs in a process of its own.
"""

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from time import perf_counter, perf_counter_ns

import uvloop

from bench import latency
from bench.samples import Figures

Turn = Callable[[str], Awaitable[None]]
"""Acquires a name and releases it."""


async def drive(turns: list[Turn], in_flight: int, seconds: float) -> Figures:
    """Let every client take turns until the time is over."""
    latencies_ns: list[int] = []
    numbers = itertools.count()
    started = perf_counter()
    until = started + seconds

    async def work(turn: Turn) -> None:
        while perf_counter() < until:
            begun = perf_counter_ns()
            await turn(f"bench:{next(numbers)}")
            latencies_ns.append(perf_counter_ns() - begun)

    await asyncio.gather(*(work(turn) for turn in turns for _ in range(in_flight)))
    return counted(latencies_ns, perf_counter() - started)


def counted(latencies_ns: list[int], elapsed_s: float) -> Figures:
    """The figures of turns, of which each is two operations."""
    figures = dict(latency.figures(latencies_ns, int(elapsed_s * 1e9)))
    figures["ops_per_s"] *= 2
    return figures


def fencehold(port: int, connections: int, in_flight: int, seconds: float) -> Figures:
    """Through Fencehold's SDK."""
    return fencehold_at(f"fencehold://127.0.0.1:{port}", connections, in_flight, seconds)


def fencehold_at(url: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """Through Fencehold's SDK, wherever it is served."""
    from fencehold import aio  # noqa: PLC0415 - each load needs only its own library

    async def main() -> Figures:
        clients = [await aio.connect(url) for _ in range(connections)]
        try:
            return await drive([fencehold_turn(client) for client in clients], in_flight, seconds)
        finally:
            await asyncio.gather(*(client.close() for client in clients))

    return uvloop.run(main())


def fencehold_turn(client: "object") -> Turn:
    async def turn(name: str) -> None:
        hold = await client.lock(name).acquire()  # type: ignore[attr-defined]
        await hold.release()

    return turn


def acquire_only(port: int, seconds: float) -> Figures:
    """One Fencehold client, one acquire at a time: how long an acquire alone takes."""
    from fencehold import aio  # noqa: PLC0415

    async def main() -> Figures:
        latencies_ns: list[int] = []
        async with aio.connect(f"fencehold://127.0.0.1:{port}") as client:
            until = perf_counter() + seconds
            for number in itertools.count():
                begun = perf_counter_ns()
                hold = await client.lock(f"bench:{number}").acquire()
                latencies_ns.append(perf_counter_ns() - begun)
                assert hold is not None
                await hold.release()
                if perf_counter() > until:
                    break
        return latency.figures(latencies_ns, int(seconds * 1e9))

    return uvloop.run(main())


def redis_py(port: int, connections: int, in_flight: int, seconds: float) -> Figures:
    """Through redis-py's asyncio Lock."""
    from redis import asyncio as redis  # noqa: PLC0415

    async def main() -> Figures:
        clients = [redis.Redis(port=port, single_connection_client=True) for _ in range(connections)]
        try:
            return await drive([_redis_turn(client) for client in clients], in_flight, seconds)
        finally:
            await asyncio.gather(*(client.aclose() for client in clients))

    return uvloop.run(main())


def _redis_turn(client: "object") -> Turn:
    async def turn(name: str) -> None:
        lock = client.lock(name, timeout=30)  # type: ignore[attr-defined]
        await lock.acquire()
        await lock.release()

    return turn


def python_redis_lock(port: int, connections: int, in_flight: int, seconds: float) -> Figures:
    """Through python-redis-lock, which knows no asyncio: a thread for each client."""
    import redis  # noqa: PLC0415
    import redis_lock  # noqa: PLC0415

    latencies_ns: list[int] = []
    numbers = itertools.count()
    started = perf_counter()

    def work() -> None:
        with redis.Redis(port=port) as client:
            while perf_counter() < started + seconds:
                begun = perf_counter_ns()
                lock = redis_lock.Lock(client, f"bench:{next(numbers)}", expire=30)
                lock.acquire()
                lock.release()
                latencies_ns.append(perf_counter_ns() - begun)

    threads = [threading.Thread(target=work) for _ in range(connections * in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counted(latencies_ns, perf_counter() - started)
