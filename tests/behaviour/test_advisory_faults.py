"""`postgresql+advisory://` while sessions end, replies are lost, and the server dies or hangs."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencehold import EFFICIENCY, HoldLost, PermissionDenied, Unavailable, Unsupported, aio
from fencehold.backends.advisory.store import key_of
from fencehold.client.aio.client import Connecting
from rig.postgres import GUARDED, Postgres, temporary_postgres
from tests.behaviour.asking import until
from tests.behaviour.proxy import Proxy, as_a_pooler

SOON_S = 10.0


@pytest.fixture(scope="module")
def made() -> Iterator[Postgres]:
    with temporary_postgres() as server:
        yield server


@pytest.fixture
def server(made: Postgres) -> Iterator[Postgres]:
    yield made
    made.restart()


def url_of(server: Postgres, schema: str = "faults", **options: str) -> str:
    return server.url(schema, **options).replace("postgresql://", "postgresql+advisory://")


def connect(url: str, **options: Any) -> Connecting:
    return aio.connect(url, lazy=False, **{"connect_timeout": 5, **options})


async def held(client: aio.Client, name: str, **options: Any) -> aio.Claim:
    """A claim, got in time."""
    claim = await client.lock(name, tier=EFFICIENCY, timeout=SOON_S, **options).acquire()
    assert claim is not None
    return claim


def locks(server: Postgres, name: str) -> int:
    """How many sessions have a lock."""
    key = key_of(name)
    return int(
        server.sql(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
            f"AND classid = {key >> 32 & 0xFFFFFFFF} AND objid = {key & 0xFFFFFFFF}"
        )
    )


def terminate(server: Postgres) -> int:
    return int(
        server.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'fencehold'")
    )


async def test_a_session_that_is_ended_costs_all_its_holds_at_once(
    server: Postgres, new_name: Callable[[], str]
) -> None:
    """Not linearizable, as declared: the server frees first, and the holder is told as soon as it hears of it."""
    names = [new_name() for _ in range(3)]
    async with connect(url_of(server)) as client:
        claims = [await held(client, each) for each in names]
        assert terminate(server)
        for claim in claims:
            await asyncio.wait_for(claim.lost.wait(), SOON_S)
            with pytest.raises(HoldLost, match="connection"):
                await claim.release()
        for each in names:
            await (await held(client, each)).release()


async def test_a_server_that_is_killed_frees_all_and_that_is_told(server: Postgres, name: str) -> None:
    """`kill -9`: nothing survives, as declared; and the name is to be had again."""
    async with connect(url_of(server)) as client:
        claim = await held(client, name)
        server.kill()
        await asyncio.wait_for(claim.lost.wait(), SOON_S)
        # Not on another thread: a server ends with the thread that started it.
        server.restart()
        async with connect(url_of(server)) as other:
            await (await held(other, name)).release()


async def test_a_server_that_hangs_costs_the_hold_in_time(server: Postgres, name: str) -> None:
    """SIGSTOP: the trust runs out and that is told, before anybody else can have the name."""
    async with connect(url_of(server), ttl=1.5) as one, connect(url_of(server)) as other:
        claim = await held(one, name)
        server.pause()
        try:
            waiting = asyncio.create_task(held(other, name))
            await asyncio.wait_for(claim.lost.wait(), SOON_S)
            assert not waiting.done()
        finally:
            server.resume()
        await (await waiting).release()


async def test_a_client_that_is_cut_off_lets_go_first(server: Postgres, name: str) -> None:
    """Nothing is heard, and no connection breaks: its trust is over while the server still keeps the lock."""
    async with Proxy("127.0.0.1", server.port) as proxy:
        url = url_of(server, host=f"127.0.0.1:{proxy.port}")
        async with connect(url, ttl=1.5) as client:
            claim = await held(client, name)
            proxy.silence()
            await asyncio.wait_for(claim.lost.wait(), SOON_S)
            assert locks(server, name) == 1
            proxy.silence(is_deaf=False)


async def test_a_grant_whose_reply_was_lost_is_granted_once(server: Postgres, name: str) -> None:
    """What was taken went with the session; the same ask has it by the next one."""
    async with (
        Proxy("127.0.0.1", server.port) as proxy,
        connect(url_of(server, host=f"127.0.0.1:{proxy.port}")) as client,
    ):
        proxy.lose_replies()
        claim = await held(client, name)
        assert proxy.lost.is_set()
        assert locks(server, name) == 1
        await claim.release()
        assert locks(server, name) == 0


async def test_what_a_client_has_it_does_not_take_again(server: Postgres, name: str) -> None:
    """The server would let one session have it twice; here the second one waits for the first."""
    async with connect(url_of(server)) as client:
        claim = await held(client, name)
        assert await client.lock(name, tier=EFFICIENCY, timeout=0).acquire() is None
        assert await client.lock(name, tier=EFFICIENCY, timeout=0, shared=True).acquire() is None
        waiting = asyncio.create_task(held(client, name))
        await claim.release()
        await (await waiting).release()
        assert locks(server, name) == 0


async def test_a_cancelled_ask_costs_nobody_else_a_hold(server: Postgres, new_name: Callable[[], str]) -> None:
    """Its lock is given back; the session, and what it holds, lives on."""
    kept, name = new_name(), new_name()
    async with connect(url_of(server)) as client:
        claim = await held(client, kept)
        for steps in range(8):
            task = asyncio.create_task(client.lock(name, tier=EFFICIENCY).acquire())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(outcome, aio.Claim):
                await outcome.release()
        await until(lambda: locks(server, name) == 0)
        assert claim.safe_for() > 0
        await claim.release()


async def test_a_ttl_is_kept_by_the_client(server: Postgres, name: str) -> None:
    """The server would never end it: it is freed by a timer, after its trust is over."""
    async with connect(url_of(server)) as client:
        claim = await held(client, name, ttl=0.4)
        await asyncio.wait_for(claim.lost.wait(), SOON_S)
        await until(lambda: locks(server, name) == 0)


async def test_a_step_that_fails_leaves_no_lock_behind(server: Postgres, name: str) -> None:
    """What a statement takes stays taken though it fails later: so it is given back."""
    async with connect(url_of(server, "dropped")) as client:
        server.sql("ALTER TABLE dropped.advisory ADD CHECK (false)")
        with pytest.raises(Unavailable):
            await client.lock(name, tier=EFFICIENCY, timeout=0).acquire()
        await until(lambda: locks(server, name) == 0)


async def test_through_a_pooler_it_is_refused(server: Postgres, name: str) -> None:
    """Whoever comes next on the connection would have the locks; unless it is said that nobody does."""
    async with Proxy("127.0.0.1", server.port, as_a_pooler) as pooler:
        host = f"127.0.0.1:{pooler.port}"
        with pytest.raises(Unsupported, match="pooler=session"):
            async with connect(url_of(server, host=host)):
                pass
        async with connect(url_of(server, host=host, pooler="session")) as client:
            await (await held(client, name)).release()


async def test_eight_clients_that_come_first_make_one_table(server: Postgres) -> None:
    """All at once, where there is nothing yet."""

    async def use(number: int) -> None:
        async with connect(url_of(server, "eight")) as client:
            await (await held(client, "one")).release()

    await asyncio.gather(*map(use, range(8)))
    assert server.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'eight'") == "advisory"


async def test_who_may_not_make_the_table_is_told_what_to_run(server: Postgres) -> None:
    """The message is the SQL."""

    async def main() -> None:
        async with connect(url_of(server, "guarded", user=f"{GUARDED}:{GUARDED}")):
            pass

    with pytest.raises(PermissionDenied, match=r"CREATE UNLOGGED TABLE IF NOT EXISTS guarded\.advisory"):
        await main()
