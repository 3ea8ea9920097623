"""One hot name: how long it takes from a release to the next grant, and whether waiters get turns in order.

Each waiter asks again as soon as it has released, so in order it has its turn after that of all others. Two that
ask within the same fraction of a millisecond may be read in either order: a server that was busy meanwhile finds
both, and the kernel does not tell which came first. That moves each by a place.
"""

import asyncio
from time import perf_counter, perf_counter_ns

import uvloop

from bench import latency
from bench.samples import Figures

_PER_CLIENT = 10
_PLACES_MAX = 2
"""How far from its place one may be for that reason."""


def hand_over(port: int, waiters: int, turns: int) -> Figures:
    """`waiters` tasks on one name, each taking so many turns. `unfair` counts those out of order or left over."""
    from fencehold import aio  # noqa: PLC0415

    async def main() -> Figures:
        clients = [await aio.connect(f"fencehold://127.0.0.1:{port}") for _ in range(waiters // _PER_CLIENT)]
        try:
            return await _contend([client for client in clients for _ in range(_PER_CLIENT)], turns)
        finally:
            await asyncio.gather(*(client.close() for client in clients))

    return uvloop.run(main())


async def _contend(clients: list, turns: int) -> Figures:  # type: ignore[type-arg]
    hand_overs_ns: list[int] = []
    grants: list[int] = []
    released_ns = 0

    async def work(number: int, client: object) -> None:
        nonlocal released_ns
        for _ in range(turns):
            hold = await client.lock("hot").acquire()  # type: ignore[attr-defined]
            if released_ns:
                hand_overs_ns.append(perf_counter_ns() - released_ns)
            grants.append(number)
            released_ns = perf_counter_ns()
            await hold.release()

    started = perf_counter()
    await asyncio.gather(*(work(number, client) for number, client in enumerate(clients)))
    elapsed_ns = int((perf_counter() - started) * 1e9)
    return {**latency.figures(hand_overs_ns, elapsed_ns), "unfair": _unfair(grants, len(clients), turns)}


def _unfair(grants: list[int], waiters: int, turns: int) -> float:
    """How many grants came too early or too late for a fair queue that each joins again at its end, or never."""
    last: dict[int, int] = {}
    misplaced = 0
    for place, waiter in enumerate(grants):
        if waiter in last:
            misplaced += abs(place - last[waiter] - waiters) > _PLACES_MAX
        last[waiter] = place
    return float(misplaced + abs(waiters * turns - len(grants)) + waiters - len(last))
