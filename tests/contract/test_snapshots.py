"""Snapshots replace each other whole; entries are trimmed only up to one."""

import asyncio
from collections.abc import Iterator

import pytest

from fencehold.errors import Trimmed, UsageError
from fencehold.journal.port import Snapshot
from fencehold.types import Position
from tests.contract.harness import Harness, fill, leading, opened, read_all


async def saved(harness: Harness) -> Snapshot | None:
    journal = harness.handle()
    found = await journal.open()
    await journal.close()
    return found.snapshot


async def test_a_snapshot_is_found_whole_with_the_entries_after_it(harness: Harness) -> None:
    """Opening gives the newest snapshot as it was saved, and reading after it gives the rest."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 31))
        await journal.save(Position(10), [b"ten"])
        await journal.save(Position(20), [b"twen", b"", b"ty", bytes(1 << 20)])
        assert await read_all(journal, 20) == records[20:]
    assert await saved(harness) == Snapshot(Position(20), b"twenty" + bytes(1 << 20))
    async with opened(harness.handle()) as journal:
        assert await read_all(journal, 20) == records[20:]


@pytest.mark.guarantee("G1")
async def test_after_a_trim_epochs_and_positions_go_on(harness: Harness) -> None:
    """A trimmed journal opened anew starts from its snapshot and forgets neither epoch nor position."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 201))
        await journal.save(Position(150), [b"state"])
        await journal.trim()
        await journal.trim()
        assert await read_all(journal, 150) == records[150:]
    again = harness.handle()
    found = await again.open()
    assert (found.snapshot, found.epoch, found.end) == (Snapshot(Position(150), b"state"), epoch, 200)
    newer = await again.lead()
    assert newer > epoch
    records += await fill(again, newer, range(201, 230))
    assert await read_all(again, 150) == records[150:]
    await again.close()


async def test_reading_what_was_trimmed_says_so(harness: Harness) -> None:
    """A reader from before the snapshot is told to start from it, never handed a journal with a gap."""
    async with leading(harness.handle()) as (journal, epoch):
        await fill(journal, epoch, range(1, 201))
        await journal.save(Position(200), [b"state"])
        await journal.trim()
        with pytest.raises(Trimmed):
            await read_all(journal)
    async with opened(harness.handle()) as journal:
        with pytest.raises(Trimmed):
            await read_all(journal)
        assert await read_all(journal, 200) == []


@pytest.mark.guarantee("G1")
async def test_a_journal_trimmed_to_its_end_goes_on_at_the_next_position(harness: Harness) -> None:
    """When the snapshot covers every entry, the next position is still the one after the last."""
    async with leading(harness.handle()) as (journal, epoch):
        await fill(journal, epoch, range(1, 41))
        await journal.save(Position(40), [b"all"])
        await journal.trim()
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(41, 60))
        assert await read_all(journal, 40) == records


async def test_trimming_without_a_snapshot_keeps_everything(harness: Harness) -> None:
    """Only a snapshot makes entries needless."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 101))
        await journal.trim()
        assert await read_all(journal) == records


@pytest.mark.parametrize("position", [10, 20])
async def test_a_snapshot_that_fails_midway_leaves_the_older(harness: Harness, position: int) -> None:
    """A snapshot whose making raises changes nothing, not even at the position of the older one."""

    def failing() -> Iterator[bytes]:
        yield bytes(1 << 20)
        raise ArithmeticError("the maker failed")

    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 31))
        await journal.save(Position(10), [b"older"])
        with pytest.raises(ArithmeticError):
            await journal.save(Position(position), failing())
        await journal.trim()
        assert await read_all(journal, 10) == records[10:]
    assert await saved(harness) == Snapshot(Position(10), b"older")


async def test_a_cancelled_snapshot_leaves_the_older(harness: Harness) -> None:
    """Giving up a snapshot midway changes nothing, and a later one can be saved."""

    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(1 << 16)

    async with leading(harness.handle()) as (journal, epoch):
        await fill(journal, epoch, range(1, 31))
        await journal.save(Position(10), [b"older"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(journal.save(Position(20), endless()), 0.02)
    assert await saved(harness) == Snapshot(Position(10), b"older")
    async with opened(harness.handle()) as journal:
        await journal.save(Position(30), [b"newer"])
    assert await saved(harness) == Snapshot(Position(30), b"newer")


async def test_appends_go_on_between_the_chunks_of_a_snapshot(harness: Harness) -> None:
    """The loop runs after every chunk, so appends made meanwhile are neither held up nor lost."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 11))
        drawn = 0

        def chunks() -> Iterator[bytes]:
            nonlocal drawn
            while not appends.done():
                drawn += 1
                yield b"chunk"

        appends = asyncio.ensure_future(fill(journal, epoch, range(11, 41)))
        await journal.save(Position(10), chunks())
        records += await appends
        assert await read_all(journal, 10) == records[10:]
    assert await saved(harness) == Snapshot(Position(10), b"chunk" * drawn)


async def test_a_snapshot_out_of_place_is_refused(harness: Harness) -> None:
    """A snapshot of the future, or older than the one that stands, is a usage error and changes nothing."""
    async with leading(harness.handle()) as (journal, epoch):
        await fill(journal, epoch, range(1, 31))
        await journal.save(Position(20), [b"stands"])
        for wrong in (31, 19):
            with pytest.raises(UsageError):
                await journal.save(Position(wrong), [b"wrong"])
        await journal.save(Position(20), [b"stands", b" anew"])
    assert await saved(harness) == Snapshot(Position(20), b"stands anew")
