"""Appending: order, place, and what each failure says of the entry."""

import asyncio
import contextlib

import pytest

from fencehold.errors import OutcomeUnknown, OutOfPlace, Unavailable, UsageError
from fencehold.journal.port import Journal, Record
from fencehold.types import Epoch, Position
from tests.contract.harness import Harness, entry, fill, leading, opened, read_all


async def test_entries_are_read_back_in_the_order_of_their_positions(harness: Harness) -> None:
    """What was appended is read back whole, in order, from any place."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 101))
        assert await read_all(journal) == records
        assert await read_all(journal, 42) == records[42:]
        assert await read_all(journal, 100) == []


@pytest.mark.guarantee("G3")
async def test_entries_are_there_after_closing_and_opening(harness: Harness) -> None:
    """A handle opened later finds every entry, the newest epoch and the end."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 51))
    again = harness.handle()
    found = await again.open()
    assert (found.snapshot, found.epoch, found.end, found.notes) == (None, epoch, 50, ())
    assert await read_all(again) == records
    await again.close()


@pytest.mark.parametrize("wrong", [0, 1, 3, 5, 1 << 40])
async def test_an_append_out_of_place_writes_nothing(harness: Harness, wrong: int) -> None:
    """Only the next position can be written; any other is refused and leaves no trace."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 4))
        with pytest.raises(OutOfPlace):
            await journal.append(b"misplaced", epoch=epoch, position=Position(wrong))
        assert await read_all(journal) == records
        records += await fill(journal, epoch, [4])
    async with opened(harness.handle()) as journal:
        assert await read_all(journal) == records


async def test_an_empty_entry_is_refused(harness: Harness) -> None:
    """An entry has at least one byte, and not more than the engine takes."""
    async with leading(harness.handle()) as (journal, epoch):
        largest = journal.declared.entry_bytes_max
        for wrong in (b"", bytes(largest + 1)):
            with pytest.raises(UsageError):
                await journal.append(wrong, epoch=epoch, position=Position(1))
        records = [Record(Position(1), epoch, bytes(largest))]
        await journal.append(records[0].entry, epoch=epoch, position=Position(1))
        assert await read_all(journal) == records


async def test_an_append_that_is_unavailable_leaves_nothing_and_may_be_tried_again(harness: Harness) -> None:
    """After `Unavailable` the entry is absent, and the same position can be written."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 8))
        harness.fail_next_append()
        position = Position(8)
        while True:
            # An engine may have room in hand: then the failure comes with a later append.
            try:
                await journal.append(entry(position), epoch=epoch, position=position)
            except Unavailable:
                break
            records.append(Record(position, epoch, entry(position)))
            position = Position(position + 1)
        assert await read_all(journal) == records
        records += await fill(journal, epoch, range(position, position + 20))
    async with opened(harness.handle()) as journal:
        assert await read_all(journal) == records


@pytest.mark.guarantee("G9")
async def test_after_a_lost_reply_reading_tells_and_a_new_epoch_goes_on(harness: Harness) -> None:
    """An unknown outcome is settled by opening anew and reading: no entry is doubled, none is lost."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 6))
        harness.lose_next_reply()
        # An engine that settles a lost reply by itself may say that the entry is there, and nothing else.
        with contextlib.suppress(OutcomeUnknown):
            await journal.append(entry(6), epoch=epoch, position=Position(6))
    async with leading(harness.handle()) as (journal, newer):
        assert await read_all(journal) == [*records, Record(Position(6), epoch, entry(6))]
        with pytest.raises(OutOfPlace):
            await journal.append(entry(6), epoch=newer, position=Position(6))
        await fill(journal, newer, range(7, 20))
        found = await read_all(journal)
    assert [record.position for record in found] == list(range(1, 20))


@pytest.mark.parametrize("steps", range(8))
async def test_a_cancelled_append_leaves_a_whole_journal(harness: Harness, steps: int) -> None:
    """Whenever an append is cancelled, it is there whole or not at all, and appending goes on."""

    async def settle(journal: Journal, epoch: Epoch) -> list[Record]:
        try:
            return await fill(journal, epoch, [4])
        except OutOfPlace:
            return [Record(Position(4), epoch, entry(4))]

    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 4))
        task = asyncio.ensure_future(journal.append(entry(4), epoch=epoch, position=Position(4)))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        records += await settle(journal, epoch)
        records += await fill(journal, epoch, range(5, 9))
        assert await read_all(journal) == records
    async with opened(harness.handle()) as journal:
        assert await read_all(journal) == records


async def test_many_entries_are_read_back_equal(harness: Harness) -> None:
    """Volume changes nothing: every one of very many entries is read back, also after opening anew."""
    many = harness.volume
    async with leading(harness.quick_handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, many + 1))
        assert await read_all(journal) == records
    async with opened(harness.quick_handle()) as journal:
        assert await read_all(journal, many // 2) == records[many // 2 :]
