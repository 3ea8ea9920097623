"""Room: what is not needed any more is given back, and what is needed never is."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fencehold.engines.postgres import PostgresJournal
from fencehold.engines.postgres.queries import Queries, Unanswered
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.journal.port import Snapshot
from fencehold.types import Position
from tests.contract.engines.postgres import fresh_schema, server
from tests.contract.harness import fill, leading, opened, read_all, run
from tests.unit.engines.postgres.stage import journal_at

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("postgres")]


def size_of(schema: str) -> int:
    tables = " + ".join(f"pg_total_relation_size('{schema}.{table}')" for table in ("entries", "chunks"))
    return int(server().sql(f"SELECT {tables}"))


def chunks_of(schema: str) -> str:
    return server().sql(f"SELECT string_agg(DISTINCT snapshot::text, ',') FROM {schema}.chunks")


async def snapshot_of(schema: str) -> Snapshot | None:
    journal = journal_at(schema)
    found = await journal.open()
    await journal.close()
    return found.snapshot


def test_the_tables_stay_as_large_as_what_is_between_two_trims() -> None:
    """Rounds of entries, a snapshot and a trim: after the first few, nothing grows any more."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema)) as (journal, epoch):
            sizes = []
            for first in range(1, 320, 40):
                for position in range(first, first + 40):
                    await journal.append(bytes(5_000), epoch=epoch, position=Position(position))
                await journal.save(Position(first + 39), [bytes(300_000)])
                await journal.trim()
                sizes.append(size_of(schema))
            assert max(sizes[3:]) <= 1.2 * sizes[2]
            assert await read_all(journal, 320) == []

    run(work())


def test_a_trim_of_very_many_entries_goes_in_steps() -> None:
    """More entries than are deleted at once are all deleted, and those after the snapshot are all there."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema)) as (journal, epoch):
            await fill(journal, epoch, [1])
            server().sql(f"INSERT INTO {schema}.entries SELECT at, 1, 'x' FROM generate_series(2, 3500) AS at")
            await journal.save(Position(3_490), [b"state"])
            await journal.trim()
            assert server().sql(f"SELECT min(position), count(*) FROM {schema}.entries") == "3491|10"
            assert [record.position for record in await read_all(journal, 3_490)] == list(range(3_491, 3_501))

    run(work())


def test_pages_of_large_entries_are_small() -> None:
    """Entries that would not fit into memory together are read a few at a time, in order, each once."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema)) as (journal, epoch):
            for position in range(1, 13):
                await journal.append(bytes([position]) * (1 << 20), epoch=epoch, position=Position(position))
            assert isinstance(journal, PostgresJournal)
            found = await read_all(journal)
            assert [record.entry[0] for record in found] == list(range(1, 13))

    run(work())


def test_a_snapshot_that_is_given_up_leaves_nothing() -> None:
    """What was written of it is deleted, whether its maker failed or was cancelled."""

    def failing() -> Iterator[bytes]:
        yield bytes(1 << 20)
        raise ArithmeticError("the maker failed")

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema)) as (journal, epoch):
            await fill(journal, epoch, range(1, 6))
            await journal.save(Position(2), [b"older"])
            with pytest.raises(ArithmeticError):
                await journal.save(Position(4), failing())
            await read_all(journal)
            assert chunks_of(schema) == "1"
        assert await snapshot_of(schema) == (2, b"older")

    run(work())


def test_a_snapshot_that_was_overtaken_does_not_stand() -> None:
    """Two handles save at once: the later begun stands, and a trim never takes a part of what stands."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema)) as (journal, epoch), opened(journal_at(schema)) as other:
            await fill(journal, epoch, range(1, 6))
            begun, overtaken = asyncio.Event(), asyncio.Event()

            def slow() -> Iterator[bytes]:
                begun.set()
                while not overtaken.is_set():
                    yield b""
                yield bytes(600_000)

            saving = asyncio.ensure_future(journal.save(Position(5), slow()))
            await begun.wait()
            await other.save(Position(3), [b"the other"])
            await other.trim()
            overtaken.set()
            with pytest.raises(Unavailable, match="another snapshot"):
                await saving
            await other.trim()
            assert chunks_of(schema) == "2"
        assert await snapshot_of(schema) == (3, b"the other")

    run(work())


def test_a_publication_that_was_not_answered_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either snapshot may stand then, so nothing of the new one is deleted: here it does stand, whole."""
    ask = Queries.ask

    async def unanswered(queries: Queries, statement: str, *params: int | bytes) -> list[Any]:
        rows = await ask(queries, statement, *params)
        if statement == queries.statements.publish:
            raise Unanswered("lost")
        return rows

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema)) as (journal, epoch):
            await fill(journal, epoch, range(1, 6))
            await journal.save(Position(2), [b"older"])
            monkeypatch.setattr(Queries, "ask", unanswered)
            with pytest.raises(OutcomeUnknown):
                await journal.save(Position(4), [b"newer"])
            monkeypatch.undo()
            await journal.trim()
        assert await snapshot_of(schema) == (4, b"newer")

    run(work())


def test_what_the_tables_hold_counts_and_not_how_large_they_once_were() -> None:
    """A bound in the URL is compared with what is in use: after a trim that is less, though no table shrinks."""

    async def work() -> None:
        schema = fresh_schema()
        journal = PostgresJournal.from_url(server().url(schema, room_bytes="1000000000"))
        async with leading(journal) as (_, epoch):
            empty = (await journal.room(10.0)).used_bytes
            assert empty is not None
            for position in range(1, 41):
                await journal.append(bytes(50_000), epoch=epoch, position=Position(position))
            full = await journal.room(10.0)
            assert full.allowed_bytes == 1_000_000_000
            assert full.used_bytes is not None
            assert full.used_bytes - empty >= 2_000_000
            await journal.save(Position(40), [b"state"])
            await journal.trim(urgent=True)
            trimmed = (await journal.room(10.0)).used_bytes
            assert trimmed is not None
            assert trimmed - empty < 1_000_000

    run(work())
