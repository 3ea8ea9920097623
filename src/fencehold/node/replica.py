"""The replica: a machine that follows a journal.

1. It starts from the newest snapshot and applies every entry after it, in order: then its state is that of every
   other replica at that position, and that of the one which stopped.
2. What it applies is what the journal holds. It never applies what may not be there.
"""

from collections.abc import Callable

from fencehold.core.commands import Entry
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Applied
from fencehold.errors import Damaged, SnapshotUnreadable
from fencehold.journal.codec import decode
from fencehold.journal.port import Journal, Opened, Record
from fencehold.types import Epoch, Position


class Replica:
    """A machine and its place in a journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.machine = Machine()
        self.epoch: Epoch | None = Epoch(0)
        """Under which the last entry was written; None if a snapshot stands in its place."""

    async def open(self, on_followed: Callable[[Applied], None] | None = None) -> Opened:
        """Open the journal and come up to its end; `on_followed` is told of each entry on the way.

        Raises:
            Damaged: a snapshot or an entry cannot be read.
            AlreadyOwned, Unavailable: as the journal says.
        """
        opened = await self.journal.open()
        self.machine = _machine_of(opened)
        self.epoch = Epoch(0) if opened.snapshot is None else None
        async for record in self.journal.read(after=Position(self.machine.position)):
            _, applied = self.follow(record)
            if on_followed is not None:
                on_followed(applied)
        return opened

    def follow(self, record: Record) -> tuple[Entry, Applied]:
        """Apply the next entry of the journal."""
        try:
            entry = decode(record.entry)
            applied = self.machine.apply(record.position, entry)
        except Damaged as error:
            raise Damaged(f"position {record.position}: {error}") from error
        self.epoch = record.epoch
        return entry, applied


def _machine_of(opened: Opened) -> Machine:
    if opened.snapshot is None:
        return Machine()
    try:
        machine = Machine.restore(opened.snapshot.data)
    except SnapshotUnreadable as error:
        raise Damaged(f"the snapshot at position {opened.snapshot.position}: {error}") from error
    if machine.position != opened.snapshot.position:
        raise Damaged(
            f"the snapshot kept at position {opened.snapshot.position} is of position {machine.position}"
        )
    return machine
