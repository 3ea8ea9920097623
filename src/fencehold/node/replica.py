"""The replica: a machine that follows a journal.

1. It starts from the newest snapshot and applies every entry after it, in order: then its state is that of every
   other replica at that position, and that of the one which stopped.
2. What it applies is what the journal holds. It never applies what may not be there.
3. A journal that was unavailable and is opened again is followed on from where it was, if it still holds the entry
   that was applied last. To begin anew takes seconds when there are many entries since the snapshot, and all nodes
   would do so at the same time. A machine that has led may have seen what is not there, and begins anew.
"""

from collections.abc import Callable
from typing import TypeAlias

from fencehold.core.commands import Entry
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Applied
from fencehold.errors import Damaged, SnapshotUnreadable, Trimmed
from fencehold.journal.codec import decode
from fencehold.journal.port import Journal, Opened, Record
from fencehold.node.names import Names
from fencehold.types import Epoch, Position

Followed: TypeAlias = Callable[[Entry, Applied, int], None]


class Replica:
    """A machine and its place in a journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.machine = Machine()
        self.names = Names()
        self.epoch: Epoch | None = Epoch(0)
        """Under which the last entry was written; None if a snapshot is in its place."""
        self.snapshot_bytes = 0
        """How large the snapshot is that it began with; 0 if there was none."""
        self.followed_bytes = 0
        """How large the entries are together that it has applied since."""
        self.on_entry: Callable[[Entry, Applied], None] = _ignore
        """Called with each entry that was followed, and what it did."""
        self.on_opened: Callable[[Opened], None] = _ignore
        """Called when the journal was opened and is followed from its snapshot on, before any entry."""
        self._last: Record | None = None
        """The entry that the machine applied last, and which it may go on from."""

    async def open(
        self, on_followed: Followed | None = None, on_anew: Callable[[Opened], None] | None = None
    ) -> Opened:
        """Open the journal and come up to its end; `on_followed` gets each entry on the way, and its bytes.

        `on_anew` is called before the first of them, unless it goes on from the entry that was applied last.

        Raises:
            Damaged: a snapshot or an entry cannot be read.
            AlreadyOwned, Unavailable: as the journal says.
        """
        opened = await self.journal.open()
        if not await self._goes_on(opened, on_followed):
            self._last = None
            if on_anew is not None:
                on_anew(opened)
            self.names.drop()
            self.machine = _machine_of(opened)
            self.snapshot_bytes = len(opened.snapshot.data) if opened.snapshot else 0
            self.followed_bytes = 0
            self.epoch = Epoch(0) if opened.snapshot is None else None
            self.on_opened(opened)
            async for record in self.journal.read(after=Position(self.machine.position)):
                self._catch_up(record, on_followed)
        return opened

    async def _goes_on(self, opened: Opened, on_followed: Followed | None) -> bool:
        """Go on from the entry that was applied last; False if the journal holds no such entry any more."""
        last = self._last
        if last is None or (opened.snapshot is not None and opened.snapshot.position > last.position):
            return False
        try:
            # Read once more: it may be another journal by now, restored from a copy.
            async for record in self.journal.read(after=Position(last.position - 1)):
                if record.position > last.position:
                    self._catch_up(record, on_followed)
                elif record != last:
                    return False
        except (Trimmed, Damaged):
            # If more than this place is damaged, beginning anew finds it, too.
            return False
        return opened.end >= last.position

    def _catch_up(self, record: Record, on_followed: Followed | None) -> None:
        entry, applied = self.follow(record)
        if on_followed is not None:
            on_followed(entry, applied, len(record.entry))

    def follow(self, record: Record) -> tuple[Entry, Applied]:
        """Apply the next entry of the journal."""
        try:
            entry = decode(record.entry)
            applied = self.machine.apply(record.position, entry)
        except Damaged as error:
            raise Damaged(f"position {record.position}: {error}") from error
        if self.names.index is not None:
            self.names.feed(entry, applied)
        self.epoch, self._last = record.epoch, record
        self.followed_bytes += len(record.entry)
        self.on_entry(entry, applied)
        return entry, applied

    def lead(self) -> Machine:
        """The machine, for a leader to run ahead of the journal with; for nothing else from here on."""
        self._last = None
        return self.machine


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


def _ignore(*_: object) -> None:
    """No callback was set."""
