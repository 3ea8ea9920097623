"""Room: what an engine says of how much more it takes, and that an urgent trim takes nothing that is needed."""

import asyncio

from fencehold.types import Position
from tests.contract.harness import Harness, fill, leading, opened, read_all

WITHIN_S = 10.0
"""Machines that run tests are busy."""
_TELLS = ("file", "etcd")
"""Those that know a bound without being told."""


async def test_an_open_journal_says_how_much_room_there_is_or_that_nobody_knows(harness: Harness) -> None:
    """What is used is no more than what is allowed; what is not known is said to be so, with a word why."""
    async with opened(harness.handle()) as journal:
        room = await journal.room(WITHIN_S)
        if journal.declared.engine in _TELLS:
            assert room.used_bytes is not None
            assert room.allowed_bytes is not None
            assert 0 <= room.used_bytes <= room.allowed_bytes
            assert (room.is_full, room.note, bool(room.what)) == (False, "", True)
        else:
            assert room.free_bytes is None
            assert bool(room.note) == journal.declared.durable


async def test_a_journal_that_is_not_open_raises_nothing(harness: Harness) -> None:
    """Whoever asks too late is told something, and be it that nothing is known."""
    journal = harness.handle()
    await journal.room(WITHIN_S)
    async with opened(journal):
        pass
    assert not (await journal.room(WITHIN_S)).is_full


async def test_an_urgent_trim_leaves_all_that_is_needed(harness: Harness) -> None:
    """The snapshot stands, what follows it is read, appends go on, and who tails at the end goes on tailing."""
    async with leading(harness.handle()) as (journal, epoch):
        await fill(journal, epoch, range(1, 21))
        tail = journal.tail(Position(20))
        heard = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        await journal.save(Position(15), [b"state"])
        await journal.trim(urgent=True)
        await journal.trim(urgent=True)
        records = await fill(journal, epoch, [21])
        assert await heard == records[0]
        assert [record.position for record in await read_all(journal, 15)] == list(range(16, 22))
        await tail.aclose()  # type: ignore[attr-defined]
        await journal.close()
        found = await journal.open()
        assert found.snapshot is not None
        assert (found.snapshot.data, found.end) == (b"state", 21)
