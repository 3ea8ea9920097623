"""Shadows on an event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockNotOwnedError

from fencehold.compat.redis import Report
from fencehold.compat.redis import asyncio as compat_aio
from tests.unit.client.service import run, until
from tests.unit.compat.redises import RedisServer
from tests.unit.compat.test_redis_shadow import MEMORY, kinds


def on_a_loop(redis_at: RedisServer, test: Callable[[Any, compat_aio.Shadow, list[Report]], Any]) -> None:
    async def main() -> None:
        found: list[Report] = []
        async with (
            redis.asyncio.Redis(port=redis_at.port) as server,
            compat_aio.Shadow(server, MEMORY, found.append) as shadow,
        ):
            await server.flushall()
            await test(server, shadow, found)

    run(main())


def test_locks_of_a_loop_are_followed(redis_at: RedisServer) -> None:
    """An overlap of two tasks is found, with their names; what is normal is not reported."""

    async def test(server: Any, shadow: compat_aio.Shadow, found: list[Report]) -> None:
        async with server.lock("loop", timeout=10, lock_class=shadow.lock_class) as lock:
            await lock.extend(5)
            await lock.reacquire()
        assert await shadow.flush()
        assert (found, shadow.summary().recorded) == ([], 1)

        async def work(name: str) -> None:
            lock = shadow.lock("loop", timeout=0.1, sleep=0.01)
            await lock.acquire()
            await until(lambda: "overlap" in kinds(found))
            with pytest.raises(LockNotOwnedError):
                await lock.release()

        await asyncio.gather(*(asyncio.create_task(work(name), name=name) for name in ("task a", "task b")))
        assert await shadow.flush()
        overlap = next(report for report in found if report.kind == "overlap")
        assert overlap.other is not None
        assert {overlap.ours.owner, overlap.other.owner.partition("#")[0]} == {"task a", "task b"}
        assert kinds(found).count("late_release") == 2

    on_a_loop(redis_at, test)


def test_a_cancelled_release_can_be_tried_again(redis_at: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As redis-py has it; the record is there until the release is."""

    async def test(server: Any, shadow: compat_aio.Shadow, found: list[Report]) -> None:
        lock: Any = shadow.lock("again", timeout=10)
        await lock.acquire()
        do_release = type(lock).do_release

        async def cancelled(self: Any, token: bytes) -> None:
            raise asyncio.CancelledError

        monkeypatch.setattr(type(lock), "do_release", cancelled)
        with pytest.raises(asyncio.CancelledError):
            await lock.release()
        monkeypatch.setattr(type(lock), "do_release", do_release)
        assert await shadow.flush()
        if lock.local.token is not None:
            # Older versions forget it, and leave the lock in Redis until it expires.
            await lock.release()
        assert await shadow.flush()
        assert (found, shadow.summary().recorded) == ([], 1)

    on_a_loop(redis_at, test)
