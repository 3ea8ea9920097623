"""From a snapshot and the entries after it to a machine, and what is in it.

It is what every replica does, and it proves that a backup is valid: one that cannot be replayed is refused when it
is made, not on the day it is needed.
"""

from typing import NamedTuple

from fencehold.core.machine import Machine
from fencehold.errors import Damaged, SnapshotUnreadable
from fencehold.journal.codec import decode
from fencehold.journal.port import Record, Snapshot
from fencehold.types import Epoch, Position


class Contents(NamedTuple):
    """What is in a journal, or in a backup of one."""

    engine: str
    epoch: int
    snapshot_position: int
    """0: there is no snapshot."""
    position: int
    entries: int
    """Those after the snapshot."""
    logical_ms: int
    fence: int
    sessions: int
    holds: int
    waiters: int
    ttl_ms_longest: int
    """The longest ttl of the sessions: for this long a client may trust its holds after its last keep-alive."""


class Replay:
    """A machine that is brought up to date, entry by entry."""

    def __init__(self, snapshot: Snapshot | None, epoch: Epoch) -> None:
        """Begin with the snapshot, or with nothing.

        Raises:
            Damaged: it cannot be read, or is of another position.
        """
        self.machine = Machine() if snapshot is None else _restored(snapshot)
        self.snapshot_position = Position(self.machine.position)
        self.epoch = epoch

    def follow(self, record: Record) -> None:
        """Apply the next entry.

        Raises:
            Damaged: it cannot be read, or is not the next.
        """
        if record.position != self.machine.position + 1:
            raise Damaged(f"position {record.position} stands where {self.machine.position + 1} belongs")
        try:
            self.machine.apply(record.position, decode(record.entry))
        except Damaged as error:
            raise Damaged(f"position {record.position}: {error}") from error
        self.epoch = max(self.epoch, record.epoch)

    def contents(self, engine: str) -> Contents:
        state = self.machine.state
        return Contents(
            engine=engine,
            epoch=self.epoch,
            snapshot_position=self.snapshot_position,
            position=state.position,
            entries=state.position - self.snapshot_position,
            logical_ms=state.now_at,
            fence=state.fence,
            sessions=len(state.sessions),
            holds=len(state.held) + sum(len(crowd.holds) for crowd in state.crowds.values()),
            waiters=len(state.waiters),
            ttl_ms_longest=max((session.ttl_ms for session in state.sessions.values()), default=0),
        )


def _restored(snapshot: Snapshot) -> Machine:
    try:
        machine = Machine.restore(snapshot.data)
    except SnapshotUnreadable as error:
        raise Damaged(f"the snapshot at position {snapshot.position}: {error}") from error
    if machine.position != snapshot.position:
        raise Damaged(f"the snapshot kept at position {snapshot.position} is of position {machine.position}")
    return machine
