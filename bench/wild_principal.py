"""Wild clients that log in: one principal with all it can bring, beside another one.

They bring more than those of `wild_floods`: what is bounded per principal must hold however many connections it
has. `wild_wire.login` is the token that each of them shows.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from bench.wild_floods import Bite, _open_and_leave
from bench.wild_wire import Rough, again_and_again, many
from bench.wire import command

WAITERS, SESSIONS, CONNECTIONS, GUESSERS = 100_000, 10_000, 200, 64
_WAITERS_PER_SESSION = 5_000
_WAITERS_PER_NAME = 500
_PIPELINE = 50

_waiting: list[Rough] = []
"""Connections that are there as long as this process is."""


async def waits(port: int, bite: Bite, scale: float) -> None:
    """100 000 requests that wait, in queues of 500, which are withdrawn and sent again, over and over."""
    count = int(WAITERS * scale)
    names = [f"wild:queue:{number}" for number in range(-(-count // _WAITERS_PER_NAME))]
    holder = await Rough.connect(port)
    await holder.send(b"".join(command("LOCK.ACQUIRE", name, "WAIT", 0) for name in names))
    await holder.settle()
    _waiting.append(holder)
    for start in range(0, count, _WAITERS_PER_SESSION):
        _waiting.append(await _in_line(port, names, start, min(count, start + _WAITERS_PER_SESSION)))
    bite()
    for request in itertools.count(_WAITERS_PER_SESSION + 1, 100):
        for rough in _waiting[1:]:
            name = names[request % len(names)]
            numbers = range(request, request + 100)
            await rough.send(b"".join(command("LOCK.ACQUIRE", name, "REQUEST", n, "ASYNC") for n in numbers))
            await rough.send(b"".join(command("LOCK.CANCEL", n) for n in numbers))
            await rough.settle()


async def _in_line(port: int, names: list[str], start: int, stop: int) -> Rough:
    rough = await Rough.connect(port)
    await rough.send(command("HELLO", 3) + command("SESSION.OPEN", "TTL", 600_000))
    for first in range(start, stop, 500):
        asked = [
            command("LOCK.ACQUIRE", names[number // _WAITERS_PER_NAME], "REQUEST", number - start + 1, "ASYNC")
            for number in range(first, min(stop, first + 500))
        ]
        await rough.send(b"".join(asked))
        await rough.settle()
    return rough


async def opens_sessions(port: int, bite: Bite, scale: float) -> None:
    """10 000 sessions that live on, and more that are opened and closed, from 16 connections."""
    await _open_and_leave(port, int(SESSIONS * scale))
    asked = (command("SESSION.OPEN", "TTL", 30_000) + command("SESSION.CLOSE")) * 100
    await many(16, _repeating(port, asked, bite))


async def at_full_speed(port: int, bite: Bite, scale: float) -> None:
    """200 connections that acquire as fast as they are let, fifty at a time."""
    asked = b"".join(command("LOCK.ACQUIRE", f"wild:{number}", "WAIT", 0) for number in range(_PIPELINE))
    await many(int(CONNECTIONS * scale), _repeating(port, asked, bite))


async def guesses(port: int, bite: Bite, scale: float) -> None:
    """64 connections that log in with wrong secrets and tokens, again and again, ten in one go."""
    asked = (command("AUTH", "neighbour", "guessed") + command("AUTH", "token", "fht_guessed")) * 5
    await many(int(GUESSERS * scale), _repeating(port, asked, bite))


def _repeating(port: int, asked: bytes, bite: Bite) -> Callable[[int], Awaitable[None]]:
    """A connection, and another when it is ended, that sends the same for ever."""

    async def use(rough: Rough) -> None:
        while True:
            await rough.send(asked)
            bite()
            await rough.settle()
            await asyncio.sleep(0)

    return lambda _: again_and_again(port, use)


KINDS = {
    "100,000 waiting requests": waits,
    "10,000 sessions": opens_sessions,
    "200 connections at full speed": at_full_speed,
    "failing logins": guesses,
}
