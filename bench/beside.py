"""Loads beside a crowd that is only there: names that are held, sessions that live; and a session that ends.

A crowd is made the quickest way its peer has (many names in one request, pipelines, transactions), for only its
size matters. What is measured beside it is the same for all: 16 clients that lock and unlock names of their own.
"""

import asyncio
import contextlib
import itertools
import resource
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter, time_ns
from typing import Any

import uvloop

from bench import children, crowds, idle, peers, procfs
from bench.samples import Figures
from bench.wire import Wire

CLIENTS = 16
SESSION_HOLDS_MAX = 9_984
"""Of one session of Fencehold, a multiple of what one request takes."""
REQUEST_NAMES_MAX = 64
CONNECTIONS_MAX = 15_000
"""Connections that Fencehold's listener takes, with some for others. Sessions beyond it have lost theirs, and wait
for their clients to come back."""
_AWAY_MS = 600_000
_KEEP_ALIVE_S = 20.0
_STEP = 500
_PIPELINE = 10_000
_TRANSACTION = 100
_SOON_S = 0.05
_CROWD_S = 120.0


def names(peer: str, where: Mapping[str, Any], held: int, seconds: float) -> Figures:
    """Locks and unlocks beside so many names that stay locked."""

    async def main() -> Figures:
        stamp, numbers = time_ns(), itertools.count()
        async with _HELD[peer](where, held), peers.desks(peer, where, CLIENTS) as desks:
            figures = await crowds.driven(desks, 1, seconds, lambda: [f"t{stamp}:{next(numbers)}"])
            return {**figures, "server_mb": procfs.resident_mb(where["pid"])}

    return uvloop.run(main())


def _stamped(count: int) -> list[str]:
    stamp = time_ns()
    return [f"held:{stamp}:{number:08}" for number in range(count)]


@asynccontextmanager
async def _held_fencehold(where: Mapping[str, Any], count: int) -> AsyncIterator[None]:
    """As few sessions as may hold them, which end with their connections."""
    async with AsyncExitStack() as stack:
        held = _stamped(count)
        for first in range(0, count, SESSION_HOLDS_MAX):
            wire = await Wire.open(where["port"])
            stack.push_async_callback(wire.close)
            own = held[first : first + SESSION_HOLDS_MAX]
            batches = [own[start : start + REQUEST_NAMES_MAX] for start in range(0, len(own), REQUEST_NAMES_MAX)]
            for batch in batches:
                wire.send("LOCK.MACQUIRE", len(batch), *batch)
            for _ in batches:
                await wire.reply()
        yield


@asynccontextmanager
async def _held_redis(where: Mapping[str, Any], count: int) -> AsyncIterator[None]:
    from redis import asyncio as redis  # noqa: PLC0415

    async with redis.Redis(port=where["port"]) as client:
        held = _stamped(count)
        for first in range(0, count, _PIPELINE):
            pipeline = client.pipeline(transaction=False)
            for name in held[first : first + _PIPELINE]:
                pipeline.set(name, "0123456789abcdef0123456789abcdef", nx=True, px=_AWAY_MS)
            await pipeline.execute()
        try:
            yield
        finally:
            await client.flushall()


@asynccontextmanager
async def _held_etcd(where: Mapping[str, Any], count: int) -> AsyncIterator[None]:
    """The keys that etcd's Lock API would have made: the name and the lease."""
    from bench import v3lock  # noqa: PLC0415
    from fencehold.drivers.etcd import messages, services  # noqa: PLC0415
    from fencehold.drivers.etcd.transactions import put, transaction  # noqa: PLC0415

    channel = v3lock.channel(where["endpoint"])
    leases, kv = services.Lease(channel), services.KV(channel)
    lease = (await leases.LeaseGrant(messages.LeaseGrantRequest(TTL=_AWAY_MS // 1_000))).ID
    keys = [f"{name}/{lease:x}".encode() for name in _stamped(count)]
    for first in range(0, count, _TRANSACTION):
        await kv.Txn(transaction(then=[put(key, b"", lease) for key in keys[first : first + _TRANSACTION]]))
    try:
        yield
    finally:
        await leases.LeaseRevoke(messages.LeaseRevokeRequest(ID=lease))
        await channel.close()


_HELD: Mapping[str, Any] = {"fencehold": _held_fencehold, "redis": _held_redis, "etcd": _held_etcd}


async def sessions(peer: str, where: Mapping[str, Any], living: int, seconds: float) -> Figures:
    """Locks and unlocks beside so many sessions, whose keep-alives come from a process of their own."""
    numbers, stamp = itertools.count(), time_ns()
    with tempfile.TemporaryDirectory() as folder:
        crowd = children.running("sessions", live, Path(folder), peer=peer, where=dict(where), count=living)
        async with crowd as child:
            await child.hear(_CROWD_S)
            async with peers.desks(peer, where, CLIENTS) as desks:
                figures = await crowds.driven(desks, 1, seconds, lambda: [f"t{stamp}:{next(numbers)}"])
            return {**figures, "server_mb": procfs.resident_mb(where["pid"])}


async def live(talk: children.Talk, peer: str, where: Mapping[str, Any], count: int) -> None:
    """Be the crowd: open so many sessions, and keep them alive until the parent is done."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with contextlib.AsyncExitStack() as stack:
        lives = await _LIVING[peer](stack, where, count)
        talk.say(living=count)
        await asyncio.gather(*lives)


async def _live_fencehold(stack: AsyncExitStack, where: Mapping[str, Any], count: int) -> list[Awaitable[None]]:
    loop = asyncio.get_running_loop()
    clients: list[idle.Client] = []
    for _ in range(min(count, CONNECTIONS_MAX)):
        clients.append((await loop.create_connection(idle.Client, "127.0.0.1", where["port"]))[1])
    await asyncio.gather(*(client.opened for client in clients))
    for _ in range(count - len(clients)):
        wire = await Wire.open(where["port"])
        await wire.ask("SESSION.OPEN", "TTL", _AWAY_MS, "GRACE", _AWAY_MS)
        await wire.close()
    return [client.live(3_600) for client in clients]


async def _live_etcd(stack: AsyncExitStack, where: Mapping[str, Any], count: int) -> list[Awaitable[None]]:
    """Leases, kept alive over one stream, as etcd's own client does."""
    from bench import v3lock  # noqa: PLC0415
    from fencehold.drivers.etcd import messages, services  # noqa: PLC0415

    channel = v3lock.channel(where["endpoint"])
    stack.push_async_callback(channel.close)
    service = services.Lease(channel)
    leases: list[int] = []
    for first in range(0, count, _STEP):
        asked = (service.LeaseGrant(messages.LeaseGrantRequest(TTL=60)) for _ in range(min(_STEP, count - first)))
        leases += [granted.ID for granted in await asyncio.gather(*asked)]
    stream = service.LeaseKeepAlive()

    async def keep() -> None:
        for lease in itertools.cycle(leases):
            await stream.write(messages.LeaseKeepAliveRequest(ID=lease))
            await stream.read()
            await asyncio.sleep(_KEEP_ALIVE_S / count)

    return [keep()]


_LIVING: Mapping[str, Any] = {"fencehold": _live_fencehold, "etcd": _live_etcd}


def death(peer: str, where: Mapping[str, Any], holds: int) -> Figures:
    """A session that holds so many names ends, and each of them is awaited: how long until the last is granted.

    The session is ended by its owner, so that no ttl is part of the time. With etcd it is a lease that is revoked,
    with kazoo a session that is closed. The waiters are spread over 16 clients.
    """

    async def main() -> Figures:
        lasts: list[float] = []
        held = _stamped(holds)

        async def wait(name: str, desk: peers.Desk) -> None:
            await desk.lock([name])
            lasts.append(perf_counter())

        async with AsyncExitStack() as stack:
            die, waiting = await _DOOMED[peer](stack, where, held)
            desks = await stack.enter_async_context(peers.desks(peer, where, CLIENTS, -(-holds // CLIENTS)))
            tasks = [asyncio.create_task(wait(*pair)) for pair in zip(held, itertools.cycle(desks), strict=False)]
            while await waiting() < holds:  # noqa: ASYNC110 - a server is asked
                await asyncio.sleep(_SOON_S)
            started = perf_counter()
            await die()
            await asyncio.gather(*tasks)
        took_s = max(lasts) - started
        return {"last_grant_ms": took_s * 1e3, "per_hold_us": took_s / holds * 1e6}

    return uvloop.run(main())


Doomed = tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[int]]]
"""How the session is ended, and how many wait for its names by now."""


async def _doomed_fencehold(stack: AsyncExitStack, where: Mapping[str, Any], held: list[str]) -> Doomed:
    from fencehold import aio  # noqa: PLC0415

    client = await aio.connect(where["url"])
    stack.push_async_callback(client.close)
    batches = [held[first : first + REQUEST_NAMES_MAX] for first in range(0, len(held), REQUEST_NAMES_MAX)]
    await asyncio.gather(*(client.multi(batch).acquire() for batch in batches))
    wire = await Wire.open(where["port"])
    stack.push_async_callback(wire.close)

    async def waiting() -> int:
        return (await wire.info())["waiters"]

    return client.close, waiting


async def _doomed_etcd(stack: AsyncExitStack, where: Mapping[str, Any], held: list[str]) -> Doomed:
    from bench import v3lock  # noqa: PLC0415
    from fencehold.drivers.etcd import messages, services  # noqa: PLC0415

    session = v3lock.Session(where["endpoint"])
    await session.open()
    await asyncio.gather(*(session.lock(name) for name in held))
    channel = v3lock.channel(where["endpoint"])
    stack.push_async_callback(channel.close)
    start = held[0].rpartition(":")[0].encode()
    counting = messages.RangeRequest(key=start + b":", range_end=start + b";", count_only=True)

    async def waiting() -> int:
        return int((await services.KV(channel).Range(counting)).count) - len(held)

    return session.close, waiting


async def _doomed_kazoo(stack: AsyncExitStack, where: Mapping[str, Any], held: list[str]) -> Doomed:
    from kazoo.client import KazooClient  # noqa: PLC0415

    client, looker = (KazooClient(hosts=where["hosts"], timeout=float(peers.TTL_S)) for _ in range(2))
    for each in (client, looker):
        await asyncio.to_thread(each.start)
    stack.callback(peers.end, looker)
    desk = peers.KazooDesk(client, stack.enter_context(peers.threads(len(held))))
    await asyncio.gather(*(desk.lock([name]) for name in held))

    def count() -> int:
        return sum(len(looker.get_children(f"/bench/{name}")) - 1 for name in held)

    async def die() -> None:
        await asyncio.to_thread(peers.end, client)

    async def waiting() -> int:
        return await asyncio.to_thread(count)

    return die, waiting


_DOOMED: Mapping[str, Any] = {"fencehold": _doomed_fencehold, "etcd": _doomed_etcd, "kazoo": _doomed_kazoo}
