"""Calls that end before the trust does, against real servers."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, ClassVar

import httpx
import psycopg
import pytest
import redis
import requests
from redis import asyncio as aioredis

import fencehold
from fencehold import aio
from fencehold.errors import HoldLost, NotOwner, UsageError
from fencehold.guards import deadlines
from fencehold.locks.hold import Claiming, Holding
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, Trust
from rig.postgres import Postgres, temporary_postgres
from rig.redis import Redis
from tests.stopwatch import Stopwatch

SHORT_S = 1.0
MARGIN_S = 0.4
"""Wide, for machines that are busy with other things."""


@contextmanager
def trusted(
    seconds: float, kind: type[Claiming] = Holding, clock: Callable[[], float] = time.monotonic
) -> Iterator[Claiming]:
    """A hold with so much trust from now on."""
    trust = Trust(30, 1)
    trust.end = clock() + seconds
    grant = Grant(Terms(("orders",)), 7, trust)
    try:
        yield kind(grant, clock)
    finally:
        grant.lose("over")


def frozen() -> float:
    """A clock on which nothing passes."""
    return 0.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with temporary_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with Redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server that begins its answer at once, and then sends a byte now and then, for ever."""
    over = threading.Event()

    def serve(listening: socket.socket) -> None:
        taken, _ = listening.accept()
        with taken:
            taken.recv(4096)
            taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not over.wait(0.02):
                try:
                    taken.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        over.set()
        server.join()


def test_a_call_may_take_what_is_left_and_no_more() -> None:
    """The caller's own maximum counts where it is less."""
    with trusted(10, clock=frozen) as hold:
        assert (deadlines.bounded(hold), deadlines.bounded(hold, 60)) == (10, 10)
        assert (deadlines.bounded(hold, 3), deadlines.bounded(hold, margin=3)) == (3, 7)
        for wrong in ({"maximum": 0}, {"maximum": -1}, {"margin": -1}, {"maximum": float("nan")}):
            with pytest.raises(UsageError):
                deadlines.bounded(hold, **wrong)


@pytest.mark.parametrize("kind", [Holding, Claiming])
def test_where_nothing_is_left_nothing_is_begun(kind: type[Claiming]) -> None:
    """Too little is nothing, too: a claim says so as a hold does."""
    with trusted(-1, kind) as hold, pytest.raises(HoldLost):
        deadlines.bounded(hold)
    with trusted(0.5, kind) as hold, pytest.raises(HoldLost, match="margin is 1 s") as lost:
        deadlines.bounded(hold, margin=1)
    assert (lost.value.names, lost.value.fence) == (("orders",), 7 if kind is Holding else 0)


async def test_real_holds_tell_how_long() -> None:
    """Both clients' holds, and what was released is not to be had any more."""
    with fencehold.connect("memory://", ttl=10) as client:
        with client.lock("orders") as hold:
            assert 5 < deadlines.bounded(hold) < 10
            assert deadlines.bounded(hold, 1) == 1
        with pytest.raises(NotOwner):
            deadlines.bounded(hold)

    async def scene() -> None:
        async with aio.connect("memory://", ttl=10) as client, client.lock("orders") as hold:
            assert 1 < deadlines.timeout(hold) < 2.5
            async with deadlines.within(hold):
                pass

    await scene()


def test_the_waits_of_a_request_share_what_is_left() -> None:
    """They come one after the other."""
    with trusted(10, clock=frozen) as hold:
        assert (deadlines.timeout(hold), deadlines.timeout(hold, waits=2)) == (2.5, 5)
        assert deadlines.timeout(hold, 2) == 0.5
        with pytest.raises(UsageError):
            deadlines.timeout(hold, waits=0)


def test_a_request_ends_before_the_trust(silent: str) -> None:
    """A server that says nothing is given up, by httpx and by requests."""
    with trusted(SHORT_S) as hold:
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(silent, timeout=deadlines.timeout(hold))
        with pytest.raises(requests.ReadTimeout):
            requests.get(silent, timeout=deadlines.timeout(hold, waits=3))
        hold.check()


async def test_on_a_loop_an_answer_in_drops_ends_before_the_trust(dripping: str) -> None:
    """No single wait is long; all of them together are."""
    with trusted(SHORT_S) as hold:
        async with httpx.AsyncClient() as client:
            with pytest.raises(TimeoutError):
                async with deadlines.within(hold, margin=MARGIN_S):
                    await client.get(dripping, timeout=deadlines.timeout(hold))
        hold.check()


def test_a_statement_is_cancelled_before_the_trust_ends(postgres: Postgres) -> None:
    """By the server; the next transaction knows nothing of it."""
    with psycopg.connect(postgres.url()[: postgres.url().index("?")]) as connection:
        with trusted(SHORT_S) as hold:
            with pytest.raises(psycopg.errors.QueryCanceled):
                slowly(connection, hold)
            hold.check()
        connection.rollback()
        assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)
        with trusted(-1) as hold, pytest.raises(HoldLost):
            deadlines.statement_timeout(connection, hold)


def slowly(connection: "psycopg.Connection[tuple[object, ...]]", hold: Claiming) -> None:
    deadlines.statement_timeout(connection, hold, margin=MARGIN_S)
    connection.execute("SELECT pg_sleep(30)")


def test_a_statement_timeout_follows_the_trust_both_ways(postgres: Postgres) -> None:
    """Renewed trust lengthens it; the operator's own limit is kept where it is shorter."""
    url = postgres.url()[: postgres.url().index("?")]

    def shown() -> float:
        found = connection.execute(
            "SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'"
        ).fetchone()
        assert found is not None
        return float(found[0])

    with psycopg.connect(url) as connection:
        for seconds, margin, ms in ((5, 0, 5_000), (50, 1, 49_000)):
            with trusted(seconds, clock=frozen) as hold:
                deadlines.statement_timeout(connection, hold, margin=margin)
            assert shown() == ms
        with trusted(inf) as hold:
            deadlines.statement_timeout(connection, hold, margin=0)
            assert shown() == 2**31 - 1
    with psycopg.connect(url, options="-c statement_timeout=1234") as connection, trusted(50) as hold:
        deadlines.statement_timeout(connection, hold)
        assert shown() == 1234
        deadlines.statement_timeout(connection, hold, 1)
        assert shown() == 1000


def test_a_statement_timeout_is_never_0() -> None:
    """Which would mean none: half a millisecond is one."""

    class Recording:
        autocommit = False
        said: ClassVar[list[dict[str, int]]] = []

        def execute(self, _: str, words: dict[str, int]) -> None:
            self.said.append(words)

    connection: Any = Recording()
    with trusted(0.0005, clock=frozen) as hold:
        deadlines.statement_timeout(connection, hold, margin=0)
    assert connection.said == [{"ms": 1}]


def test_a_statement_timeout_wants_a_transaction(postgres: Postgres) -> None:
    """Outside of one, Postgres would forget it at once, and silently."""
    url = postgres.url()[: postgres.url().index("?")]
    with psycopg.connect(url, autocommit=True) as connection, trusted(SHORT_S) as hold:
        with pytest.raises(UsageError, match="transaction"):
            deadlines.statement_timeout(connection, hold)
        with pytest.raises(psycopg.errors.QueryCanceled), connection.transaction():
            slowly(connection, hold)
        hold.check()


async def test_on_a_loop_a_statement_is_cancelled_as_well(postgres: Postgres) -> None:
    """The same, awaited."""
    with trusted(SHORT_S) as hold:
        url = postgres.url()[: postgres.url().index("?")]
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await deadlines.statement_timeout(connection, hold, margin=MARGIN_S)
            with pytest.raises(psycopg.errors.QueryCanceled):
                await connection.execute("SELECT pg_sleep(30)")
            hold.check()
            await connection.rollback()


def test_a_command_that_blocks_in_redis_ends_before_the_trust(store: Redis) -> None:
    """Redis would wait for ever, and redis-py for its own timeout, and again."""
    with redis.Redis(port=store.port, decode_responses=True, socket_timeout=30) as client:
        with trusted(SHORT_S) as hold, deadlines.redis_timeout(client, hold, margin=MARGIN_S) as bounded:
            bounded.rpush("jobs", "one")
            assert list(bounded.blpop(["jobs"], timeout=0) or ()) == ["jobs", "one"]
            with pytest.raises(redis.exceptions.TimeoutError):
                bounded.blpop(["jobs"], timeout=0)
            hold.check()
        # The caller's own connections are as they were.
        assert client.connection_pool.connection_kwargs["socket_timeout"] == 30
        assert client.ping()


def test_each_command_has_what_is_left_by_then(store: Redis) -> None:
    """The second has less than the first; when nothing is left, none is sent, in a pipeline neither."""
    with redis.Redis(port=store.port) as client, trusted(SHORT_S) as hold:
        watch = Stopwatch()
        with deadlines.redis_timeout(client, hold) as bounded:
            bounded.blpop(["nothing"], timeout=0.8 * SHORT_S)
            with pytest.raises(redis.exceptions.TimeoutError):
                bounded.blpop(["nothing"], timeout=0)
            assert watch.passed_s < 1.6 * SHORT_S
            with pytest.raises(HoldLost):
                bounded.set("late", 1)
            with bounded.pipeline() as pipeline:
                pipeline.set("late", 1)
                with pytest.raises(HoldLost):
                    pipeline.execute()
        assert client.get("late") is None
        with pytest.raises(HoldLost), deadlines.redis_timeout(client, hold) as bounded:
            bounded.ping()


async def test_on_a_loop_redis_is_bounded_by_the_block(store: Redis) -> None:
    """`within` needs to know nothing of the client."""
    with trusted(SHORT_S) as hold:
        async with aioredis.Redis(port=store.port, socket_timeout=30) as client:
            with pytest.raises(TimeoutError):
                async with deadlines.within(hold, margin=MARGIN_S):
                    await client.blpop(["nothing"], timeout=0)
            hold.check()
            assert await client.ping()
