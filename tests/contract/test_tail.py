"""Tailing: a standby sees every entry once, in order, until the journal is closed."""

import asyncio

import pytest

from fencehold.errors import Trimmed
from fencehold.journal.port import Journal, PacedJournal, Record
from fencehold.types import Position
from tests.contract.harness import Harness, fill, leader_and_standby, leading
from tests.stopwatch import Stopwatch

CLOSE_S = 0.02
"""From the beginning of an append until a close tail has told of it, on the average."""


class Follower:
    """A task that tails a journal, and a way to wait for what it has seen."""

    def __init__(self, journal: Journal, after: int = 0) -> None:
        self.seen: list[Record] = []
        self._news = asyncio.Condition()
        self.task = asyncio.ensure_future(self._follow(journal, Position(after)))

    async def _follow(self, journal: Journal, after: Position) -> None:
        async for record in journal.tail(after):
            async with self._news:
                self.seen.append(record)
                self._news.notify_all()

    async def until(self, count: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: len(self.seen) >= count)


async def test_a_tail_sees_every_entry_in_order_and_ends_on_close(harness: Harness) -> None:
    """Entries from before and after the tail began arrive in order; closing ends it without an error."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 31))
        follower = Follower(journal, after=10)
        await follower.until(20)
        for position in range(31, 61):
            records += await fill(journal, epoch, [position])
            await follower.until(position - 10)
    await follower.task
    assert follower.seen == records[10:]


async def test_several_tails_see_the_same(harness: Harness) -> None:
    """Tails do not take entries from each other, and one that is given up does not end the others."""
    async with leading(harness.handle()) as (journal, epoch):
        followers = [Follower(journal) for _ in range(3)]
        records = await fill(journal, epoch, range(1, 11))
        await asyncio.gather(*(follower.until(10) for follower in followers))
        followers[0].task.cancel()
        records += await fill(journal, epoch, range(11, 21))
        await asyncio.gather(*(follower.until(20) for follower in followers[1:]))
    await asyncio.gather(*(follower.task for follower in followers), return_exceptions=True)
    assert followers[1].seen == followers[2].seen == records
    assert followers[0].task.cancelled()


async def test_a_tail_sees_what_a_cancelled_append_left(harness: Harness) -> None:
    """An append whose caller gave up wakes the tails like any other, if it landed."""
    async with leading(harness.handle()) as (journal, epoch):
        follower = Follower(journal)
        await fill(journal, epoch, [1])
        await follower.until(1)
        task = asyncio.ensure_future(fill(journal, epoch, range(2, 40)))
        await follower.until(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # A second caller finds the end by reading: the append under way may or may not have landed.
        await journal.lead()
        landed = len([record async for record in journal.read(Position(0))])
        await follower.until(landed)
    await follower.task
    assert [record.position for record in follower.seen] == list(range(1, landed + 1))


async def test_a_shared_tail_sees_the_entries_of_another_handle(harness: Harness) -> None:
    """A standby follows a leader that appends through a handle of its own, where the engine is shared."""
    async with leader_and_standby(harness) as (leader, standby):
        epoch = await leader.lead()
        follower = Follower(standby)
        records = await fill(leader, epoch, range(1, 21))
        await follower.until(20)
        await standby.close()
        await follower.task
        assert follower.seen == records


async def test_a_tail_from_before_the_trim_says_so(harness: Harness) -> None:
    """A standby that fell behind a trim is told, never handed a journal with a gap."""
    async with leading(harness.handle()) as (journal, epoch):
        await fill(journal, epoch, range(1, 201))
        await journal.save(Position(200), [b"state"])
        await journal.trim()
        with pytest.raises(Trimmed):
            await Follower(journal).task


async def test_a_close_tail_is_told_of_each_entry_at_once(harness: Harness) -> None:
    """However many there were just before; and one that is not wanted close any more sees all the same."""
    async with leader_and_standby(harness) as (leader, standby):
        epoch, follower = await leader.lead(), Follower(standby)
        # So many that a tail which is to be cheap goes over to pages.
        records = await fill(leader, epoch, range(1, 101))
        await follower.until(100)
        follow_closely(standby, True)
        records += await fill(leader, epoch, [101])
        await follower.until(101)
        watch = Stopwatch()
        for position in range(102, 142):
            records += await fill(leader, epoch, [position])
            await follower.until(position)
        assert watch.passed_s < 40 * CLOSE_S
        follow_closely(standby, False)
        records += await fill(leader, epoch, range(142, 182))
        await follower.until(181)
        await standby.close()
        await follower.task
        assert follower.seen == records


async def test_a_tail_can_be_wanted_close_before_it_is_there(harness: Harness) -> None:
    """Before the journal is open, and again: a tail that begins then is told of what was and of what comes."""
    journal = harness.handle()
    follow_closely(journal, True)
    async with leading(journal) as (journal, epoch):
        follow_closely(journal, True)
        records = await fill(journal, epoch, range(1, 81))
        follower = Follower(journal)
        records += await fill(journal, epoch, range(81, 121))
        await follower.until(120)
        follow_closely(journal, False)
        follow_closely(journal, True)
        records += await fill(journal, epoch, range(121, 131))
        await follower.until(130)
    await follower.task
    assert follower.seen == records


def follow_closely(journal: Journal, wanted: bool) -> None:
    """Tell a journal whose tails may be late; the others follow closely anyhow."""
    if isinstance(journal, PacedJournal):
        journal.follow_closely(wanted)
