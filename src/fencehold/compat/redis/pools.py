"""Fencehold clients for redis-py's clients: one for each connection pool, on the same Redis.

1. A client that was made here is kept for as long as its pool exists (on an event loop, until that ends cleanly,
   as with `asyncio.run`), or until `close`. Clients that were passed in are closed by their owner.
2. Concurrent calls get one client.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, finalize

import redis
import redis.asyncio

import fencehold
from fencehold import aio
from fencehold.compat.redis.addresses import url_of
from fencehold.compat.redis.errors import translated
from fencehold.errors import UsageError

_LATER_S = 1.0


class Clients:
    """For threads."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._made: WeakKeyDictionary[Any, fencehold.Client] = WeakKeyDictionary()

    def of(self, client: Any) -> fencehold.Client:
        """The Fencehold client for a redis-py client, connected; itself, if it is one."""
        if isinstance(client, fencehold.Client):
            return client
        pool = client.connection_pool
        with self._making:
            if pool not in self._made:
                with translated():
                    self._made[pool] = made = fencehold.connect(url_of(client))
                # On a thread: a pool may be garbage-collected on the very thread that closing waits for.
                finalize(pool, _close_elsewhere, made).atexit = False
            return self._made[pool]

    def close(self, client: Any = None) -> None:
        """Close what was made for a redis-py client; without one, all that was made."""
        with self._making:
            pools = list(self._made) if client is None else [client.connection_pool]
            closing = [self._made.pop(pool, None) for pool in pools]
        for made in closing:
            if made is not None:
                made.close()

    def on_forked(self) -> None:
        """In a child: the thread that was making a client is not here. What was made works here as well."""
        self._making = threading.Lock()


class AioClients:
    """For event loops: a client belongs to the loop it was made on."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Any, tuple[asyncio.AbstractEventLoop, asyncio.Task[_Kept]]] = (
            WeakKeyDictionary()
        )

    async def of(self, client: Any) -> aio.Client:
        """The Fencehold client for a redis-py client, connected; itself, if it is one."""
        if isinstance(client, aio.Client):
            return client
        pool, loop = client.connection_pool, asyncio.get_running_loop()
        home, making = self._made.get(pool, (None, None))
        if making is None or home is not loop or (making.done() and (making.cancelled() or making.exception())):
            # Recorded before anything is awaited: concurrent calls get the same one.
            making = loop.create_task(_made(url_of(client), pool))
            self._made[pool] = (loop, making)
        with translated():
            return (await asyncio.shield(making)).client

    async def close(self, client: Any = None) -> None:
        """Close what was made on this loop for a redis-py client; without one, for all."""
        loop = asyncio.get_running_loop()
        pools = list(self._made) if client is None else [client.connection_pool]
        for pool in pools:
            home, making = self._made.get(pool, (None, None))
            if making is not None and home is loop:
                del self._made[pool]
                await _closed(making)


class _Kept(NamedTuple):
    """A client, and what closes it."""

    client: aio.Client
    keeping: AsyncGenerator[None, None]


async def _made(url: str, pool: object) -> _Kept:
    client = await aio.connect(url)
    keeping = _keep(client)
    await anext(keeping)
    finalize(pool, _close_later, asyncio.get_running_loop(), keeping).atexit = False
    return _Kept(client, keeping)


def _close_later(loop: asyncio.AbstractEventLoop, keeping: AsyncGenerator[None, None]) -> None:
    """The pool is gone: close later. A loop about to end would cancel this halfway, and closes it anyway."""

    def close() -> None:
        closing = loop.create_task(_aclose(keeping))
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)

    # The loop is closed, and with it the generator.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(loop.call_later, _LATER_S, close)


async def _aclose(keeping: AsyncGenerator[None, None]) -> None:
    await keeping.aclose()


async def _keep(client: aio.Client) -> AsyncGenerator[None, None]:
    """Close a client when this is closed: a loop that ends cleanly closes all generators begun on it."""
    try:
        yield
    finally:
        await client.close()


async def _closed(making: "asyncio.Task[_Kept]") -> None:
    if not making.done():
        making.cancel()
    (kept,) = await asyncio.gather(making, return_exceptions=True)
    if isinstance(kept, _Kept):
        await kept.keeping.aclose()


def _close_elsewhere(client: fencehold.Client) -> None:
    threading.Thread(target=client.close, name="fencehold closing", daemon=True).start()


_closing: set[asyncio.Task[None]] = set()

clients = Clients()
aio_clients = AioClients()
atexit.register(clients.close)
os.register_at_fork(after_in_child=clients.on_forked)


def checked(client: object) -> Any:
    """A client that a blocking lock can be on.

    Raises:
        UsageError: it is of another kind.
        NotHonoured: it is redis-py's, and its Redis cannot be expressed as a URL.
    """
    if isinstance(client, fencehold.Client):
        return client
    if isinstance(client, aio.Client | redis.asyncio.Redis | redis.asyncio.RedisCluster):
        raise UsageError("that client is for an event loop: use fencehold.compat.redis.asyncio.Lock")
    url_of(client)
    return client


def aio_checked(client: object) -> Any:
    """A client that a lock on an event loop can be on; as `checked`."""
    if isinstance(client, aio.Client):
        return client
    if isinstance(client, fencehold.Client | redis.Redis | redis.RedisCluster):
        raise UsageError("that client is for threads: use fencehold.compat.redis.Lock")
    url_of(client)
    return client
