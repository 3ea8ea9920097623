"""Two transactions at once: whoever waited decides by what is there then, not by what it saw when it began."""

import asyncio
from collections.abc import Iterator
from typing import LiteralString

import pytest

from fencehold.errors import OutOfPlace, Sealed, UsageError
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position
from tests.contract.engines.postgres import fresh_schema, server
from tests.contract.harness import entry, fill, leading, opened, read_all, run
from tests.unit.engines.postgres.stage import LONG, another, journal_at, until_so

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("postgres")]

_WAITING: LiteralString = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture(params=["read committed", "serializable"])
def isolation(request: pytest.FixtureRequest, postgres: None) -> Iterator[str]:
    """What transactions are by default, for our user; ours must not depend on it."""
    server().sql(f"ALTER ROLE fencehold SET default_transaction_isolation = '{request.param}'")
    yield request.param
    server().sql("ALTER ROLE fencehold RESET default_transaction_isolation")


@pytest.mark.guarantee("G10")
@pytest.mark.parametrize("is_taken", [True, False])
def test_an_append_that_waited_while_an_epoch_was_taken_is_sealed(isolation: str, is_taken: bool) -> None:
    """Its statement began before the epoch was taken, and it still finds the new one; if none was, it goes on."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema, bounds=LONG)) as (journal, epoch), another(schema) as other:
            records = await fill(journal, epoch, range(1, 4))
            await other.execute("UPDATE journal SET epoch = epoch + 1")
            appending = asyncio.ensure_future(fill(journal, epoch, [4]))
            await until_so(schema, _WAITING)
            if is_taken:
                await other.commit()
                with pytest.raises(Sealed):
                    await appending
            else:
                await other.rollback()
                records += await appending
            assert await read_all(journal) == records

    run(work())


@pytest.mark.guarantee("G10")
def test_taking_an_epoch_waits_for_the_append_under_way(isolation: str) -> None:
    """An append that has the row and has not committed: the new leader comes after it, and reads it."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema, bounds=LONG)) as (journal, epoch), another(schema) as other:
            await other.execute("SELECT FROM journal FOR NO KEY UPDATE")
            await other.execute("INSERT INTO entries VALUES (1, %s, 'under way')", [epoch])
            leading_next = asyncio.ensure_future(journal.lead())
            await until_so(schema, _WAITING)
            await other.commit()
            assert await leading_next == epoch + 1
            assert await read_all(journal) == [Record(Position(1), epoch, b"under way")]

    run(work())


def test_of_two_that_append_at_one_position_one_comes_in(isolation: str) -> None:
    """Two handles under one epoch, which nobody should have: still each position is written once."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema)) as (one, epoch), opened(journal_at(schema)) as two:
            records = []
            for at in range(1, 31):
                position = Position(at)
                outcomes = await asyncio.gather(
                    one.append(b"one", epoch=epoch, position=position),
                    two.append(b"two", epoch=epoch, position=position),
                    return_exceptions=True,
                )
                assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "OutOfPlace"]
                records.append(Record(position, epoch, b"one" if outcomes[0] is None else b"two"))
            assert await read_all(one) == records

    run(work())


@pytest.mark.parametrize("is_there", [True, False])
def test_an_append_waits_for_another_at_its_position(is_there: bool) -> None:
    """Whether its position is taken is not decided before the other has ended."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema, bounds=LONG)) as (journal, epoch), another(schema) as other:
            await other.execute("INSERT INTO entries VALUES (1, %s, 'other')", [epoch])
            appending = asyncio.ensure_future(fill(journal, epoch, [1]))
            await until_so(schema, _WAITING)
            if is_there:
                await other.commit()
                with pytest.raises(OutOfPlace):
                    await appending
                assert await read_all(journal) == [Record(Position(1), epoch, b"other")]
            else:
                await other.rollback()
                assert await appending == await read_all(journal)

    run(work())


def test_an_append_that_waited_while_its_place_was_trimmed_writes_nothing() -> None:
    """What it saw before its position when it began is gone: the position is not written a second time."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema, bounds=LONG)) as (journal, epoch), another(schema) as other:
            records = await fill(journal, epoch, range(1, 6))
            await journal.save(Position(3), [b"state"])
            await other.execute("UPDATE journal SET trimmed = 3")
            await other.execute("DELETE FROM entries WHERE position <= 3")
            appending = asyncio.ensure_future(journal.append(b"late", epoch=epoch, position=Position(2)))
            await until_so(schema, _WAITING)
            await other.commit()
            with pytest.raises(OutOfPlace):
                await appending
            assert server().sql(f"SELECT min(position) FROM {schema}.entries") == "4"
            assert await read_all(journal, 3) == records[3:]

    run(work())


def test_a_seed_that_waited_for_the_first_entry_is_refused(isolation: str) -> None:
    """The journal was empty when the seed was begun; what came in before it had the row counts."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema, bounds=LONG)) as (journal, epoch), another(schema) as other:
            await other.execute("SELECT FROM journal FOR NO KEY UPDATE")
            await other.execute("INSERT INTO entries VALUES (1, %s, %s)", [epoch, entry(1)])
            seeding = asyncio.ensure_future(journal.seed(Position(9), [b"state"]))
            await until_so(schema, _WAITING)
            await other.commit()
            with pytest.raises(UsageError, match="empty"):
                await seeding
            assert await read_all(journal) == [Record(Position(1), Epoch(1), entry(1))]

    run(work())
