"""Standing by: whom a standby follows, and what it holds against it."""

import asyncio
from collections.abc import Callable

from fencehold.core.commands import Announce, Entry
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.journal.codec import encode
from fencehold.node.replica import Replica
from fencehold.node.standby import Parting, StandingBy
from fencehold.node.standbys import Member
from fencehold.node.suspicion import Patience
from fencehold.types import Position
from tests.unit.node.doubles import until

LEADER = Member("a", "127.0.0.1:1")
SLOW = Patience(leader_timeout_s=1_000, confirm_s=1_000, stagger_s=1_000)


class NotYet:
    """A line to a node that listens, and says that it does not lead; later it says nothing."""

    def __init__(self) -> None:
        self.called = 0

    async def follow(self, address: str, position: Callable[[], int], on_heard: Callable[[int], None]) -> Parting:
        self.called += 1
        if self.called > 1:
            await asyncio.Event().wait()
        return Parting.GOODBYE


async def _announce(journal: MemoryJournal, position: int) -> None:
    """Have the leader take the next epoch, and say so."""
    epoch = await journal.lead()
    entry = encode(Entry(0, (Announce(*LEADER),)))
    await journal.append(entry, epoch=epoch, position=Position(position))


async def test_a_leader_that_was_started_again_begins_with_a_clean_sheet() -> None:
    """It listens before it leads, so it says first that it does not; once it leads anew, that counts no more."""
    leading, following = (MemoryJournal(store) for store in [MemoryStore()] * 2)
    await leading.open()
    await _announce(leading, 1)
    replica, line = Replica(following), NotYet()
    opened = await replica.open()
    standing = StandingBy(
        replica, Member("b", "127.0.0.1:2"), line, patience=SLOW, on_record=replica.follow, epoch=opened.epoch
    )
    standing_by = asyncio.create_task(standing.until_due())
    now = asyncio.get_running_loop().time()
    await until(lambda: standing._suspicion.due_at() < now + 1_500)
    await _announce(leading, 2)
    await until(lambda: replica.machine.position == 2)
    assert standing._suspicion.due_at() > now + 1_500
    standing_by.cancel()
    await asyncio.gather(standing_by, return_exceptions=True)
    await leading.close()
    await following.close()
