"""Seeding: an empty journal begins with a snapshot that another one held, whole or not at all."""

import asyncio
from collections.abc import Iterator

import pytest

from fencehold.errors import OutOfPlace, Trimmed, Unavailable, UsageError
from fencehold.journal.port import Journal, Opened, Snapshot
from fencehold.types import Epoch, Position
from tests.contract.harness import Harness, fill, leading, opened, read_all

SEEDED = Snapshot(Position(1_000), b"the state after a thousand")
LARGE = [bytes([number]) * 100_000 for number in range(25)]
"""Larger than what any engine stores in one piece."""


async def reopened(harness: Harness) -> Opened:
    journal = harness.handle()
    found = await journal.open()
    await journal.close()
    return found


async def seed(journal: Journal, snapshot: Snapshot = SEEDED) -> None:
    await journal.seed(snapshot.position, [snapshot.data[:5], b"", snapshot.data[5:]])


async def test_a_seeded_journal_opens_with_the_snapshot_and_its_end(harness: Harness) -> None:
    """Whoever opens it later finds the snapshot, ends where it ends, and finds that nobody ever led."""
    async with opened(harness.handle()) as journal:
        await seed(journal)
        assert await read_all(journal, 1_000) == []
    for _ in range(2):
        assert await reopened(harness) == (SEEDED, 0, 1_000, ())


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("anew", [False, True])
async def test_the_first_append_comes_after_the_seed(harness: Harness, anew: bool) -> None:
    """The next position is the one after the seed, through the handle that seeded and through a later one."""

    async def appended(journal: Journal) -> list[object]:
        epoch = await journal.lead()
        assert epoch == 1
        for wrong in (1, 1_000, 1_002):
            with pytest.raises(OutOfPlace):
                await journal.append(b"misplaced", epoch=epoch, position=Position(wrong))
        records = await fill(journal, epoch, range(1_001, 1_041))
        assert await read_all(journal, 1_000) == records
        assert await read_all(journal, 1_010) == records[10:]
        return list(records)

    async with opened(harness.handle()) as journal:
        await seed(journal)
        if not anew:
            records = await appended(journal)
    if anew:
        async with opened(harness.handle()) as journal:
            records = await appended(journal)
    async with opened(harness.handle()) as journal:
        assert await read_all(journal, 1_000) == records


async def test_reading_from_before_the_seed_says_so(harness: Harness) -> None:
    """What the other journal held before the snapshot is not here, and a reader is told to start from the seed."""

    async def before(journal: Journal) -> None:
        for after in (0, 1, 999):
            with pytest.raises(Trimmed):
                await read_all(journal, after)

    async with opened(harness.handle()) as journal:
        await seed(journal)
        await before(journal)
        await fill(journal, await journal.lead(), range(1_001, 1_011))
        await before(journal)
    async with opened(harness.handle()) as journal:
        await before(journal)


async def test_a_tail_of_the_empty_journal_is_told_of_the_seed(harness: Harness) -> None:
    """A standby that waited for position 1 is never handed position 1001 instead."""

    async def follow(journal: Journal) -> None:
        async for record in journal.tail(Position(0)):
            raise AssertionError(f"handed {record}")

    async with opened(harness.handle()) as journal:
        following = asyncio.ensure_future(follow(journal))
        await asyncio.sleep(0)
        await seed(journal)
        await fill(journal, await journal.lead(), range(1_001, 1_003))
        with pytest.raises(Trimmed):
            await following


async def test_a_journal_with_entries_is_not_seeded(harness: Harness) -> None:
    """Entries are never replaced by a seed: it is refused, and everything is as before."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, [1])
        with pytest.raises(UsageError, match="empty"):
            await seed(journal)
        records += await fill(journal, epoch, [2])
        assert await read_all(journal) == records
    async with opened(harness.handle()) as journal:
        with pytest.raises(UsageError, match="empty"):
            await seed(journal)
    assert await reopened(harness) == (None, epoch, 2, ())


async def test_a_journal_with_a_snapshot_is_not_seeded(harness: Harness) -> None:
    """Neither is one that was seeded, trimmed to its end, or holds a snapshot of its beginning."""
    async with leading(harness.handle()) as (journal, epoch):
        await journal.save(Position(0), [b"the beginning"])
        with pytest.raises(UsageError, match="empty"):
            await seed(journal)
        await fill(journal, epoch, range(1, 31))
        await journal.save(Position(30), [b"all"])
        await journal.trim()
    async with opened(harness.handle()) as journal:
        with pytest.raises(UsageError, match="empty"):
            await seed(journal)
    assert await reopened(harness) == (Snapshot(Position(30), b"all"), epoch, 30, ())


async def test_a_journal_is_seeded_once(harness: Harness) -> None:
    """A second seed, by this handle or another, at this position or another, changes nothing."""
    async with opened(harness.handle()) as journal:
        await seed(journal)
        with pytest.raises(UsageError, match="empty"):
            await seed(journal, Snapshot(Position(5), b"another"))
    async with opened(harness.handle()) as journal:
        with pytest.raises(UsageError, match="empty"):
            await seed(journal, Snapshot(Position(1_000), b"the same place"))
    assert await reopened(harness) == (SEEDED, 0, 1_000, ())


@pytest.mark.parametrize("wrong", [0, -1])
async def test_a_seed_has_a_position_above_0(harness: Harness, wrong: int) -> None:
    """A state before the first entry is no state to begin with."""
    async with opened(harness.handle()) as journal:
        with pytest.raises(UsageError, match="above 0"):
            await seed(journal, Snapshot(Position(wrong), b"nothing"))
    assert await reopened(harness) == (None, 0, 0, ())


async def test_epochs_are_the_journals_own(harness: Harness) -> None:
    """A journal whose epochs were taken, though nothing was written, is empty; seeding takes none back."""
    async with leading(harness.handle()) as (journal, _):
        epoch = await journal.lead()
        await seed(journal)
        records = await fill(journal, epoch, range(1_001, 1_005))
        assert await read_all(journal, 1_000) == records
    assert await reopened(harness) == (SEEDED, 2, 1_004, ())


async def test_a_leader_that_thought_it_empty_is_out_of_place(harness: Harness) -> None:
    """One handle leads and is about to write position 1; another seeds: the first is told, and writes nothing."""
    async with leading(harness.handle()) as (leader, epoch):
        if leader.declared.shared:
            async with opened(harness.handle()) as other:
                await seed(other)
        else:
            await seed(leader)
        with pytest.raises(OutOfPlace):
            await leader.append(b"the first", epoch=epoch, position=Position(1))
        records = await fill(leader, epoch, [1_001])
    async with opened(harness.handle()) as journal:
        assert await read_all(journal, 1_000) == records


async def test_a_large_seed_is_found_whole(harness: Harness) -> None:
    """A state of megabytes comes back as it was, byte for byte."""
    async with opened(harness.handle()) as journal:
        await journal.seed(Position(7), LARGE)
    found = await reopened(harness)
    assert found.snapshot == Snapshot(Position(7), b"".join(LARGE))
    assert found.end == 7


async def test_a_seed_that_fails_midway_leaves_it_empty(harness: Harness) -> None:
    """A seed whose making raises changes nothing, and the journal can be seeded after it."""

    def failing() -> Iterator[bytes]:
        yield from LARGE
        raise ArithmeticError("the maker failed")

    async with opened(harness.handle()) as journal:
        with pytest.raises(ArithmeticError):
            await journal.seed(Position(500), failing())
        assert await read_all(journal) == []
    assert await reopened(harness) == (None, 0, 0, ())
    async with opened(harness.handle()) as journal:
        await seed(journal)
    assert await reopened(harness) == (SEEDED, 0, 1_000, ())


async def test_a_seed_that_is_given_up_leaves_it_empty(harness: Harness) -> None:
    """Cancelled midway, the journal is empty as before, and begins with its first entry."""

    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(1 << 16)

    async with opened(harness.handle()) as journal:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(journal.seed(Position(500), endless()), 0.02)
    assert await reopened(harness) == (None, 0, 0, ())
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 11))
        assert await read_all(journal) == records


async def test_after_a_later_snapshot_the_seed_is_trimmed(harness: Harness) -> None:
    """A seed is a snapshot like any other: an older one is refused, a newer one takes its place."""
    async with opened(harness.handle()) as journal:
        await seed(journal)
        with pytest.raises(UsageError):
            await journal.save(Position(999), [b"older"])
        with pytest.raises(UsageError):
            await journal.save(Position(1_001), [b"of the future"])
        await journal.trim()
        epoch = await journal.lead()
        records = await fill(journal, epoch, range(1_001, 1_201))
        await journal.save(Position(1_150), [b"later"])
        await journal.trim()
        assert await read_all(journal, 1_150) == records[150:]
    assert await reopened(harness) == (Snapshot(Position(1_150), b"later"), epoch, 1_200, ())
    async with leading(harness.handle()) as (journal, newer):
        records += await fill(journal, newer, range(1_201, 1_211))
        assert await read_all(journal, 1_150) == records[150:]


async def test_a_journal_that_is_not_open_is_not_seeded(harness: Harness) -> None:
    """Before `open` and after `close` it is `Unavailable`, and nothing is there."""
    journal = harness.handle()
    with pytest.raises(Unavailable):
        await seed(journal)
    async with opened(journal):
        pass
    with pytest.raises(Unavailable):
        await seed(journal)
    assert await reopened(harness) == (None, Epoch(0), 0, ())
