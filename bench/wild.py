"""Wild clients: one kind in a process of its own, which runs until it is killed.

Each is a coroutine that gets the port, what to call when it has begun to bite, and a scale: how much of
its usual crowd it brings, so that a short run can bring a smaller one. Clients that are disconnected come back.
"""

from collections.abc import Awaitable, Callable

from bench import wild_crowds, wild_floods, wild_frames, wild_principal, wild_wire
from bench.children import Talk
from bench.wild_floods import Bite

Wild = Callable[[int, Bite, float], Awaitable[None]]

KINDS: dict[str, Wild] = {
    "16,000 LOCK.LIST at a time, 10,000 names held": wild_floods.lists,
    "2,000 acquires of 60 kB names": wild_floods.refused_names,
    "heads of 8 and 64 KB": wild_frames.promising_heads,
    "100 connections that never read": wild_crowds.never_read,
    "980 waiters for 64 names": wild_crowds.waiters,
    "50 watchers of another prefix": wild_crowds.few_watchers,
    "200 watchers of another prefix": wild_crowds.many_watchers,
    "200 watchers of everything": wild_crowds.all_watchers,
    "20,000 sessions, listed": wild_floods.lists_everything,
    "mutated frames": wild_frames.mutated_frames,
    "random bytes": wild_frames.random_bytes,
    "3,000 idle connections": wild_crowds.idle,
    "500 slow connections": wild_crowds.slow,
    "a flood of acquires": wild_floods.acquires,
    "a flood of keep-alives": wild_floods.keep_alives,
    "a flood of sessions": wild_floods.opens_and_closes,
    "a flood of connections": wild_floods.comes_and_goes,
}


async def run(talk: Talk, kind: str, port: int, scale: float, login: str = "") -> None:
    """Be wild; with a token, logged in."""
    wild_wire.login = login
    told = False

    def bite() -> None:
        nonlocal told
        if not told:
            told = True
            talk.say(biting=kind)

    await {**KINDS, **wild_principal.KINDS}[kind](port, bite, scale)
