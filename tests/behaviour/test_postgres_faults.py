"""`postgresql://` while replies are lost, connections break, and the server dies or hangs."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from fencehold import HoldLost, OutcomeUnknown, PermissionDenied, Unavailable, UsageError, aio
from fencehold.backends.postgres.tables import script
from fencehold.client.aio.client import Connecting
from rig.postgres import GUARDED, Postgres, reachable_folder, temporary_postgres
from tests.behaviour.asking import until
from tests.behaviour.proxy import Proxy, as_a_pooler

SOON_S = 10.0


@pytest.fixture(scope="module")
def made() -> Iterator[Postgres]:
    # Whatever the server's default is, what is granted is on disk.
    with temporary_postgres(synchronous_commit="off", wal_writer_delay="10s") as server:
        yield server


@pytest.fixture
def server(made: Postgres) -> Iterator[Postgres]:
    yield made
    made.restart()


def connect(url: str, **options: Any) -> Connecting:
    return aio.connect(url, lazy=False, **{"connect_timeout": 5, **options})


def rows(server: Postgres, name: str) -> list[str]:
    """The fences of those who hold a name, expired or not."""
    return server.sql(f"SELECT fence FROM faults.locks WHERE name = '{name}'").split()


def waiters(server: Postgres, name: str) -> int:
    return int(server.sql(f"SELECT count(*) FROM faults.locks_queue WHERE name = '{name}'"))


def terminate(server: Postgres, query: str = "%") -> int:
    """End connections of clients: those whose last statement looks like that."""
    return int(
        server.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            f"WHERE usename = 'fencehold' AND query LIKE '{query}'"
        )
    )


async def test_a_grant_whose_reply_was_lost_is_granted_once(server: Postgres, name: str) -> None:
    """Linearizable: the same ask again finds what became of it, by its token; there is one row, and one fence."""
    async with Proxy("127.0.0.1", server.port) as proxy:
        url = server.url("faults", host=f"127.0.0.1:{proxy.port}", connections="1")
        async with connect(url) as client:
            proxy.lose_replies()
            hold = await client.lock(name, timeout=SOON_S).acquire()
            assert hold is not None
            assert proxy.lost.is_set()
            assert rows(server, name) == [str(hold.fence)]
            await hold.release()
            assert (rows(server, name), waiters(server, name)) == ([], 0)


async def test_a_try_whose_reply_was_lost_leaves_nothing(server: Postgres, name: str) -> None:
    """It may have been granted, which is said; and it is withdrawn."""
    async with Proxy("127.0.0.1", server.port) as proxy:
        url = server.url("faults", host=f"127.0.0.1:{proxy.port}", connections="1")
        async with connect(url) as client:
            proxy.lose_replies()
            with pytest.raises(OutcomeUnknown):
                await client.lock(name, timeout=0).acquire()
            await until(lambda: not rows(server, name))


async def test_a_release_whose_reply_was_lost_frees_the_name(server: Postgres, name: str) -> None:
    """Its holder is told that it is not known; the next one has it at once, with a greater fence."""
    async with Proxy("127.0.0.1", server.port) as proxy:
        url = server.url("faults", host=f"127.0.0.1:{proxy.port}", connections="1")
        async with connect(url) as client, connect(server.url("faults")) as other:
            hold = await client.lock(name).acquire()
            assert hold is not None
            proxy.lose_replies()
            with pytest.raises(OutcomeUnknown):
                await hold.release()
            async with other.lock(name, timeout=SOON_S) as next_one:
                assert next_one.fence > hold.fence


async def test_what_is_held_survives_a_server_that_is_killed(server: Postgres, name: str) -> None:
    """`kill -9`, and recovery from the log: the row is there, it is renewed again, and fences go on growing."""
    async with connect(server.url("faults"), ttl=12) as one, connect(server.url("faults")) as other:
        hold = await one.lock(name).acquire()
        assert hold is not None
        server.kill()
        # Not on another thread: a server ends with the thread that started it.
        server.restart()
        assert rows(server, name) == [str(hold.fence)]
        before_s = hold.safe_for()
        await until(lambda: hold.safe_for() > before_s)
        assert await other.lock(name, timeout=0).acquire() is None
        await hold.release()
        async with other.lock(name, timeout=SOON_S) as next_one:
            assert next_one.fence > hold.fence


async def test_a_server_that_hangs_costs_the_hold_in_time(server: Postgres, name: str) -> None:
    """SIGSTOP: the trust runs out and that is told; nobody is granted the name while it was trusted."""
    async with connect(server.url("faults"), ttl=1.5) as one, connect(server.url("faults")) as other:
        hold = await one.lock(name).acquire()
        assert hold is not None
        server.pause()
        try:
            waiting = asyncio.create_task(other.lock(name, timeout=30).acquire())
            await asyncio.wait_for(hold.lost.wait(), SOON_S)
            assert not waiting.done()
        finally:
            server.resume()
        next_one = await waiting
        assert next_one is not None
        assert next_one.fence > hold.fence
        with pytest.raises(HoldLost):
            await hold.release()
        assert rows(server, name) == [str(next_one.fence)]
        await next_one.release()


async def test_connections_that_are_ended_cost_no_hold(server: Postgres, name: str) -> None:
    """`pg_terminate_backend`: a hold is a row, and no connection's; it is renewed over the next one."""
    async with connect(server.url("faults"), ttl=1.5) as one, connect(server.url("faults")) as other:
        hold = await one.lock(name).acquire()
        assert hold is not None
        assert terminate(server)
        before_s = hold.safe_for()
        await until(lambda: hold.safe_for() > before_s)
        assert await other.lock(name, timeout=5).acquire() is None
        await hold.release()


async def test_waiting_goes_on_without_being_told(server: Postgres, name: str) -> None:
    """The connection that listens is ended: those who wait try again by themselves."""
    async with connect(server.url("faults")) as one, connect(server.url("faults")) as other:
        hold = await one.lock(name).acquire()
        assert hold is not None
        waiting = asyncio.create_task(other.lock(name, timeout=30).acquire())
        await until(lambda: waiters(server, name) == 1)
        await until(lambda: terminate(server, "LISTEN%"))
        await hold.release()
        next_one = await asyncio.wait_for(waiting, SOON_S)
        assert next_one is not None
        await next_one.release()


async def test_a_waiter_that_died_holds_nobody_up_for_long(server: Postgres, name: str) -> None:
    """It is first in the queue and not heard of: after a while it is passed over, and removed."""
    async with connect(server.url("faults")) as client:
        server.sql(
            "INSERT INTO faults.locks_queue VALUES "
            f"('{name}', 0, 'dead', 'X', 0, 'nobody', now(), now() + interval '1 second', '')"
        )
        assert await client.lock(name, timeout=0).acquire() is None
        async with client.lock(name, timeout=SOON_S):
            assert waiters(server, name) == 0


async def test_a_clock_that_is_set_forward_ends_leases_and_that_is_told(server: Postgres, name: str) -> None:
    """As declared: the next one may have it while it is trusted, with a greater fence; it is never re-taken."""
    async with connect(server.url("faults"), ttl=3) as one, connect(server.url("faults")) as other:
        assert "set forward" in one.guarantees.clocks
        hold = await one.lock(name).acquire()
        assert hold is not None
        # As it looks to a database whose clock was set forward by an hour.
        server.sql(f"UPDATE faults.locks SET expires_at = now() - interval '1 hour' WHERE name = '{name}'")
        async with other.lock(name, timeout=SOON_S) as next_one:
            assert next_one.fence > hold.fence
            await asyncio.wait_for(hold.lost.wait(), SOON_S)
        assert rows(server, name) == []


async def test_a_lease_that_expired_is_not_renewed_though_nobody_took_it(server: Postgres, name: str) -> None:
    """A gap is a loss, also if nobody else was there in it."""
    async with connect(server.url("faults"), ttl=3) as client:
        hold = await client.lock(name).acquire()
        assert hold is not None
        server.sql(f"UPDATE faults.locks SET expires_at = now() WHERE name = '{name}'")
        await asyncio.wait_for(hold.lost.wait(), SOON_S)
        async with client.lock(name, timeout=SOON_S) as next_one:
            assert next_one.fence > hold.fence


def test_eight_clients_that_come_first_make_one_table(server: Postgres, new_name: Callable[[], str]) -> None:
    """All at once, where there is nothing yet: each finds what it needs, and none is told of another's making."""

    async def main() -> None:
        async def use(number: int) -> int:
            async with connect(server.url("eight")) as client, client.lock("one", timeout=30) as hold:
                return hold.fence

        fences = await asyncio.gather(*map(use, range(8)))
        assert len(set(fences)) == 8

    asyncio.run(main())
    tables = server.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'eight' ORDER BY 1")
    assert tables.split() == ["locks", "locks_queue"]


async def test_what_nobody_asks_for_again_is_removed(server: Postgres, name: str) -> None:
    """Rows of crashed clients do not pile up; what is held stays."""
    async with connect(server.url("faults")) as client, client.lock(name) as hold:
        server.sql(
            "INSERT INTO faults.locks SELECT 'old ' || n, 'dead', 'X', 0, 0, now(), now() - interval '2 min'"
            ", '' FROM generate_series(1, 20) AS n"
        )
        server.sql("SELECT faults.locks_sweep_v1()")
        assert server.sql("SELECT count(*) FROM faults.locks WHERE name LIKE 'old %'") == "0"
        assert rows(server, name) == [str(hold.fence)]


def test_who_may_not_make_the_tables_is_told_what_to_run(server: Postgres, name: str) -> None:
    """Run by somebody who may, with the rights that are documented, it is all that is needed."""
    url = server.url("guarded", user=f"{GUARDED}:{GUARDED}")

    async def main() -> None:
        async with connect(url) as client, client.lock(name):
            pass

    with pytest.raises(PermissionDenied, match=r"python -m fencehold\.backends\.postgres guarded locks"):
        asyncio.run(main())
    server.sql(script("guarded", "locks"))
    server.sql(
        f"GRANT USAGE ON SCHEMA guarded TO {GUARDED};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA guarded TO {GUARDED};"
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA guarded TO {GUARDED}"
    )
    asyncio.run(main())


@pytest.mark.parametrize(
    ("user", "options", "error", "words"),
    [
        (GUARDED, "", PermissionDenied, "password"),
        ("nobody", "", PermissionDenied, "nobody"),
        ("fencehold", "&options=-c%20default_transaction_read_only%3Don", Unavailable, "takes writes"),
        ("fencehold", "&options=-c%20default_transaction_isolation%3Dserializable", UsageError, "READ COMMITTED"),
    ],
)
async def test_who_cannot_lock_there_is_told_why(
    server: Postgres, name: str, user: str, options: str, error: type[Exception], words: str
) -> None:
    """Certainly nothing happened, and the message says what to change."""

    async def main() -> None:
        async with connect(server.url("faults", user=user) + options) as client, client.lock(name, timeout=0):
            pass

    with pytest.raises(error, match=words):
        await main()


async def test_through_a_pooler_nobody_listens_and_waiting_works(server: Postgres, name: str) -> None:
    """It shows by the number of the process: then nothing is prepared, and who waits tries again now and then."""
    async with Proxy("127.0.0.1", server.port, as_a_pooler) as pooler:
        url = server.url("faults", host=f"127.0.0.1:{pooler.port}")
        async with connect(url) as one, connect(url) as other:
            hold = await one.lock(name).acquire()
            assert hold is not None
            waiting = asyncio.create_task(other.lock(name, timeout=30).acquire())
            await until(lambda: waiters(server, name) == 1)
            await hold.release()
            next_one = await asyncio.wait_for(waiting, SOON_S)
            assert next_one is not None
            assert terminate(server, "LISTEN%") == 0
            await next_one.release()


async def test_steps_undone_because_of_others_are_done_again(server: Postgres, name: str) -> None:
    """A row that somebody else keeps locked for a moment delays a renewal, and costs nothing."""
    async with connect(server.url("faults"), ttl=6) as client, client.lock(name) as hold:
        with psycopg.connect(server.url().partition("?")[0], user="owner") as other:
            other.execute("SELECT FROM faults.locks WHERE name = %s FOR UPDATE", [name])
            await until(lambda: hold.safe_for() < 3.5)
            other.rollback()
        await until(lambda: hold.safe_for() > 3.5)


async def test_a_synchronous_standby_takes_over_with_all_that_is_held(name: str) -> None:
    """Behind one address: what is held stays held and is renewed, and fences go on growing."""
    folder = reachable_folder()
    primary, standby = Postgres(folder / "a"), Postgres(folder / "b")

    try:
        primary.start()
        standby.follow(primary)
        with pytest.raises(UsageError, match="synchronous_standby_names"):
            await connect(primary.url(host=f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}")).__aenter__()
        primary.set("synchronous_standby_names", "*")
        async with Proxy("127.0.0.1", primary.port) as address:
            url = primary.url("faults", host=f"127.0.0.1:{address.port}")
            async with connect(url, ttl=15) as one, connect(url) as other:
                hold = await one.lock(name).acquire()
                assert hold is not None
                primary.kill()
                standby.promote()
                address.lead_to("127.0.0.1", standby.port)
                before_s = hold.safe_for()
                await until(lambda: hold.safe_for() > before_s)
                assert rows(standby, name) == [str(hold.fence)]
                await hold.release()
                async with other.lock(name, timeout=SOON_S) as next_one:
                    assert next_one.fence > hold.fence
    finally:
        standby.stop()
        primary.stop()
        shutil.rmtree(folder, ignore_errors=True)
