"""Wild clients that ask for more than is theirs on one connection: pipelines without end."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import hiredis

from bench.wild_wire import Rough, again_and_again, many
from bench.wire import Wire, command

Bite = Callable[[], None]
"""Called when the harm begins."""

_BATCH = 1_000
_LISTS = 16_000
_HELD = 10_000
_HELD_PER_SESSION = 5_000
_NAME_BYTES = 60_000
_REFUSED = 2_000
_ENDS = (0, "0", "", None)
"""Cursors after which there is no more."""


_crowd: list[Rough] = []
"""Connections that are there as long as this process is."""


async def _hold_names(port: int, count: int) -> None:
    """Have so many names held."""
    for first in range(0, count, _HELD_PER_SESSION):
        rough = await Rough.connect(port)
        _crowd.append(rough)
        for start in range(first, min(count, first + _HELD_PER_SESSION), _BATCH):
            names = range(start, min(count, start + _BATCH))
            await rough.send(
                b"".join(command("LOCK.ACQUIRE", f"wild:held:{number}", "WAIT", 0) for number in names)
            )
            await rough.settle()


async def lists(port: int, bite: Bite, scale: float) -> None:
    """16 000 pipelined `LOCK.LIST COUNT 1`, again and again, while 10 000 names are held."""
    await _hold_names(port, int(_HELD * scale))
    asked = command("LOCK.LIST", "COUNT", 1) * _LISTS

    async def use(rough: Rough) -> None:
        while True:
            await rough.send(asked)
            bite()
            await rough.settle()

    await again_and_again(port, use)


async def refused_names(port: int, bite: Bite, scale: float) -> None:
    """2 000 acquires of names of 60 kB, all refused, again and again."""
    asked = command("LOCK.ACQUIRE", "n" * _NAME_BYTES, "WAIT", 0) * 20

    async def use(rough: Rough) -> None:
        while True:
            for _ in range(_REFUSED // 20):
                await rough.send(asked)
                bite()
            await rough.settle()

    await again_and_again(port, use)


async def acquires(port: int, bite: Bite, scale: float) -> None:
    """Acquires and releases, a thousand at a time, from one connection."""
    while True:
        wire = await Wire.open(port)
        try:
            await _acquire_and_release(wire, bite)
        except OSError:
            await asyncio.sleep(0.02)


async def _acquire_and_release(wire: Wire, bite: Bite) -> None:
    names = [f"wild:flood:{number}" for number in range(_BATCH)]
    while True:
        for name in names:
            wire.send("LOCK.ACQUIRE", name, "WAIT", 0)
        bite()
        fences = [_fence(await _any_reply(wire)) for _ in names]
        held = [(name, fence) for name, fence in zip(names, fences, strict=True) if fence]
        for name, fence in held:
            wire.send("LOCK.RELEASE", name, fence)
        for _ in held:
            await _any_reply(wire)


async def _any_reply(wire: Wire) -> Any:
    try:
        return await wire.reply()
    except RuntimeError as error:
        # Refused, as a flood should be.
        return error


def _fence(grant: Any) -> int:
    return int(dict(zip(grant[::2], grant[1::2], strict=True))["fence"]) if isinstance(grant, list) else 0


async def keep_alives(port: int, bite: Bite, scale: float) -> None:
    """Keep-alives of one session, ten thousand at a time."""
    asked = command("SESSION.KEEPALIVE") * 10_000

    async def use(rough: Rough) -> None:
        await rough.send(command("SESSION.OPEN", "TTL", 30_000))
        while True:
            await rough.send(asked)
            bite()
            await rough.settle()

    await again_and_again(port, use)


async def opens_and_closes(port: int, bite: Bite, scale: float) -> None:
    """Sessions that are opened and closed, a thousand in one pipeline."""
    asked = (command("SESSION.OPEN", "TTL", 30_000) + command("SESSION.CLOSE")) * _BATCH

    async def use(rough: Rough) -> None:
        while True:
            await rough.send(asked)
            bite()
            await rough.settle()

    await again_and_again(port, use)


async def comes_and_goes(port: int, bite: Bite, scale: float) -> None:
    """Connections that are made, take a lock and are dropped, sixteen at once."""
    numbers = itertools.count()

    async def use(rough: Rough) -> None:
        await rough.send(command("LOCK.ACQUIRE", f"wild:gone:{next(numbers)}", "WAIT", 0))
        await rough.settle()
        bite()

    await many(16, lambda _: again_and_again(port, use))


async def lists_everything(port: int, bite: Bite, scale: float) -> None:
    """20 000 sessions, a queue of 900 waiters: `SESSION.LIST` and `LOCK.INFO`, asked for in a loop."""
    await _open_and_leave(port, int(20_000 * scale))
    # Kept while this runs: their sessions live, and they wait.
    _crowd.extend([await _wait_in_line(port, number) for number in range(10)])
    while True:
        reader = Listing(await Wire.open(port))
        try:
            while True:
                bite()
                await reader.sessions()
                await reader.waiters()
        except OSError:
            await asyncio.sleep(0.02)


async def _open_and_leave(port: int, count: int) -> None:
    """Sessions whose connections are gone, and who live on for ten minutes."""
    opening = command("SESSION.OPEN", "TTL", 600_000, "GRACE", 600_000, "META", '{"client": "wild"}')
    left = iter(range(count))

    async def open_some(_: int) -> None:
        for _ in left:
            rough = await Rough.connect(port)
            await rough.send(opening)
            await rough.settle()
            rough.end()

    await many(32, open_some)


async def _wait_in_line(port: int, number: int) -> Rough:
    rough = await Rough.connect(port)
    await rough.send(command("HELLO", 3) + command("SESSION.OPEN", "TTL", 600_000))
    await rough.settle()
    waiting = [
        command("LOCK.ACQUIRE", "wild:queue", "REQUEST", request, "OWNER", f"{number}-{request}", "ASYNC")
        for request in range(1, 91)
    ]
    await rough.send(b"".join(waiting))
    await rough.settle()
    return rough


class Listing:
    """Asks for all there is, page by page where there are pages, and whole where there are none."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._is_paged = True

    async def sessions(self) -> None:
        """All sessions."""
        cursor: Any = 0
        while (reply := await self._ask("SESSION.LIST", "CURSOR", cursor)) is not None:
            is_page = isinstance(reply, list) and len(reply) == 2 and isinstance(reply[1], list)
            cursor = reply[0] if is_page else 0
            if cursor in _ENDS:
                return

    async def waiters(self) -> None:
        """The waiters for the name with the long queue."""
        cursor: Any = 0
        while (reply := await self._ask("LOCK.INFO", "wild:queue", "WAITERS", cursor)) is not None:
            told = dict(zip(reply[::2], reply[1::2], strict=True)) if isinstance(reply, list) else {}
            cursor = told.get("waiters_cursor", 0)
            if cursor in _ENDS:
                return

    async def _ask(self, *words: str | int) -> Any:
        """A page of the largest size; without pages, all of it. None: it was refused."""
        reply = None
        if self._is_paged:
            reply = await _tolerant(self._wire, *words, "COUNT", 1_000)
            self._is_paged = not str(reply).startswith("USAGE")
        if not self._is_paged:
            # The last two words are the cursor.
            reply = await _tolerant(self._wire, *words[:-2])
        return None if isinstance(reply, RuntimeError) else reply


async def _tolerant(wire: Wire, *words: str | int) -> Any:
    wire.send(*words)
    try:
        return await _any_reply(wire)
    except hiredis.ProtocolError as error:
        raise ConnectionError("what came is no reply") from error
