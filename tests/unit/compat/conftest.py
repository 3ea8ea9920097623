"""One Redis for all tests of this folder, and a shadow for each that wants one."""

from collections.abc import Iterator

import pytest
import redis

from fencehold.compat.redis import Report, Shadow
from tests.unit.compat.redises import RedisServer, redis_server

MEMORY = "memory://shadow"


@pytest.fixture(scope="session")
def redis_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(redis_at: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=redis_at.port) as client:
        client.flushall()
        yield client


@pytest.fixture
def reports() -> list[Report]:
    return []


@pytest.fixture
def shadow(server: redis.Redis, reports: list[Report]) -> Iterator[Shadow]:
    with Shadow(server, MEMORY, reports.append, name="worker") as made:
        yield made
