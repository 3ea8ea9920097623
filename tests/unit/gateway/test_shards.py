"""A gateway before a service with several shards: questions, lists and events span all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from fencehold import aio
from fencehold.errors import LimitExceeded, Unavailable, UsageError
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import ANONYMOUS
from fencehold.gateway.lists import Lists
from fencehold.gateway.questions import Questions
from fencehold.gateway.shard_sight import shards_seen
from fencehold.gateway.watch import Begun, ShardAway, Watch
from fencehold.locks.places import places_text, read_places
from fencehold.locks.views import Event
from fencehold.server import Config, Server
from fencehold.types import CORRECTNESS

NAMES = ("a", "b", "c", "d")
"""One of each of four shards."""


@asynccontextmanager
async def asked(**bounds: int) -> AsyncIterator[tuple[Questions, aio.Client]]:
    """Questions to a server with four shards, and a client of it."""
    async with Server(Config(port=0, shards=4)) as server:
        url = f"fencehold://127.0.0.1:{server.port}"
        questions = Questions(url, None, GatewayBounds(**bounds))
        async with aio.connect(url, name="ann") as client:
            yield questions, client
        await questions.close()


async def told(questions: Questions, after: Any, count: int) -> tuple[Begun, list[Event]]:
    """Where a watch begins, and so many events."""
    async with aclosing(questions.events(ANONYMOUS, CORRECTNESS, "", after)) as watch:
        begun = await anext(watch)
        assert isinstance(begun, Begun)
        return begun, [each for each in [await anext(watch) for _ in range(count)] if isinstance(each, Event)]


async def test_events_of_all_shards_are_told_once_over_two_watches() -> None:
    """Whichever event the last one was: its id has the place of each shard."""
    async with asked() as (questions, client):
        watch = questions.events(ANONYMOUS, CORRECTNESS, "")
        begun = await anext(watch)
        assert isinstance(begun, Begun)
        assert set(begun.places) == {0, 1, 2, 3}
        holds = [await client.lock(name).acquire() for name in NAMES]
        everything = [each for each in [await anext(watch) for _ in range(7)] if isinstance(each, Event)]
        await watch.aclose()
        assert sorted({each.shard for each in everything}) == [0, 1, 2, 3]
        assert sorted(name for each in everything for name in each.names) == list(NAMES)
        places = dict(begun.places)
        for count, each in enumerate(everything[:-1], start=1):
            places[each.shard] = each.place
            after = read_places(places_text(places, 4), 4)
            _, rest = await told(questions, after, len(everything) - count)
            # Each once; in order within a shard.
            missing = [other for other in everything if other not in everything[:count]]
            for shard in range(4):
                of_shard = [[one.place for one in some if one.shard == shard] for some in (rest, missing)]
                assert of_shard[0] == of_shard[1]
        for hold in holds:
            await hold.release()


async def test_who_goes_on_after_what_has_not_happened_is_told_so() -> None:
    """By the shard of that place, over HTTP and gRPC as by the node itself."""
    async with asked() as (questions, _):
        with pytest.raises(UsageError, match="position 999999 of shard 2 has not happened yet"):
            await told(questions, read_places(",,999999,", 4), 1)


async def test_lists_are_filled_from_all_shards() -> None:
    """Page after page each name once; sessions say which shard they are of."""
    async with asked() as (questions, client):
        names = [f"{name}{number}" for name in NAMES for number in range(5)]
        holds = [await client.lock(name).acquire() for name in names]
        lists, cursor, found, pages = Lists(questions, ANONYMOUS, CORRECTNESS), "", list[str](), 0
        while pages == 0 or cursor:
            page = await lists.names(cursor, 7)
            assert len(page.items) == 7 or not page.cursor
            found += [row[b"name"].decode() for row in page.items]
            cursor, pages = page.cursor, pages + 1
        assert sorted(found) == sorted(names)
        one = await lists.sessions(0, 3)
        other = await lists.sessions(one.cursor, 3)
        assert sorted([*one.shards, *other.shards]) == [0, 1, 2, 3]
        assert other.cursor == 0
        with pytest.raises(UsageError):
            await lists.names("9/", 7)
        with pytest.raises(UsageError):
            await lists.names("no cursor", 7)
        for hold in holds:
            await hold.release()


async def test_a_name_is_asked_for_where_it_is_at_home() -> None:
    """Also by who believes an old map; and each shard says who leads it."""
    async with asked() as (questions, client):
        for name in NAMES:
            hold = await client.lock(name).acquire()
            shard, reply = await questions.ask_about(ANONYMOUS, CORRECTNESS, name, "LOCK.INFO", name)
            assert (reply[b"fence"], shard) == (hold.fence, questions.home_of(name))
            await hold.release()
        assert [each["away"] for each in await shards_seen(questions, ANONYMOUS)] == [None] * 4


async def test_connections_of_those_who_watch_are_bounded() -> None:
    """Each watches over a connection to each shard."""
    async with (
        asked(watch_lines_max=7) as (questions, _),
        aclosing(questions.events(ANONYMOUS, CORRECTNESS, "")) as watch,
    ):
        await anext(watch)
        with pytest.raises(LimitExceeded):
            await anext(questions.events(ANONYMOUS, CORRECTNESS, ""))


class FakeLine:
    """A connection on which one event comes at each position after the place that is said."""

    def __init__(self, shard: int, position: int) -> None:
        self.shard, self.position = shard, position
        self.more = asyncio.Event()

    async def call(self, *words: Any) -> dict[bytes, int]:
        if "FROM" in words:
            self.position = words[3]
        return {b"position": self.position, b"index": 0}

    async def push(self) -> Any:
        if self.more.is_set():
            raise Unavailable("the connection was lost")
        self.position += 1
        if self.position > 3:
            await self.more.wait()
            raise Unavailable("the connection was lost")
        return b"event", {b"kind": b"opened", b"position": self.position, b"shard": self.shard}

    def close(self) -> None:
        pass


async def test_a_shard_that_is_away_is_said_to_be_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; when it is back, it goes on after the place where it was left."""
    monkeypatch.setattr("fencehold.gateway.watch._SILENT_S", 0.05)
    monkeypatch.setattr("fencehold.gateway.watch._BEGIN_S", 0.05)
    monkeypatch.setattr("fencehold.gateway.watch.AGAIN_S", 0.001)
    away, lines = {1}, dict[int, FakeLine]()

    async def connect(shard: int | None) -> Any:
        if shard in away:
            raise Unavailable(f"nobody leads shard {shard}")
        lines[shard or 0] = FakeLine(shard or 0, 0)
        return lines[shard or 0]

    watch = Watch(connect, "", connect_timeout_s=5).several({}, 2)
    assert await anext(watch) == Begun({0: (0, 0)}, 2)
    assert isinstance(first := await anext(watch), ShardAway)
    assert (first.shard, bool(first.why)) == (1, True)
    events = [await anext(watch) for _ in range(3)]
    assert [(each.shard, each.position) for each in events if isinstance(each, Event)] == [(0, 1), (0, 2), (0, 3)]
    away.clear()
    assert await anext(watch) == ShardAway(1, "", (0, 0))
    events = [await anext(watch) for _ in range(3)]
    assert [(each.shard, each.position) for each in events if isinstance(each, Event)] == [(1, 1), (1, 2), (1, 3)]
    away.add(0)
    lines[0].more.set()
    assert isinstance(gone := await anext(watch), ShardAway)
    assert (gone.shard, bool(gone.why)) == (0, True)
    away.clear()
    assert await anext(watch) == ShardAway(0, "", (3, 0))
    await watch.aclose()


async def test_a_service_of_which_no_shard_is_reached_is_away() -> None:
    """Then it is an error, and no stream."""

    async def connect(_: int | None) -> Any:
        raise Unavailable("nobody leads")

    watch = Watch(connect, "", connect_timeout_s=0.05).several({}, 2)
    with pytest.raises(Unavailable):
        await anext(watch)
