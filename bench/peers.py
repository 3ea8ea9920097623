"""Peers: whatever can lock a name, called the same way, so that one load measures all of them.

A *desk* is one client with its connection, as a process of an application has one; on each, any number of
tasks may lock and wait. Each peer is called as its own documents say: redis-py polls (`sleep` is its default of
0.1 s), etcd's Lock API needs a lease for each waiter, kazoo knows no asyncio and is called from threads.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

TTL_S = 30
"""After how long a lock of redis-py ends by itself."""
THREADS_MAX = 1_024


class Desk(Protocol):
    """One client. What `lock` returns is what `unlock` takes."""

    async def lock(self, names: Sequence[str], *, shared: bool | None = None) -> Any:
        """Lock names, once they are free: in one step where the peer can, otherwise one by one, in order.

        `shared` tells readers (True) from a writer; None: they are never shared.
        """
        ...

    async def unlock(self, locked: Any) -> None: ...


@asynccontextmanager
async def desks(
    peer: str, where: Mapping[str, Any], count: int, tasks: int = 1, *, rivals: bool = False
) -> AsyncIterator[list[Desk]]:
    """So many clients of a peer, each for so many tasks at once, which as `rivals` may want the same name."""
    async with AsyncExitStack() as stack:
        yield await _OPEN[peer](stack, where, count, tasks, rivals)


class FenceholdDesk:
    """Fencehold's SDK."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def lock(self, names: Sequence[str], *, shared: bool | None = None) -> Any:
        lock = self._client.multi(names) if len(names) > 1 else self._client.lock(names[0], shared=bool(shared))
        return await lock.acquire()

    async def unlock(self, locked: Any) -> None:
        await locked.release()


async def _fencehold(
    stack: AsyncExitStack, where: Mapping[str, Any], count: int, tasks: int, rivals: bool
) -> list[Desk]:
    from fencehold import aio  # noqa: PLC0415 - each peer needs only its own library

    clients = [aio.connect(where["url"]) for _ in range(count)]
    return [FenceholdDesk(await stack.enter_async_context(client)) for client in clients]


class RedisDesk:
    """redis-py's Lock."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def lock(self, names: Sequence[str], *, shared: bool | None = None) -> Any:
        locks = [self._client.lock(name, timeout=TTL_S, thread_local=False) for name in names]
        for lock in locks:
            await lock.acquire()
        return locks

    async def unlock(self, locked: Any) -> None:
        for lock in reversed(locked):
            await lock.release()


async def _redis(
    stack: AsyncExitStack, where: Mapping[str, Any], count: int, tasks: int, rivals: bool
) -> list[Desk]:
    from redis import asyncio as redis  # noqa: PLC0415

    # One that has a connection of its own cannot have several requests in flight, nor be called after one of them
    # was cancelled: a pool then.
    own = tasks == 1 and not rivals
    pool = {"single_connection_client": True} if own else {"max_connections": 4 * tasks}
    clients = [redis.Redis(port=where["port"], **pool) for _ in range(count)]
    return [RedisDesk(await stack.enter_async_context(client)) for client in clients]


class EtcdDesk:
    """etcd's Lock API, with enough leases that no two waiters share one."""

    def __init__(self, sessions: list[Any]) -> None:
        self._free = sessions
        self._is_alone = len(sessions) == 1

    async def lock(self, names: Sequence[str], *, shared: bool | None = None) -> Any:
        session = self._free[0] if self._is_alone else self._free.pop()
        return session, [await session.lock(name) for name in names]

    async def unlock(self, locked: Any) -> None:
        session, keys = locked
        for key in reversed(keys):
            await session.unlock(key)
        if not self._is_alone:
            self._free.append(session)


async def _etcd(
    stack: AsyncExitStack, where: Mapping[str, Any], count: int, tasks: int, rivals: bool
) -> list[Desk]:
    from bench import v3lock  # noqa: PLC0415

    made: list[Desk] = []
    for _ in range(count):
        first = v3lock.Session(where["endpoint"])
        sessions = [
            first,
            *(v3lock.Session(where["endpoint"], over=first) for _ in range(tasks - 1 if rivals else 0)),
        ]
        # The first has the connection, so it is closed last.
        for session in sessions:
            stack.push_async_callback(session.close)
        await asyncio.gather(*(session.open() for session in sessions))
        made.append(EtcdDesk(sessions))
    return made


class KazooDesk:
    """kazoo's recipes."""

    def __init__(self, client: Any, threads: ThreadPoolExecutor) -> None:
        self._client, self._threads = client, threads

    async def lock(self, names: Sequence[str], *, shared: bool | None = None) -> Any:
        kinds = {None: self._client.Lock, True: self._client.ReadLock, False: self._client.WriteLock}
        locks = [kinds[shared](f"/bench/{name.replace('/', '-')}") for name in names]
        return await self._in_thread(_acquire_all, locks)

    async def unlock(self, locked: Any) -> None:
        await self._in_thread(_release_all, locked)

    async def _in_thread(self, action: Any, locks: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, action, locks)


def _acquire_all(locks: Any) -> Any:
    for lock in locks:
        lock.acquire()
    return locks


def _release_all(locks: Any) -> None:
    for lock in reversed(locks):
        lock.release()


async def _kazoo(
    stack: AsyncExitStack, where: Mapping[str, Any], count: int, tasks: int, rivals: bool
) -> list[Desk]:
    from kazoo.client import KazooClient  # noqa: PLC0415

    crew = stack.enter_context(threads(2 * count * tasks))
    clients = [KazooClient(hosts=where["hosts"], timeout=float(TTL_S)) for _ in range(count)]
    for started in [client.start_async() for client in clients]:
        await asyncio.to_thread(started.wait, float(TTL_S))
    for client in clients:
        stack.callback(end, client)
    return [KazooDesk(client, crew) for client in clients]


def threads(count: int) -> ThreadPoolExecutor:
    """For calls that block: a thread for each, within reason."""
    return ThreadPoolExecutor(min(THREADS_MAX, count + 1))


def end(client: Any) -> None:
    """Close a client of kazoo's, and its session."""
    client.stop()
    client.close()


_OPEN: Mapping[str, Any] = {"fencehold": _fencehold, "redis": _redis, "etcd": _etcd, "kazoo": _kazoo}
