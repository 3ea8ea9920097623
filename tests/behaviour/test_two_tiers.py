"""Two tiers over two sources, one of them a Redis that is killed and comes back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fencehold
from fencehold import EFFICIENCY, Unavailable, aio
from rig.redis import Redis
from tests.unit.client.service import until, until_true

PATIENCE_S = 0.5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    redis = Redis(tmp_path)
    redis.start()
    try:
        yield redis
    finally:
        redis.stop()


def routed(server: Redis) -> dict[str, Any]:
    return {"correctness": "memory://two-tiers", "efficiency": server.url, "connect_timeout": PATIENCE_S}


def test_threads_go_on_without_a_redis_and_with_it_again(server: Redis) -> None:
    """While it is dead, claims say that nothing protects them; what protects state is as ever."""
    with fencehold.connect(**routed(server), on_unavailable="proceed") as client:
        lock = client.lock("report", tier=EFFICIENCY, timeout=0)

        def is_protected() -> bool:
            with lock as claim:
                return claim.is_protected

        assert is_protected()
        server.stop()
        assert [is_protected() for _ in range(5)] == [False] * 5
        with client.lock("report") as hold:
            assert hold.is_protected
        server.start()
        until_true(is_protected)


async def test_tasks_go_on_without_a_redis_and_with_it_again(server: Redis) -> None:
    """The async client does the same."""
    async with aio.connect(**routed(server), on_unavailable="proceed", lazy=False) as client:
        lock = client.lock("report", tier=EFFICIENCY, timeout=0)

        async def is_protected() -> bool:
            async with lock as claim:
                return claim.is_protected

        assert await is_protected()
        server.stop()
        assert [await is_protected() for _ in range(5)] == [False] * 5
        async with client.lock("report") as hold:
            assert hold.is_protected
        server.start()
        await until(is_protected)


def test_a_redis_used_directly_has_a_breaker(server: Redis) -> None:
    """While it is dead, nobody waits for it for long; when it is back, it is found without anybody's help."""

    def says(words: str) -> bool:
        with pytest.raises((Unavailable, fencehold.OutcomeUnknown)) as failed:
            lock.acquire()
        return words in str(failed.value)

    def is_had() -> bool:
        try:
            with lock:
                return True
        except Unavailable:
            return False

    with fencehold.connect(server.url, connect_timeout=PATIENCE_S) as client:
        lock = client.lock("report", tier=EFFICIENCY, timeout=0)
        assert is_had()
        server.stop()
        until_true(lambda: says("redis:// cannot be reached; next try in"))
        server.start()
        until_true(is_had)
