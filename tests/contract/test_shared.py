"""Several handles at work on one journal at once. An engine that is not shared refuses the second."""

import asyncio
from collections.abc import Iterator

import pytest

from fencehold.errors import AlreadyOwned, Trimmed, Unavailable
from fencehold.journal.port import Journal
from fencehold.types import Epoch, Position
from tests.contract.harness import Harness, fill, leading, opened, read_all

CHUNK = 100_000


def state_at(position: int) -> list[bytes]:
    """A state that tells its position in every part, large enough to be stored in several."""
    return [str(position).encode().rjust(CHUNK)] * 8


async def refuses_a_second(harness: Harness) -> None:
    async with opened(harness.handle()):
        with pytest.raises(AlreadyOwned):
            await harness.handle().open()


@pytest.mark.guarantee("G1")
async def test_who_opens_while_another_saves_and_trims_finds_a_whole_state(harness: Harness) -> None:
    """It finds a snapshot as it was saved and all entries after it, or is told to start from a newer one."""

    async def lead_on(journal: Journal, epoch: Epoch) -> None:
        for turn in range(8):
            start = turn * 10 + 1
            await fill(journal, epoch, range(start, start + 10))
            await journal.save(Position(start + 4), state_at(start + 4))
            await journal.trim()

    async def come_and_go(leads: "asyncio.Future[None]") -> int:
        whole = 0
        while not leads.done():
            journal = harness.handle()
            found = await journal.open()
            begin = found.snapshot.position if found.snapshot is not None else 0
            if found.snapshot is not None:
                assert found.snapshot.data == b"".join(state_at(begin))
            try:
                read = await read_all(journal, begin)
            except Trimmed:
                pass
            else:
                assert [record.position for record in read] == list(range(begin + 1, begin + len(read) + 1))
                assert begin + len(read) >= found.end
                whole += 1
            await journal.close()
            await asyncio.sleep(0)
        return whole

    async def work() -> None:
        async with leading(harness.handle()) as (journal, epoch):
            leads = asyncio.ensure_future(lead_on(journal, epoch))
            assert await come_and_go(leads) > 0
            await leads

    await (work() if harness.handle().declared.shared else refuses_a_second(harness))


async def test_a_standby_reads_on_past_what_the_leader_trimmed(harness: Harness) -> None:
    """One that is up to date is not touched by a trim; one that fell behind is told, and finds the snapshot."""

    async def work() -> None:
        async with leading(harness.handle()) as (leader, epoch), opened(harness.handle()) as standby:
            await fill(leader, epoch, range(1, 21))
            assert len(await read_all(standby)) == 20
            await leader.save(Position(20), state_at(20))
            await leader.trim()
            records = await fill(leader, epoch, range(21, 26))
            assert await read_all(standby, 20) == records
            with pytest.raises(Trimmed):
                await read_all(standby, 3)

    await (work() if harness.handle().declared.shared else refuses_a_second(harness))


async def test_two_who_save_at_once_leave_one_of_the_two(harness: Harness) -> None:
    """One of two savers at the same position may be refused; the snapshot that stands in the end is whole."""

    def drawn(text: bytes) -> Iterator[bytes]:
        for _ in range(8):
            yield text * CHUNK

    async def work() -> None:
        async with leading(harness.handle()) as (one, epoch), opened(harness.handle()) as other:
            await fill(one, epoch, range(1, 11))
            saves = one.save(Position(10), drawn(b"1")), other.save(Position(10), drawn(b"2"))
            outcomes = await asyncio.gather(*saves, return_exceptions=True)
            assert None in outcomes
            assert all(outcome is None or isinstance(outcome, Unavailable) for outcome in outcomes)
            await asyncio.gather(one.trim(), other.trim())
        journal = harness.handle()
        found = await journal.open()
        await journal.close()
        assert found.snapshot is not None
        assert found.snapshot.position == 10
        assert found.snapshot.data in {b"1" * CHUNK * 8, b"2" * CHUNK * 8}

    await (work() if harness.handle().declared.shared else refuses_a_second(harness))
