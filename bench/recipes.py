"""Loads on what people lock with today on a cluster: etcd's Lock API and kazoo's Lock, in the shape of `loads`.

Every turn locks a name that was never locked before, as with Fencehold, and each peer is called the way that suits
it best here. etcd is called at the member that leads, which saves a hop. kazoo knows no asyncio: its clients are
called from as many threads as there are requests in flight. A lock of kazoo's is a node below which contenders
queue, and it stays; where names come back, its users are spared making it: so that is measured, too (`fresh` is
false).
"""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, perf_counter_ns, time_ns
from typing import Any

import uvloop

from bench import latency, loads
from bench.samples import Figures

_KAZOO_START_S = 30.0
_KAZOO_SESSION_S = 30.0
_PUT_VALUE = b"x" * 100
_STRETCH = 20
"""Operations of one kind, before the other has its turn."""


def etcd_lock(endpoint: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """Through etcd's Lock API: a connection and a lease for each client."""
    from bench import v3lock  # noqa: PLC0415 - each load needs only its own library

    async def main() -> Figures:
        sessions = [v3lock.Session(endpoint) for _ in range(connections)]
        try:
            await asyncio.gather(*(session.open() for session in sessions))
            return await loads.drive([session.turn for session in sessions], in_flight, seconds)
        finally:
            await asyncio.gather(*(session.close() for session in sessions))

    return uvloop.run(main())


def beside_put(url: str, endpoint: str, seconds: float) -> Figures:
    """One Fencehold client's acquires, and bare puts into the etcd below it, by turns of some 50 milliseconds."""
    from bench import v3lock  # noqa: PLC0415
    from fencehold import aio  # noqa: PLC0415
    from fencehold.drivers.etcd import messages, services  # noqa: PLC0415

    async def main() -> Figures:
        acquires_ns: list[int] = []
        puts_ns: list[int] = []
        channel = v3lock.channel(endpoint)
        try:
            async with aio.connect(url) as client:
                until = perf_counter() + seconds
                while perf_counter() < until:
                    await _acquire(client, acquires_ns)
                    await _put(services.KV(channel), messages.PutRequest, puts_ns)
        finally:
            await channel.close()
        return _compared(acquires_ns, puts_ns)

    return uvloop.run(main())


async def _acquire(client: Any, latencies_ns: list[int]) -> None:
    for number in range(_STRETCH):
        begun = perf_counter_ns()
        hold = await client.lock(f"bench:{number}").acquire()
        latencies_ns.append(perf_counter_ns() - begun)
        await hold.release()


async def _put(stub: Any, request: Any, latencies_ns: list[int]) -> None:
    for number in range(_STRETCH):
        begun = perf_counter_ns()
        await stub.Put(request(key=b"bench/put/%d" % number, value=_PUT_VALUE))
        latencies_ns.append(perf_counter_ns() - begun)


def _compared(acquires_ns: list[int], puts_ns: list[int]) -> Figures:
    acquire_us, put_us = (latency.percentile(sorted(each), 50) / 1e3 for each in (acquires_ns, puts_ns))
    return {"acquire_p50_us": acquire_us, "put_p50_us": put_us, "times_the_put": acquire_us / put_us}


def kazoo_lock(hosts: str, connections: int, in_flight: int, seconds: float, fresh: bool) -> Figures:
    """Through kazoo's Lock: a client for each connection, and a thread for each request in flight."""
    from kazoo.client import KazooClient  # noqa: PLC0415

    clients = [KazooClient(hosts=hosts, timeout=_KAZOO_SESSION_S) for _ in range(connections)]
    try:
        for started in [client.start_async() for client in clients]:
            if not started.wait(_KAZOO_START_S):
                raise TimeoutError(f"no ZooKeeper of {hosts} took a session within {_KAZOO_START_S:g} s")
        return _contest([client for client in clients for _ in range(in_flight)], seconds, fresh)
    finally:
        for client in clients:
            client.stop()
            client.close()


def _contest(clients: list[Any], seconds: float, fresh: bool) -> Figures:
    """Let a thread take turns through each of these clients until the time is over."""
    latencies_ns: list[int] = []
    numbers = itertools.count()
    # An earlier round's names are there still.
    root = f"/bench/{time_ns()}"
    begin = threading.Barrier(len(clients) + 1, timeout=_KAZOO_START_S)

    def turn(client: Any, name: int) -> None:
        lock = client.Lock(f"{root}-{name}")
        lock.acquire()
        lock.release()

    def work(client: Any) -> None:
        name = next(numbers)
        turn(client, name)
        begin.wait()
        until = perf_counter() + seconds
        while perf_counter() < until:
            begun = perf_counter_ns()
            turn(client, next(numbers) if fresh else name)
            latencies_ns.append(perf_counter_ns() - begun)

    with ThreadPoolExecutor(len(clients)) as threads:
        working = [threads.submit(work, client) for client in clients]
        begin.wait()
        started = perf_counter()
        for each in working:
            each.result()
    return loads.counted(latencies_ns, perf_counter() - started)
