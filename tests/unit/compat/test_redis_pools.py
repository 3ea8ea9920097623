"""Locks on the Redis that a redis-py client is for."""

import asyncio
import gc
import threading
from typing import Any

import pytest
import redis
import redis.asyncio
from redis import exceptions

import fencehold
from fencehold import aio
from fencehold.compat import redis as compat
from fencehold.compat.redis import Lock, pools
from fencehold.compat.redis import asyncio as compat_aio
from rig.processes import free_port
from tests.unit.client.service import until, until_true
from tests.unit.compat.redises import RedisServer

MEMORY = "memory://pools"


def test_a_redis_py_client_stands_for_its_redis(redis_at: RedisServer) -> None:
    """`Redis.lock` makes ours by `lock_class`, on the same server, where no fence would last."""
    with redis.Redis(port=redis_at.port) as server:
        lock, other = (server.lock("stands", timeout=30, lock_class=Lock) for _ in range(2))
        with lock:
            assert (lock.owned(), lock.locked(), lock.fence, other.acquire(blocking=False)) == (
                True,
                True,
                None,
                False,
            )
            assert isinstance(lock.hold, fencehold.Claim)
            assert lock.extend(10)
        assert other.acquire(blocking_timeout=5)
        other.release()
        compat.close(server)


def test_a_redis_that_is_not_there_is_a_connection_error() -> None:
    """As without Fencehold."""
    with redis.Redis(port=free_port()) as server, pytest.raises(exceptions.ConnectionError):
        Lock(server, "nowhere").acquire()


def test_a_redis_py_client_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the client, or by `lock_class`; there is one Fencehold client for each pool, closed with `close`."""
    made: list[str] = []
    connect = fencehold.connect

    def instead(url: str) -> fencehold.Client:
        made.append(url)
        return connect(MEMORY)

    monkeypatch.setattr(fencehold, "connect", instead)
    with redis.Redis(port=1) as one, redis.Redis(port=2) as two:
        lock = one.lock("given", timeout=5, lock_class=Lock)
        assert isinstance(lock, Lock)
        with lock, Lock(one, "other"), compat.lock(two, "third") as third:
            assert (lock.owned(), third.fence is not None) == (True, True)
        assert made == ["redis://localhost:1/0", "redis://localhost:2/0"]
        compat.close(one)
        with Lock(one, "given"):
            assert made[2:] == ["redis://localhost:1/0"]
        compat.close()


async def test_a_redis_py_client_of_a_loop_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for threads: two who ask at once get one Fencehold client, and `close` leaves no task."""
    made: list[str] = []
    connect = aio.connect

    def instead(url: str) -> Any:
        made.append(url)
        return connect(MEMORY)

    monkeypatch.setattr(aio, "connect", instead)

    async with redis.asyncio.Redis(port=1) as client:
        kind: Any = compat_aio.Lock
        locks = [client.lock(f"loop-{number}", lock_class=kind) for number in range(3)]
        assert await asyncio.gather(*(lock.acquire() for lock in locks)) == [True] * 3
        assert made == ["redis://localhost:1/0"]
        for lock in locks:
            await lock.release()
        await compat_aio.close(client)
        async with compat_aio.lock(client, "again"):
            assert len(made) == 2
        await compat_aio.close()


def test_a_client_goes_with_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever drops a redis-py client leaves no thread of ours behind."""
    connect = fencehold.connect
    monkeypatch.setattr(fencehold, "connect", lambda _: connect(MEMORY))
    before = set(threading.enumerate())
    server = redis.Redis(port=1)
    with Lock(server, "dropped"):
        assert set(threading.enumerate()) > before
    del server
    gc.collect()
    until_true(lambda: set(threading.enumerate()) <= before)


def test_a_client_goes_with_its_loop(redis_at: RedisServer) -> None:
    """Whoever knows of redis-py only closes nothing of ours, and nothing is left."""

    async def test() -> str:
        kind: Any = compat_aio.Lock
        async with redis.asyncio.Redis(port=redis_at.port) as server, server.lock("looped", lock_class=kind):
            return "held"

    for _ in range(2):
        assert asyncio.run(test()) == "held"
    gc.collect()


def test_a_client_of_a_loop_goes_with_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the loop lives on; and not halfway, where it ends at once."""
    connect = aio.connect
    made: list[aio.Client] = []

    async def connected(_: str) -> aio.Client:
        made.append(await connect(MEMORY))
        return made[-1]

    monkeypatch.setattr(aio, "connect", connected)
    monkeypatch.setattr(pools, "_LATER_S", 0.01)

    async def use() -> None:
        async with redis.asyncio.Redis(port=1) as server, compat_aio.Lock(server, "dropped"):
            pass

    async def live_on() -> None:
        await use()
        gc.collect()
        await until(lambda: not made[0]._is_open())

    asyncio.run(live_on())
    asyncio.run(use())
    assert [client._is_open() for client in made] == [False, False]
