"""Appends whose replies are lost, late or contradictory: what the journal says of them is true."""

import asyncio

import pytest

from fencehold.errors import OutcomeUnknown, OutOfPlace, Sealed, UsageError
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position
from tests.contract.engines.etcd import Middle, fresh_address
from tests.contract.harness import entry, fill, read_all
from tests.unit.engines.etcd.stage import leading

pytestmark = pytest.mark.slow

ALWAYS = 1_000


async def test_a_lost_reply_is_settled_by_asking_again() -> None:
    """The entry is there, once, and the append says so: nobody has to lead anew."""
    middle = Middle()
    async with leading(fresh_address(), connect=middle.connect) as (journal, epoch):
        for position in range(1, 6):
            middle.plan, middle.tries = ["lose", "lose"], 0
            await fill(journal, epoch, [position])
            assert middle.tries == 3
        assert [record.position for record in await read_all(journal)] == [1, 2, 3, 4, 5]


async def test_when_no_reply_gets_through_the_outcome_is_unknown() -> None:
    """The entry is there, and no try ever heard so: that is no refusal, and is told within the deadline."""
    middle = Middle()
    async with leading(fresh_address(), connect=middle.connect) as (journal, epoch):
        middle.plan = ["lose"] * ALWAYS
        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(journal.append(b"lost", epoch=epoch, position=Position(1)), 10)
        assert middle.tries >= 2
        assert await read_all(journal) == [Record(Position(1), epoch, b"lost")]


async def test_when_no_request_gets_through_the_outcome_is_unknown() -> None:
    """A request that was held up may arrive yet: absent now is not absent for ever; and it arrives once."""
    middle = Middle()
    async with leading(fresh_address(), connect=middle.connect) as (journal, epoch):
        middle.plan = ["hold"] * ALWAYS
        with pytest.raises(OutcomeUnknown):
            await journal.append(b"late", epoch=epoch, position=Position(1))
        assert await read_all(journal) == []
        landed = await middle.release()
        assert len(landed) >= 2
        assert sum(landed) == 1
        assert await read_all(journal) == [Record(Position(1), epoch, b"late")]


async def test_a_refusal_after_a_lost_reply_leaves_the_outcome_unknown() -> None:
    """That a later try was refused says nothing of the earlier one."""
    middle = Middle()
    async with leading(fresh_address(), connect=middle.connect) as (journal, epoch):
        middle.plan = ["lose", "refuse"]
        with pytest.raises(OutcomeUnknown):
            await journal.append(b"there", epoch=epoch, position=Position(1))
        assert await read_all(journal) == [Record(Position(1), epoch, b"there")]


@pytest.mark.guarantee("G10")
async def test_a_request_that_arrives_after_a_newer_epoch_was_taken_has_no_effect() -> None:
    """However often it was sent, what a paused leader had on its way is sealed when it arrives."""
    middle, address = Middle(), fresh_address()
    async with leading(address, connect=middle.connect) as (old, older):
        records = await fill(old, older, [1])
        middle.plan = ["hold"] * ALWAYS
        with pytest.raises(OutcomeUnknown):
            await old.append(b"late", epoch=older, position=Position(2))
        middle.plan = []
        async with leading(address) as (new, newer):
            assert not any(await middle.release())
            records += await fill(new, newer, range(2, 5))
            assert await read_all(new) == records
            with pytest.raises(Sealed):
                await old.append(b"late", epoch=older, position=Position(5))


@pytest.mark.parametrize("late", [1, 2, 7, 10, 11])
async def test_a_request_that_arrives_after_its_position_was_trimmed_has_no_effect(late: int) -> None:
    """Under the same epoch, too: its place is empty then, and so is the one before it."""
    middle = Middle()
    async with leading(fresh_address(), connect=middle.connect) as (journal, epoch):
        await fill(journal, epoch, range(1, late))
        middle.plan = ["hold"]
        records = await fill(journal, epoch, range(late, 13))
        await journal.save(Position(10), [b"state"])
        await journal.trim()
        assert await middle.release() == [False]
        assert await read_all(journal, 10) == records[-2:]


async def test_a_leader_that_is_sealed_between_its_tries_is_told_of_its_entry() -> None:
    """The entry landed before the newer epoch was taken, and the append says so; the next one is sealed."""
    middle, address = Middle(), fresh_address()

    async def take_over() -> None:
        async with leading(address) as (new, newer):
            await fill(new, newer, [2])

    async with leading(address, connect=middle.connect) as (journal, epoch):
        middle.plan, middle.on_lost = ["lose"], take_over
        await fill(journal, epoch, [1])
        with pytest.raises(Sealed):
            await fill(journal, epoch, [2])
        assert [record.entry for record in await read_all(journal)] == [entry(1), entry(2)]


async def test_an_entry_that_was_trimmed_between_its_tries_is_not_called_absent() -> None:
    """It was there and is gone: neither there nor sealed would be true of it."""
    middle, address = Middle(), fresh_address()

    async def take_over() -> None:
        async with leading(address) as (new, newer):
            await fill(new, newer, range(6, 9))
            await new.save(Position(8), [b"state"])
            await new.trim()

    async with leading(address, connect=middle.connect) as (journal, epoch):
        await fill(journal, epoch, range(1, 5))
        middle.plan, middle.on_lost = ["lose"], take_over
        with pytest.raises(OutcomeUnknown):
            await fill(journal, epoch, [5])


async def test_the_same_entry_appended_twice_is_out_of_place() -> None:
    """Without a lost reply, an entry found at the position is another's, though it looks the same."""
    async with leading(fresh_address()) as (journal, epoch):
        await fill(journal, epoch, [1])
        with pytest.raises(OutOfPlace):
            await fill(journal, epoch, [1])
        with pytest.raises(UsageError):
            await journal.append(b"early", epoch=Epoch(epoch + 1), position=Position(2))


async def test_an_epoch_whose_taking_was_not_answered_is_followed_by_the_next() -> None:
    """It may be this node's own: nobody else is to have it, and nobody waits for who may not exist."""
    address, middle = fresh_address(), Middle(puts=b"/epoch")
    async with leading(address, connect=middle.connect) as (journal, epoch):
        middle.plan = ["lose"]
        assert await journal.lead(epoch) == epoch + 2
        async with leading(address) as (_, newest):
            middle.plan = ["lose"]
            with pytest.raises(Sealed) as sealed:
                await journal.lead(epoch)
            assert sealed.value.newest == newest
