"""Opening and closing: nothing works before or after, and closing twice is harmless."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fencehold.errors import Unavailable, UsageError
from fencehold.journal.port import Journal
from fencehold.types import Epoch, Position
from tests.contract.harness import Harness, entry, fill, leading, opened, read_all


async def tail_all(journal: Journal) -> None:
    async for _ in journal.tail(Position(0)):
        pass


CALLS: dict[str, Callable[[Journal], Awaitable[object]]] = {
    "read": read_all,
    "tail": tail_all,
    "lead": lambda journal: journal.lead(),
    "append": lambda journal: journal.append(b"entry", epoch=Epoch(1), position=Position(1)),
    "save": lambda journal: journal.save(Position(0), [b"state"]),
    "seed": lambda journal: journal.seed(Position(1), [b"state"]),
    "trim": lambda journal: journal.trim(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_nothing_works_before_open_and_after_close(harness: Harness, call: str) -> None:
    """Every call on a journal that is not open says `Unavailable`, and does nothing."""
    journal = harness.handle()
    with pytest.raises(Unavailable):
        await CALLS[call](journal)
    async with opened(journal):
        pass
    with pytest.raises(Unavailable):
        await CALLS[call](journal)


async def test_an_empty_journal_opens_empty(harness: Harness) -> None:
    """A journal nobody wrote has no snapshot, no epoch, no entries, and nothing to note."""
    journal = harness.handle()
    assert await journal.open() == (None, 0, 0, ())
    assert await read_all(journal) == []
    await journal.close()


async def test_closing_again_does_nothing(harness: Harness) -> None:
    """`close` may be called at any time, any number of times."""
    journal = harness.handle()
    await journal.close()
    async with opened(journal):
        pass
    await journal.close()


async def test_opening_an_open_handle_is_a_usage_error(harness: Harness) -> None:
    """A handle is opened once, and goes on working when someone tries again."""
    async with leading(harness.handle()) as (journal, epoch):
        with pytest.raises(UsageError):
            await journal.open()
        assert await fill(journal, epoch, [1]) == await read_all(journal)


async def test_a_closed_handle_may_be_opened_again(harness: Harness) -> None:
    """A handle that was closed opens like a new one."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 11))
    async with opened(journal):
        assert await read_all(journal) == records


async def test_closing_lets_the_append_under_way_end(harness: Harness) -> None:
    """An append that was under way when the journal was closed is whole, and its caller hears so."""
    async with leading(harness.handle()) as (journal, epoch):
        records = await fill(journal, epoch, range(1, 4))
        under_way = asyncio.ensure_future(fill(journal, epoch, [4]))
        await asyncio.sleep(0)
    records += await under_way
    async with opened(harness.handle()) as journal:
        assert await read_all(journal) == records
        assert records[-1].entry == entry(4)
