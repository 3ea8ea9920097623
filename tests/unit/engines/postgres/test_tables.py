"""The tables: made once, by whoever comes first and may; never mended in silence."""

import asyncio

import pytest

from fencehold.engines.postgres import PostgresJournal
from fencehold.errors import Damaged, Unavailable, UsageError
from rig.postgres import GUARDED
from tests.contract.engines.postgres import fresh_schema, server
from tests.contract.harness import fill, leading, opened, read_all
from tests.unit.engines.postgres.stage import LONG, journal_at

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("postgres")]


async def test_nodes_that_come_up_at_once_make_one_journal() -> None:
    """Eight handles open a journal that is not there: all find it empty, and all have the same one."""
    schema = fresh_schema()
    journals = [journal_at(schema, bounds=LONG) for _ in range(8)]
    found = await asyncio.gather(*(journal.open() for journal in journals))
    assert found == [(None, 0, 0, ())] * 8
    assert [await journal.lead() for journal in journals] == list(range(1, 9))
    await asyncio.gather(*(journal.close() for journal in journals))


async def test_who_may_not_make_a_schema_is_told_what_to_have_made() -> None:
    """The user in the URL needs no rights beyond a schema of its own, which an administrator may make for it."""
    schema = fresh_schema()
    journal = PostgresJournal.from_url(server().url(schema, user=f"{GUARDED}:{GUARDED}"))
    with pytest.raises(UsageError, match=f"CREATE SCHEMA {schema} AUTHORIZATION"):
        await journal.open()
    server().sql(f"CREATE SCHEMA {schema} AUTHORIZATION {GUARDED}")
    async with leading(journal) as (_, epoch):
        assert await fill(journal, epoch, [1]) == await read_all(journal)
        await journal.save((await fill(journal, epoch, [2]))[0].position, [b"state"])
        await journal.trim()
    with pytest.raises(UsageError, match="granted"):
        await journal_at(schema).open()


async def test_a_wrong_password_is_told_without_it() -> None:
    """The server's own words are passed on, and the password is in none of them."""
    journal = PostgresJournal.from_url(server().url(fresh_schema(), user=f"{GUARDED}:s3cret"))
    with pytest.raises(Unavailable, match="authentication") as refused:
        await journal.open()
    assert "s3cret" not in str(refused.value) + repr(journal)


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        ("DELETE FROM journal", "journal is gone"),
        ("DELETE FROM snapshot", "snapshot is gone"),
        ("UPDATE journal SET format = 99", "format 99"),
        ("DELETE FROM chunks", "not whole"),
        ("DELETE FROM chunks WHERE number = 1", "not whole"),
        ("UPDATE chunks SET data = '' WHERE number = 1", "not whole"),
        ("UPDATE journal SET trimmed = trimmed + 1", "missing"),
    ],
)
async def test_tables_that_lack_something_are_damaged(damage: str, word: str) -> None:
    """What is missing is never taken for a new journal, nor for an older one."""
    schema = fresh_schema()
    async with leading(journal_at(schema)) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 6))
        await journal.save(records[2].position, [bytes(300_000), b"state"])
        await journal.trim()
    server().sql(f"SET search_path TO {schema}; {damage}")
    with pytest.raises(Damaged, match=word):
        await journal_at(schema).open()


async def test_an_entry_that_is_missing_is_damage() -> None:
    """A reader is never handed a journal with a gap."""
    schema = fresh_schema()
    async with leading(journal_at(schema)) as (journal, epoch):
        await fill(journal, epoch, range(1, 6))
        server().sql(f"DELETE FROM {schema}.entries WHERE position = 3")
        with pytest.raises(Damaged, match="missing"):
            await read_all(journal)
    async with opened(journal_at(schema)) as journal:
        assert len(await read_all(journal, 3)) == 2
