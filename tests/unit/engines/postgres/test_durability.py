"""What is answered is durable: a server that could lose it is refused, a standby that must have it is awaited."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from typing import LiteralString

import pytest

from fencehold.engines.postgres import PostgresBounds, PostgresJournal
from fencehold.engines.postgres.address import PostgresJournalAddress
from fencehold.engines.postgres.journal import connection_to
from fencehold.errors import OutcomeUnknown, Unavailable, UsageError
from fencehold.types import Position
from rig.postgres import Postgres, reachable_folder
from tests.contract.engines.postgres import fresh_schema, server
from tests.contract.harness import entry, fill, leading, opened, read_all, run
from tests.unit.engines.postgres.stage import LONG, journal_at, until_so

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("postgres")]

_COMMITTING: LiteralString = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture(params=["fsync", "full_page_writes"])
def lacking(request: pytest.FixtureRequest, postgres: None) -> Iterator[str]:
    """A setting that the server has switched off."""
    server().set(request.param, "off")
    yield request.param
    server().set(request.param, None)


@pytest.fixture
def standbys(postgres: None) -> Iterator[Callable[[str | None], None]]:
    """Sets which standbys must have everything before it is acknowledged."""
    yield lambda names: server().set("synchronous_standby_names", names)
    server().set("synchronous_standby_names", None)


@pytest.fixture
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    """A server and its synchronous standby."""
    folders = [reachable_folder(), reachable_folder()]
    primary, standby = (Postgres(folder) for folder in folders)
    try:
        primary.start()
        standby.follow(primary)
        primary.set("synchronous_standby_names", "*")
        yield primary, standby
    finally:
        for one, folder in zip((primary, standby), folders, strict=True):
            one.stop()
            shutil.rmtree(folder)


def test_a_server_that_may_lose_what_it_acknowledged_is_refused(lacking: str) -> None:
    """It is refused with what to do, unless the URL says that this is known; then it is not called durable."""

    async def work() -> None:
        with pytest.raises(UsageError, match=f"unsafe={lacking}"):
            await journal_at(fresh_schema()).open()
        knowing = journal_at(fresh_schema(), unsafe=lacking)
        assert knowing.declared.durable == (lacking != "fsync")
        async with leading(knowing) as (journal, epoch):
            assert await fill(journal, epoch, [1]) == await read_all(journal)

    run(work())


def test_several_servers_without_a_synchronous_standby_are_refused() -> None:
    """Another server that takes over could lack what was acknowledged, unless the URL says that this is known."""

    async def work() -> None:
        hosts = f"127.0.0.1:{server().port},127.0.0.1:{server().port}"
        with pytest.raises(UsageError, match="unsafe=asynchronous"):
            await journal_at(fresh_schema(), host=hosts).open()
        async with leading(journal_at(fresh_schema(), host=hosts, unsafe="asynchronous")) as (journal, epoch):
            assert await fill(journal, epoch, [1]) == await read_all(journal)

    run(work())


@pytest.mark.parametrize("asked", ["on", "remote_apply", "remote_write"])
def test_commits_wait_for_the_disk_whatever_the_default(asked: str) -> None:
    """Neither the server's nor the user's default is relied upon."""

    async def work() -> None:
        address = PostgresJournalAddress.parse(server().url(fresh_schema(), synchronous_commit=asked))
        connection = connection_to(address, statement_timeout_s=5)
        until = asyncio.get_running_loop().time() + 10
        assert await connection.ask("SHOW synchronous_commit", until=until) == [(asked,)]
        connection.cut()
        await connection.end()

    server().sql("ALTER ROLE fencehold SET synchronous_commit = off")
    try:
        run(work())
    finally:
        server().sql("ALTER ROLE fencehold RESET synchronous_commit")


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_without_the_synchronous_standby_nothing_is_acknowledged(
    standbys: Callable[[str | None], None], is_cancelled: bool
) -> None:
    """It is committed here and not there: unknown, also when an operator has the server give up waiting."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema, bounds=PostgresBounds(append_s=2.0))) as (journal, epoch):
            records = await fill(journal, epoch, range(1, 4))
            standbys("nobody")
            appending = asyncio.ensure_future(journal.append(entry(4), epoch=epoch, position=Position(4)))
            if is_cancelled:
                await until_so(schema, f"SELECT count(pg_cancel_backend(pid)) = 1 {_COMMITTING}")
            with pytest.raises(OutcomeUnknown):
                await appending
            standbys(None)
        async with leading(journal_at(schema, bounds=LONG)) as (journal, newer):
            records = [*records, *(await read_all(journal, 3))]
            assert [record.entry for record in records[3:]] in ([], [entry(4)])
            await fill(journal, newer, [len(records) + 1])

    run(work())


@pytest.mark.guarantee("G3")
def test_a_standby_that_takes_over_has_all_that_was_acknowledged(pair: tuple[Postgres, Postgres]) -> None:
    """The primary is killed and its standby promoted: the journal goes on there, and nothing is lost."""
    primary, standby = pair
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = primary.url(host=hosts, unsafe="asynchronous")

    async def work() -> None:
        with pytest.raises(Unavailable, match="standby"):
            await PostgresJournal.from_url(standby.url()).open()
        journal = PostgresJournal(PostgresJournalAddress.parse(url), bounds=LONG)
        async with (
            leading(journal) as (_, epoch),
            opened(PostgresJournal(PostgresJournalAddress.parse(url), bounds=LONG)) as other,
        ):
            tail = aiter(other.tail(Position(0)))
            records = await fill(journal, epoch, range(1, 51))
            assert [await anext(tail) for _ in range(50)] == records
            primary.kill()
            standby.promote()
            records += await fill(journal, epoch, range(51, 61))
            assert [await anext(tail) for _ in range(10)] == records[50:]
            assert await read_all(journal) == records
            assert await other.lead() == epoch + 1

    run(work())
