"""Appends whose reply is lost: they are settled, or their outcome is said to be unknown; never a guess."""

import asyncio
from typing import LiteralString

import pytest

from fencehold.errors import OutcomeUnknown, Sealed, Unavailable
from fencehold.journal.port import Journal, Record
from fencehold.types import Epoch, Position
from tests.contract.engines.postgres import fresh_schema, server
from tests.contract.harness import entry, fill, leading, opened, read_all
from tests.unit.engines.postgres.stage import LONG, SHORT, Valve, another, journal_at, until_so

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("postgres")]

_WAITING: LiteralString = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


async def warm(journal: Journal, epoch: Epoch) -> list[Record]:
    """Some entries, so that the next append is one message to the server and one back."""
    return await fill(journal, epoch, range(1, 4))


@pytest.mark.guarantee("G9")
async def test_an_append_whose_reply_is_lost_is_found() -> None:
    """It was committed; that is found out over a new connection, and it is there once."""
    async with Valve() as valve, leading(journal_at(fresh_schema(), host=valve.address)) as (journal, epoch):
        records = await warm(journal, epoch)
        before = valve.connections
        valve.loses_reply = True
        records += await fill(journal, epoch, [4])
        assert not valve.loses_reply
        assert valve.connections == before + 1
        records += await fill(journal, epoch, [5])
        assert await read_all(journal) == records


@pytest.mark.guarantee("G9")
async def test_a_statement_that_arrives_late_changes_nothing() -> None:
    """An append that the network held back was entered by the second try; the first finds its place taken."""
    async with Valve() as valve, leading(journal_at(fresh_schema(), host=valve.address)) as (journal, epoch):
        records = await warm(journal, epoch)
        valve.holds_request = True
        records += await fill(journal, epoch, [4])
        assert valve.held.is_set()
        await valve.release()
        records += await fill(journal, epoch, [5])
        assert await read_all(journal) == records


@pytest.mark.guarantee("G10")
async def test_a_statement_that_arrives_after_a_newer_epoch_is_sealed() -> None:
    """Whatever was held back comes too late for good once a newer epoch stands, and its leader is told so."""
    schema = fresh_schema()
    async with Valve() as valve, leading(journal_at(schema, host=valve.address)) as (old, older):
        records = await warm(old, older)
        valve.holds_request = True
        async with another(schema) as other:
            # Nobody can enter anything while this transaction is open.
            await other.execute("UPDATE journal SET epoch = epoch + 1")
            late = asyncio.ensure_future(old.append(b"late", epoch=older, position=Position(4)))
            await valve.held.wait()
            await other.commit()
        with pytest.raises(Sealed):
            await late
        await valve.release()
        async with leading(journal_at(schema)) as (new, newer):
            records += await fill(new, newer, [4])
            assert await read_all(new) == records


@pytest.mark.guarantee("G9")
async def test_an_append_that_came_in_before_the_newer_epoch_is_acknowledged() -> None:
    """Its reply was lost and a newer epoch stands, but it is in the journal for good: that is the truth."""
    schema = fresh_schema()
    async with (
        Valve() as valve,
        leading(journal_at(schema, host=valve.address, bounds=LONG)) as (old, older),
        opened(journal_at(schema, bounds=LONG)) as new,
        another(schema) as other,
    ):
        records = await warm(old, older)
        # Holds the append up where it has the row of the journal; so who leads comes right behind it.
        await other.execute("INSERT INTO entries VALUES (4, 0, 'never')")
        appending = asyncio.ensure_future(fill(old, older, [4]))
        await until_so(schema, f"{_WAITING} AND query LIKE '%entries%'")
        taking = asyncio.ensure_future(new.lead())
        await until_so(schema, f"{_WAITING} AND query LIKE '%SET epoch%'")
        valve.loses_reply = True
        await other.rollback()
        assert await taking == older + 1
        records += await appending
        assert not valve.loses_reply
        assert await read_all(new) == records


@pytest.mark.guarantee("G3")
async def test_a_server_that_is_killed_during_appends_loses_none() -> None:
    """`kill -9` of the server in the middle, and its recovery: what was acknowledged is there."""

    async def append_all(journal: Journal, epoch: Epoch, done: list[Record], progress: asyncio.Event) -> None:
        for position in range(1, 100_000):
            done += await fill(journal, epoch, [position])
            progress.set()

    async with leading(journal_at(fresh_schema(), bounds=LONG)) as (journal, epoch):
        acknowledged: list[Record] = []
        progress = asyncio.Event()
        appending = asyncio.ensure_future(append_all(journal, epoch, acknowledged, progress))
        for steps in (2, 5):
            for _ in range(20):
                progress.clear()
                await progress.wait()
            # Far enough for the next append to be on its way.
            for _ in range(steps):
                await asyncio.sleep(0)
            server().kill()
            server().restart()
        progress.clear()
        await progress.wait()
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
        newer = await journal.lead()
        found = await read_all(journal)
        assert found == [Record(Position(at), epoch, entry(at)) for at in range(1, len(found) + 1)]
        assert found[: len(acknowledged)] == acknowledged
        await fill(journal, newer, [len(found) + 1])


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("size", [10, 4 << 20])
async def test_a_server_that_says_nothing_leaves_the_outcome_unknown(size: int) -> None:
    """A paused server: the append ends in time, unknown; when the server wakes up, a new epoch settles it."""
    schema = fresh_schema()
    async with opened(journal_at(schema)) as other:
        journal = journal_at(schema, bounds=SHORT)
        await journal.open()
        epoch = await journal.lead()
        records = await warm(journal, epoch)
        server().pause()
        try:
            with pytest.raises(OutcomeUnknown):
                await journal.append(bytes(size), epoch=epoch, position=Position(4))
            with pytest.raises((OutcomeUnknown, Unavailable)):
                await journal.lead()
            with pytest.raises(Unavailable):
                await read_all(journal)
            await journal.close()
        finally:
            server().resume()
        epoch = await other.lead()
        found = await read_all(other)
        assert found[3:] in ([], [Record(Position(4), Epoch(1), bytes(size))])
        assert found[:3] == records
        await fill(other, epoch, [len(found) + 1])


async def test_a_connection_that_died_while_idle_is_not_used() -> None:
    """The server ended it, and said so: nothing is sent, so nothing is in doubt, and the next one is used."""
    async with leading(journal_at(fresh_schema())) as (journal, epoch):
        records = await warm(journal, epoch)
        server().sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'fencehold'")
        records += await fill(journal, epoch, range(4, 7))
        assert await read_all(journal) == records


async def test_a_server_that_is_gone_is_unavailable_at_once() -> None:
    """Nothing was sent, so nothing is in doubt: an append after the server's end is certainly absent."""
    async with leading(journal_at(fresh_schema())) as (journal, epoch):
        records = await warm(journal, epoch)
        server().kill()
        try:
            with pytest.raises(Unavailable):
                await journal.append(b"in vain", epoch=epoch, position=Position(4))
        finally:
            server().restart()
        records += await fill(journal, epoch, [4])
        assert await read_all(journal) == records


async def test_an_epoch_whose_taking_was_not_answered_is_followed_by_another() -> None:
    """The reply to `lead` is lost: a newer epoch is taken, and that one stands."""
    async with Valve() as valve, leading(journal_at(fresh_schema(), host=valve.address)) as (journal, epoch):
        valve.loses_reply = True
        newer = await journal.lead()
        assert newer == epoch + 2
        records = await fill(journal, newer, [1])
        assert await read_all(journal) == records


async def test_an_epoch_whose_taking_was_not_answered_is_followed_by_the_next() -> None:
    """It may be this node's own: nobody else is to have it, and nobody waits for who may not exist."""
    schema = fresh_schema()
    async with Valve() as valve, leading(journal_at(schema, host=valve.address)) as (journal, epoch):
        # The first time the statement is prepared, and the reply that is lost would be to that.
        known = await journal.lead(epoch)
        valve.loses_reply = True
        assert await journal.lead(known) == known + 2
        async with leading(journal_at(schema)) as (_, newest):
            with pytest.raises(Sealed) as sealed:
                await journal.lead(known)
            assert sealed.value.newest == newest
