"""Loads through locks and the libraries people use today: one client of each, and so many tasks or threads.

Each acquires an uncontended name and releases it, for so many seconds; an acquire and a release each count as
one operation. Runs in a process of its own.
"""

import itertools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter, perf_counter_ns
from typing import Any

import uvloop

from bench.loads import Turn, counted, drive
from bench.samples import Figures

TTL_S = 30

BlockingTurn = Callable[[str], None]
"""Acquires a name and releases it."""


def in_threads(turns: list[BlockingTurn], seconds: float) -> Figures:
    """Let every thread take turns until the time is over."""
    latencies_ns: list[int] = []
    numbers = itertools.count()
    started = perf_counter()

    def work(turn: BlockingTurn) -> None:
        while perf_counter() < started + seconds:
            begun = perf_counter_ns()
            turn(f"bench:{next(numbers)}")
            latencies_ns.append(perf_counter_ns() - begun)

    threads = [threading.Thread(target=work, args=(turn,)) for turn in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counted(latencies_ns, perf_counter() - started)


def alone(turn: BlockingTurn, seconds: float) -> Figures:
    """Take turns on this thread until the time is over."""
    latencies_ns: list[int] = []
    started = perf_counter()
    while perf_counter() < started + seconds:
        begun = perf_counter_ns()
        turn(f"bench:{len(latencies_ns)}")
        latencies_ns.append(perf_counter_ns() - begun)
    return counted(latencies_ns, perf_counter() - started)


def fencehold_tasks(url: str, tier: str, workers: int, seconds: float) -> Figures:
    """Through Fencehold's SDK, on an event loop."""
    from fencehold import Tier, aio  # noqa: PLC0415 - each load needs only its own library

    async def main() -> Figures:
        async with aio.connect(url) as client:

            async def turn(name: str) -> None:
                hold = await client.lock(name, tier=Tier(tier)).acquire()
                assert hold is not None
                await hold.release()

            return await drive([turn], workers, seconds)

    return uvloop.run(main())


def fencehold_threads(url: str, tier: str, workers: int, seconds: float) -> Figures:
    """Through Fencehold's SDK, in threads."""
    import fencehold  # noqa: PLC0415

    with fencehold.connect(url) as client:

        def turn(name: str) -> None:
            hold = client.lock(name, tier=fencehold.Tier(tier)).acquire()
            assert hold is not None
            hold.release()

        return in_threads([turn] * workers, seconds)


def redis_py_tasks(ports: list[int], workers: int, seconds: float) -> Figures:
    """Through redis-py's asyncio Lock."""
    from redis import asyncio as redis  # noqa: PLC0415

    async def main() -> Figures:
        async with redis.Redis(port=ports[0]) as client:
            return await drive([_redis_turn(client)], workers, seconds)

    return uvloop.run(main())


def _redis_turn(client: Any) -> Turn:
    async def turn(name: str) -> None:
        lock = client.lock(name, timeout=TTL_S)
        await lock.acquire()
        await lock.release()

    return turn


def redis_py_threads(ports: list[int], workers: int, seconds: float) -> Figures:
    """Through redis-py's Lock."""
    import redis  # noqa: PLC0415

    with redis.Redis(port=ports[0]) as client:

        def turn(name: str) -> None:
            lock = client.lock(name, timeout=TTL_S)
            lock.acquire()
            lock.release()

        return in_threads([turn] * workers, seconds)


def fencehold_alone(port: int, tier: str, seconds: float) -> Figures:
    """Through Fencehold's SDK, by the main thread alone, as in a worker process of a web server."""
    import fencehold  # noqa: PLC0415

    with fencehold.connect(f"fencehold://127.0.0.1:{port}") as client:

        def turn(name: str) -> None:
            client.lock(name, tier=fencehold.Tier(tier)).acquire().release()

        return alone(turn, seconds)


def redis_py_alone(port: int, seconds: float) -> Figures:
    """Through redis-py's Lock, by the main thread alone."""
    import redis  # noqa: PLC0415

    with redis.Redis(port=port) as client:

        def turn(name: str) -> None:
            lock = client.lock(name, timeout=TTL_S)
            lock.acquire()
            lock.release()

        return alone(turn, seconds)


def python_redis_lock_threads(ports: list[int], workers: int, seconds: float) -> Figures:
    """Through python-redis-lock."""
    import redis  # noqa: PLC0415
    import redis_lock  # noqa: PLC0415

    with redis.Redis(port=ports[0]) as client:

        def turn(name: str) -> None:
            lock = redis_lock.Lock(client, name, expire=TTL_S)
            lock.acquire()
            lock.release()

        return in_threads([turn] * workers, seconds)


def redlock_py_threads(ports: list[int], workers: int, seconds: float) -> Figures:
    """Through redlock-py."""
    import redlock  # noqa: PLC0415

    manager = redlock.Redlock([{"host": "127.0.0.1", "port": port} for port in ports])

    def turn(name: str) -> None:
        lock = manager.lock(name, TTL_S * 1000)
        assert lock
        manager.unlock(lock)

    return in_threads([turn] * workers, seconds)


def pottery_threads(ports: list[int], workers: int, seconds: float) -> Figures:
    """Through pottery's Redlock."""
    import pottery  # noqa: PLC0415
    import redis  # noqa: PLC0415

    with ExitStack() as stack:
        masters = {stack.enter_context(redis.Redis(port=port)) for port in ports}

        def turn(name: str) -> None:
            lock = pottery.Redlock(key=name, masters=masters, auto_release_time=TTL_S)
            assert lock.acquire()
            lock.release()

        return in_threads([turn] * workers, seconds)


def kazoo_threads(hosts: str, workers: int, seconds: float) -> Figures:
    """Through kazoo's Lock."""
    from kazoo.client import KazooClient  # noqa: PLC0415

    client = KazooClient(hosts)
    client.start()
    try:

        def turn(name: str) -> None:
            lock = client.Lock(f"/bench/{name}")
            lock.acquire()
            lock.release()

        return in_threads([turn] * workers, seconds)
    finally:
        client.stop()
        client.close()
