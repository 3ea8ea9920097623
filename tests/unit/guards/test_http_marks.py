"""Stores of marks: each raises a mark in one step, whoever else does, and never lets it go back."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from fencehold import LimitExceeded, StaleFence, Unavailable, UsageError
from fencehold.guards import Offer
from fencehold.guards.marks import GuardMarks, MarkStore, MemoryMarks
from fencehold.guards.marks_redis import RedisMarks
from fencehold.guards.marks_sqlite import SqliteMarks
from rig.processes import free_port
from rig.redis import Redis


async def raised(marks: MarkStore, name: str, fence: int) -> int:
    """The mark after, however the store tells it."""
    try:
        return await marks.raise_to(name, fence)
    except StaleFence as error:
        return error.mark


Opened = Callable[..., AbstractAsyncContextManager[Any]]
WRITERS, EACH = 32, 313


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with Redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """A way to open a store: each time the same marks, but for those in memory."""

    @asynccontextmanager
    async def memory(**options: Any) -> AsyncIterator[Any]:
        yield MemoryMarks(**options)

    @asynccontextmanager
    async def sqlite(**options: Any) -> AsyncIterator[Any]:
        async with SqliteMarks(tmp_path / "marks.db", **options) as marks:
            yield marks

    @asynccontextmanager
    async def redis(**options: Any) -> AsyncIterator[Any]:
        server: Redis = request.getfixturevalue("redis")
        async with aioredis.Redis(port=server.port) as client:
            yield RedisMarks(client, prefix=f"{tmp_path.name}:", **options)

    ways: dict[str, Opened] = {"memory": memory, "sqlite": sqlite, "redis": redis}
    return ways[request.param]


async def test_a_mark_is_raised_and_never_lowered(opened: Opened) -> None:
    """The mark after is equal to the fence for who is fresh, and greater for who is stale."""

    async def main() -> list[int]:
        async with opened() as marks:
            return [await raised(marks, "a", fence) for fence in (3, 7, 7, 5, 8)]

    assert (await main()) == [3, 7, 7, 7, 8]


async def test_marks_are_told_apart_up_to_the_greatest_fence(opened: Opened) -> None:
    """Neither a double nor a comparison of text of unequal length comes between."""
    fences = [9, 10, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]

    async with opened() as marks:
        for fence in fences:
            assert await marks.raise_to("a", fence) == fence
            assert await raised(marks, "a", max(1, fence - 1)) == fence


async def test_names_of_all_kinds_are_kept_apart(opened: Opened) -> None:
    """Names that differ in case, accent or a space are different names."""
    names = ["a", "A", "a ", "á", "a\u0301", "a:b", "a\nb", "x" * 512]

    async with opened() as marks:
        for fence, name in enumerate(names, 1):
            assert await marks.raise_to(name, fence) == fence
        for fence, name in enumerate(names, 1):
            assert await raised(marks, name, 1) == fence


async def test_of_many_at_once_none_sees_the_mark_go_back(opened: Opened) -> None:
    """Thirty-two writers with shuffled fences: none is told less than somebody was told before it asked."""

    async def writer(marks: MarkStore, fences: list[int], told: list[int]) -> None:
        for fence in fences:
            before = max(told)
            mark = await raised(marks, "a", fence)
            assert mark >= max(before, fence)
            told.append(mark)

    async def main() -> list[int]:
        fences = list(range(1, WRITERS * EACH + 1))
        random.Random(7).shuffle(fences)
        told = [0]
        async with opened() as marks:
            await asyncio.gather(*(writer(marks, fences[i::WRITERS], told) for i in range(WRITERS)))
            assert await raised(marks, "a", 1) == len(fences)
        return told

    assert len(await main()) == WRITERS * EACH + 1


async def test_a_strict_store_knows_what_was_registered(opened: Opened) -> None:
    """Another name is an error, and leaves no mark; to register a name again does not lower its mark."""
    async with opened(strict=True) as marks:
        with pytest.raises(UsageError, match="'a' has no mark"):
            await marks.raise_to("a", 7)
        for _ in range(2):
            registered = marks.register("a")
            if registered is not None:
                await registered
            assert await marks.raise_to("a", 7) == 7
            with pytest.raises(UsageError, match="'b' has no mark"):
                await marks.raise_to("b", 7)


@pytest.mark.parametrize(
    ("name", "fence"), [("", 1), ("x" * 513, 1), ("a", 0), ("a", -1), ("a", 2**63), ("a", True)]
)
async def test_what_is_no_offer_is_refused(opened: Opened, name: str, fence: int) -> None:
    """No store keeps what no guard would take."""
    async with opened() as marks:
        with pytest.raises(UsageError):
            await marks.raise_to(name, fence)


@pytest.mark.parametrize("opened", ["sqlite", "redis"], indirect=True)
def test_marks_outlive_whoever_raised_them(opened: Opened) -> None:
    """A second process finds what the first left."""

    async def raise_to(fence: int) -> int:
        async with opened() as marks:
            return await raised(marks, "a", fence)

    assert asyncio.run(raise_to(9)) == 9
    assert asyncio.run(raise_to(8)) == 9


async def test_no_mark_is_forgotten_to_make_room() -> None:
    """Memory has a bound, and full is an error."""
    marks = MemoryMarks(names_max=1)
    await marks.raise_to("a", 9)
    with pytest.raises(LimitExceeded):
        await marks.raise_to("b", 1)
    assert await marks.raise_to("a", 8) == 9


async def test_a_guard_that_keeps_the_marks_says_stale_itself() -> None:
    """Its own error comes through, with what it knows of the mark."""

    async def enter(offer: Offer) -> None:
        raise StaleFence(name=offer.name, fence=offer.fence)

    with pytest.raises(StaleFence):
        await GuardMarks(enter).raise_to("a", 7)


async def test_a_file_that_another_keeps_busy_is_unavailable(tmp_path: Path) -> None:
    """Nothing happened, and the same call succeeds when the file is free again."""
    async with SqliteMarks(tmp_path / "marks.db", timeout_s=0.05) as marks:
        await marks.raise_to("a", 1)
        other = sqlite3.connect(tmp_path / "marks.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            await marks.raise_to("a", 7)
        other.execute("ROLLBACK")
        other.close()
        assert await marks.raise_to("a", 2) == 2


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_marks_in_no_file_are_refused(path: str) -> None:
    """They would be gone, and look as if they were kept."""
    with pytest.raises(UsageError, match="MemoryMarks"):
        SqliteMarks(path)


async def test_a_folder_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    """And closing after that is no error."""
    async with SqliteMarks(tmp_path / "none" / "marks.db") as marks:
        with pytest.raises(Unavailable):
            await marks.raise_to("a", 1)


async def test_a_redis_that_is_not_reached_has_done_nothing() -> None:
    """Nobody listens there."""
    async with aioredis.Redis(port=free_port(), retry=Retry(NoBackoff(), 0)) as client:
        with pytest.raises(Unavailable):
            await RedisMarks(client).raise_to("a", 1)


async def test_a_redis_that_refuses_has_done_nothing(redis: Redis) -> None:
    """A key of another kind stands where the mark should."""
    async with aioredis.Redis(port=redis.port) as client:
        await client.lpush("wrong:a", "x")
        with pytest.raises(Unavailable, match="refuses"):
            await RedisMarks(client, prefix="wrong:").raise_to("a", 1)


async def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    """And is left as it was."""
    path = tmp_path / "marks.db"
    path.write_bytes(b"something else" * 100)

    async with SqliteMarks(path) as marks:
        with pytest.raises(Unavailable, match="not a database"):
            await marks.raise_to("a", 1)
    assert path.read_bytes() == b"something else" * 100
