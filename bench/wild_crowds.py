"""Wild clients that come in numbers: who never read, wait for much, watch, say nothing, or take a byte at a
time.
"""

import asyncio
import contextlib
import itertools
import random

from bench.wild_floods import Bite, acquires
from bench.wild_wire import Rough, again_and_again, many, now_and_then, open_files_max
from bench.wire import command

_UNREAD_CONNECTIONS = 100
_UNREAD_S = 1.0
"""Once its buffers are full a connection does nothing more: then it is dropped, and made again."""
_QUEUED, _QUEUED_PER_SESSION, _NAMES = 980, 140, 64
"""A session waits for 10 000 names at the most."""
_IDLE, _SLOW = 3_000, 500
_crowd: list[Rough] = []
"""Connections that are there as long as this process is."""


async def never_read(port: int, bite: Bite, scale: float) -> None:
    """100 connections that pipeline acquires, releases and PINGs, and never read; made again now and then."""

    async def make(number: int) -> None:
        names = (f"wild:{number}:{turn}" for turn in range(1_000))
        asked = b"".join(
            command("LOCK.ACQUIRE", name, "WAIT", 0) + command("LOCK.RELEASE", name, 1) + command("PING")
            for name in names
        )

        async def use(rough: Rough) -> None:
            bite()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(0.5, 1.5) * _UNREAD_S):
                    while True:
                        await rough.send(asked)

        await again_and_again(port, use, reads=False)

    await many(_UNREAD_CONNECTIONS, make)


async def waiters(port: int, bite: Bite, scale: float) -> None:
    """980 waiters for 64 names each, and asks that come behind them."""
    names = [f"wild:{number:02}" for number in range(_NAMES)]
    holder = await Rough.connect(port)
    _crowd.append(holder)
    await holder.send(command("LOCK.MACQUIRE", _NAMES, *names))
    await holder.settle()
    # The search for circles is at its work from the first of them on.
    bite()
    for first in range(0, int(_QUEUED * scale), _QUEUED_PER_SESSION):
        _crowd.append(await _queue_up(port, names, first))

    async def use(rough: Rough) -> None:
        await rough.send(command("HELLO", 3) + command("SESSION.OPEN", "TTL", 30_000))
        for request in itertools.count(1):
            what = ("WAIT", 50, "REQUEST", request, "ANSWERED", request - 1, "OWNER", f"late-{request}", "ASYNC")
            await rough.send(command("LOCK.MACQUIRE", _NAMES, *names, *what))
            bite()
            if request % 4 == 0:
                await rough.settle()

    await again_and_again(port, use)


async def _queue_up(port: int, names: list[str], first: int) -> Rough:
    rough = await Rough.connect(port)
    await rough.send(command("HELLO", 3) + command("SESSION.OPEN", "TTL", 600_000))
    await rough.settle()
    for request in range(1, _QUEUED_PER_SESSION + 1):
        what = ("REQUEST", request, "OWNER", f"owner-{first}-{request}", "ASYNC")
        await rough.send(command("LOCK.MACQUIRE", _NAMES, *names, *what))
    await rough.settle()
    return rough


async def _watched(port: int, bite: Bite, count: int, prefix: str) -> None:
    """So many watchers, and a load for them to watch."""

    async def watch(rough: Rough) -> None:
        await rough.send(command("HELLO", 3) + command("LOCK.WATCH", prefix))
        await rough.settle()
        bite()
        await rough.closed(3_600)

    async with asyncio.TaskGroup() as group:
        group.create_task(many(count, lambda _: again_and_again(port, watch)))
        group.create_task(acquires(port, lambda: None, 1.0))


async def few_watchers(port: int, bite: Bite, scale: float) -> None:
    """50 watchers of a prefix that nothing happens to."""
    await _watched(port, bite, 50, "elsewhere:")


async def many_watchers(port: int, bite: Bite, scale: float) -> None:
    """200 watchers of a prefix that nothing happens to."""
    await _watched(port, bite, 200, "elsewhere:")


async def all_watchers(port: int, bite: Bite, scale: float) -> None:
    """200 watchers of everything."""
    await _watched(port, bite, 200, "")


async def idle(port: int, bite: Bite, scale: float) -> None:
    """3 000 connections that say nothing."""
    open_files_max()
    crowd = [await Rough.connect(port) for _ in range(int(_IDLE * scale))]
    bite()
    await asyncio.gather(*(rough.closed(3_600) for rough in crowd))


async def slow(port: int, bite: Bite, scale: float) -> None:
    """500 connections: half of them write a byte now and then, half of them read one."""
    open_files_max()

    async def write(rough: Rough) -> None:
        for byte in itertools.cycle(command("LOCK.INFO", "wild:slow", "STALE")):
            await rough.send(bytes([byte]))
            await now_and_then(0.1)

    async def read(rough: Rough) -> None:
        await rough.send(command("INFO") * 400)
        bite()
        while not rough.is_closed:
            assert rough.transport is not None
            rough.transport.resume_reading()
            await asyncio.sleep(0)
            rough.transport.pause_reading()
            await now_and_then(0.2)

    half = int(_SLOW * scale) // 2
    async with asyncio.TaskGroup() as group:
        group.create_task(many(half, lambda _: again_and_again(port, write)))
        group.create_task(many(half, lambda _: again_and_again(port, read, reads=False)))
