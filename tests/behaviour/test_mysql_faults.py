"""What can go wrong between a client and MariaDB: lost replies, cut and killed connections, a server that dies or
hangs, rights that are missing, settings that lose data."""

import asyncio
import time
from collections.abc import Iterator

import pytest

import fencehold
from fencehold import (
    EFFICIENCY,
    OutcomeUnknown,
    PermissionDenied,
    State,
    Unavailable,
    Unsupported,
    UsageError,
    aio,
)
from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.mysql.store import MysqlStore
from fencehold.backends.port import Ask, Settings
from fencehold.drivers.mysql.address import MysqlAddress
from fencehold.locks.terms import Terms
from rig.lasting import running_in
from rig.mariadb import DATABASE, READER, MariaDB
from rig.postgres import reachable_folder
from tests.behaviour.asking import until
from tests.behaviour.proxy import Proxy
from tests.stopwatch import Stopwatch

_TABLES = ("fencehold_fences", "fencehold_holds", "fencehold_queue")


@pytest.fixture(scope="module")
def running() -> Iterator[MariaDB]:
    with running_in(reachable_folder(), MariaDB) as made:
        yield made


@pytest.fixture
def server(running: MariaDB) -> Iterator[MariaDB]:
    """The one server, running again after each test, whatever was done to it."""
    yield running
    running.restart()


def _ask(name: str, token: str, timeout: float | None = 0) -> Ask:
    return Ask(Terms((name,), timeout=timeout), token, "tests")


def _rows(server: MariaDB, table: str, name: str) -> int:
    count: int = server.sql(f"SELECT COUNT(*) FROM {DATABASE}.{table} WHERE name = %s", name)[0][0]
    return count


async def test_a_grant_whose_reply_is_lost_is_found_by_its_token(server: MariaDB, name: str) -> None:
    """The server commits, and the client never hears of it: asked again it is the same grant, held once."""
    async with Proxy("127.0.0.1", server.port) as proxy:
        url = server.url(port=proxy.port)
        async with aio.connect(url) as one, aio.connect(server.url()) as other:
            proxy.lose_replies()
            hold = await one.lock(name, timeout=10).acquire()
            assert proxy.lost.is_set()
            assert hold is not None
            assert hold.state is State.HELD
            seen = await other.explain(name)
            assert [holder.fence for holder in seen.holders] == [hold.fence]
            assert await other.lock(name, timeout=0).acquire() is None
            await hold.release()
            async with other.lock(name, timeout=0) as next_one:
                assert next_one.fence > hold.fence


async def test_a_release_whose_reply_is_lost_is_unknown_and_done(server: MariaDB, name: str) -> None:
    """It is never said to have failed: the caller of release is told that it may have happened, and it does."""
    async with (
        Proxy("127.0.0.1", server.port) as proxy,
        aio.connect(server.url(port=proxy.port)) as one,
        aio.connect(server.url()) as other,
    ):
        hold = await one.lock(name).acquire()
        assert hold is not None
        proxy.lose_replies()
        with pytest.raises(OutcomeUnknown):
            await hold.release()
        async with other.lock(name, timeout=5):
            pass


async def test_cut_connections_are_replaced(server: MariaDB, name: str) -> None:
    """A connection that breaks takes nothing along: what is held is held by rows, and is renewed over another."""
    async with (
        Proxy("127.0.0.1", server.port) as proxy,
        aio.connect(server.url(port=proxy.port), ttl=1.5, grace=0.5) as client,
        client.lock(name) as hold,
    ):
        begun = time.monotonic()
        while time.monotonic() < begun + 3:
            proxy.cut()
            await asyncio.sleep(0.3)
            assert hold.safe_for() > 0


async def test_killed_connections_are_replaced(server: MariaDB, name: str) -> None:
    """`KILL CONNECTION` by an operator: holds live on, waiters go on waiting in their places."""
    async with aio.connect(server.url()) as one, aio.connect(server.url()) as other:
        holder = await one.lock(name).acquire()
        assert holder is not None
        waiting = asyncio.create_task(other.lock(name, timeout=30).acquire())
        await until(lambda: _rows(server, "fencehold_queue", name))
        assert server.kill_connections()
        assert (await one.explain(name)).holders
        await holder.release()
        hold = await waiting
        assert hold is not None
        assert hold.fence > holder.fence
        await hold.release()


async def test_a_killed_server_has_lost_nothing_it_answered(server: MariaDB, name: str) -> None:
    """`kill -9`, and it comes back: what was held is held, by the same fence, and fences go on growing."""
    async with aio.connect(server.url()) as one, aio.connect(server.url()) as other:
        hold = await one.lock(name).acquire()
        assert hold is not None
        server.kill()
        # Unknown, if it was sent before the end of the connection was heard of.
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await other.lock(name, timeout=0).acquire()
        server.start()
        assert [holder.fence for holder in (await other.explain(name)).holders] == [hold.fence]
        assert await other.lock(name, timeout=0).acquire() is None
        assert hold.state is State.HELD
        await hold.release()
        async with other.lock(name, timeout=0) as next_one:
            assert next_one.fence > hold.fence


async def test_a_server_that_hangs_is_not_trusted_for_longer_than_the_ttl(server: MariaDB, name: str) -> None:
    """SIGSTOP: the holder is told before anybody else can have the name; later grants have greater fences."""
    url = server.url(timeout="1")
    async with aio.connect(url, ttl=2, grace=0.5, connect_timeout=2) as one:
        hold = await one.lock(name).acquire()
        assert hold is not None
        server.pause()
        watch = Stopwatch()
        await hold.lost.wait()
        assert watch.passed_s < 2.5
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await one.lock("another " + name, timeout=0).acquire()
        assert watch.passed_s < 10
        server.resume()
        async with one.lock(name, timeout=20) as next_one:
            assert next_one.fence > hold.fence
        # What was asked while it hung was withdrawn: nobody has it, or for its ttl at the most.
        async with one.lock("another " + name, timeout=20):
            pass


async def test_an_ask_that_arrives_after_it_was_withdrawn_is_not_granted(server: MariaDB, name: str) -> None:
    """A packet may be read by the server long after the client has given it up: it finds a grave."""
    store = MysqlStore(MysqlAddress.parse(server.url()), Settings())
    await store.open()
    try:
        ask = _ask(name, "late")
        store._doubted["late"] = None
        await store.withdraw(ask)
        for waits in (False, True):
            assert isinstance(await store.take(ask, 30, waits=waits), Busy)
        assert isinstance(await store.take(_ask(name, "next"), 30, waits=False), Taken)
        seen = await store.look(name)
        assert (len(seen.holders), seen.queue) == (1, ())
    finally:
        await store.close()


async def test_late_packets_do_no_harm(server: MariaDB, name: str) -> None:
    """The network holds everything back, and delivers it after the client has given up: nothing stays held."""
    async with Proxy("127.0.0.1", server.port) as proxy:
        url = server.url(port=proxy.port, timeout="0.5")
        async with aio.connect(url, connect_timeout=1) as one, aio.connect(server.url()) as other:
            proxy.silence()
            with pytest.raises((Unavailable, OutcomeUnknown)):
                await one.lock(name, timeout=0).acquire()
            proxy.silence(False)
            await until(lambda: _rows(server, "fencehold_queue", name), 10)
            async with other.lock(name, timeout=5):
                pass


def test_who_may_not_come_in_is_told(server: MariaDB) -> None:
    """A wrong password, a database that is not there."""
    url = server.url()
    with pytest.raises(PermissionDenied, match="Access denied"):
        fencehold.connect(url.replace(":fencehold@", ":wrong@"))
    with pytest.raises((PermissionDenied, UsageError)):
        fencehold.connect(server.url(database="nowhere"))


def test_who_may_only_read_is_told_what_to_ask_for(server: MariaDB) -> None:
    """Without tables: the SQL that makes them. With tables: that it may not write."""
    for table in _TABLES:
        server.sql(f"DROP TABLE IF EXISTS {DATABASE}.{table}")
    with pytest.raises(PermissionDenied, match=r"CREATE TABLE IF NOT EXISTS fencehold_holds"):
        fencehold.connect(server.url(user=READER))
    fencehold.connect(server.url()).close()
    with fencehold.connect(server.url(user=READER)) as client, pytest.raises(PermissionDenied):
        client.lock("a", timeout=0).acquire()


def test_a_server_that_takes_no_writes_is_unavailable(server: MariaDB, name: str) -> None:
    """While it is read-only nothing is granted, and nothing happened; then it goes on."""
    with fencehold.connect(server.url()) as client:
        server.sql("SET GLOBAL read_only = 1")
        try:
            with pytest.raises(Unavailable, match="takes writes"):
                client.lock(name, timeout=0).acquire()
            with pytest.raises(Unavailable, match="takes no writes"):
                fencehold.connect(server.url())
        finally:
            server.sql("SET GLOBAL read_only = 0")
        with client.lock(name, timeout=0):
            pass


def test_a_server_that_answers_before_it_syncs_protects_no_state(server: MariaDB, name: str) -> None:
    """It is refused, unless the URL says so; then it gives EFFICIENCY."""
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        with pytest.raises(Unsupported, match="innodb_flush_log_at_trx_commit"):
            fencehold.connect(server.url())
        with fencehold.connect(server.url(replication="asynchronous")) as client:
            assert not client.lock(name, tier=EFFICIENCY).guarantees.linearizable
            with client.lock(name, tier=EFFICIENCY), pytest.raises(Unsupported):
                client.lock(name)
    finally:
        server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


async def test_tables_that_are_made_by_eight_at_once_are_made_once(server: MariaDB, name: str) -> None:
    """Whoever comes first makes them; all are granted, one after the other."""
    for table in _TABLES:
        server.sql(f"DROP TABLE IF EXISTS {DATABASE}.{table}")

    async def one() -> int:
        async with aio.connect(server.url()) as client, client.lock(name, timeout=30) as hold:
            return hold.fence

    assert len(set(await asyncio.gather(*(one() for _ in range(8))))) == 8


def test_fences_go_on_when_tables_are_lost(server: MariaDB, name: str) -> None:
    """Who drops the tables drops what is held; but not the order of the fences."""
    with fencehold.connect(server.url()) as client:
        before = client.lock(name).acquire()
        assert before is not None
        for table in _TABLES:
            server.sql(f"DROP TABLE {DATABASE}.{table}")
        with fencehold.connect(server.url()) as other, other.lock(name, timeout=0) as after:
            assert after.fence > before.fence
        with pytest.raises(fencehold.HoldLost):
            before.release()


async def test_a_stopped_client_keeps_nobody_waiting(server: MariaDB, name: str) -> None:
    """Every step is sent whole, up to its commit: nothing is locked between two packets of a client."""
    async with aio.connect(server.url()) as client, client.lock("kept"):
        open_for_long = server.sql("SELECT COUNT(*) FROM information_schema.innodb_trx")
        assert open_for_long == [(0,)]
