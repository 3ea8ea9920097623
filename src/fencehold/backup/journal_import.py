"""A backup into an empty journal, with fences that never go back.

1. The file is read, checked and replayed whole before anything is written. What is then written, is written in one
   step: the journal is empty as before, or begins with all of it.
2. *Fences never go back*, even if the backup is old and the service granted many more since. It is not known how
   many, but granting a fence takes far longer than a microsecond. So the counter is raised above all of these:

   - the backup's own fence, one for each microsecond since it was made, and a margin;
   - the microseconds since 1970, by the wall clock, independent of the backup's time;
   - a fence that the operator names, if any.

   Each grows with the time of the restore, so two restores of one backup do not share fences, either.
3. If the clock is behind the backup's own time, this does not work: it is refused, unless an operator names a
   fence. The margin is for clocks of two machines that are not quite the same.
4. Sessions continue with the logical time they had left. The old leader is not kept: those nodes are not here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from fencehold.backup.frames import Head, Reader
from fencehold.backup.journal_export import Progress, no_progress
from fencehold.backup.replay import Contents, Replay
from fencehold.core.commands import Announce, Entry, LapseHomes, RaiseFence
from fencehold.core.grants import FENCE_MAX
from fencehold.errors import Damaged, UsageError
from fencehold.journal.port import Journal, Snapshot
from fencehold.types import Epoch, Position

MARGIN = 1 << 20
"""In fences, and in microseconds: a little more than a second."""


class Loaded(NamedTuple):
    """A backup that was read whole and is intact."""

    head: Head
    replay: Replay

    @property
    def contents(self) -> Contents:
        return self.replay.contents(self.head.engine)


class Restored(NamedTuple):
    """What a journal begins with."""

    position: Position
    fence: int
    """Every fence from here on is greater."""


def load(source: BinaryIO, name: str, on_progress: Progress = no_progress) -> Loaded:
    """Read a backup and replay it.

    Raises:
        Damaged: it is corrupt, or no machine comes from it.
        OSError: it cannot be read.
    """
    reader = Reader(source, name)
    head = reader.head
    pieces: list[bytes] = []
    replay: Replay | None = None
    for frame in reader.frames():
        if frame.record is None:
            pieces.append(frame.piece)
            continue
        with _told_of(name):
            replay = replay or _begun(head, pieces)
            replay.follow(frame.record)
        on_progress(frame.record.position - head.snapshot_position, head.position - head.snapshot_position)
    with _told_of(name):
        replay = replay or _begun(head, pieces)
        _compare(head, replay)
    return Loaded(head, replay)


def fence_after(head: Head, *, now_us: int, above: int | None = None) -> int:
    """What the fence counter must be raised to.

    Raises:
        UsageError: the clock is behind the time of the backup, and no sufficient fence was given; or no fence is
            left.
    """
    elapsed_us = now_us - head.made_at_us
    if above is None and elapsed_us < -MARGIN:
        raise UsageError(
            f"the clock here is {-elapsed_us / 1e6:,.1f} s behind the time at which the backup was made; set it, "
            "or give --fence-above with a number above every fence granted so far"
        )
    fence = max(head.fence + MARGIN + max(elapsed_us, -MARGIN), now_us, above or 0)
    if fence > FENCE_MAX:
        raise UsageError(f"the fence would be raised to {fence}, and the greatest possible is {FENCE_MAX}")
    return fence


async def restore(journal: Journal, loaded: Loaded, fence: int) -> Restored:
    """Let an empty journal, which is not open yet, begin with a backup.

    Raises:
        UsageError: the journal is not empty.
        AlreadyOwned, Unavailable: nothing was written.
        OutcomeUnknown: it is empty as before, or begins with the backup, whole.
    """
    machine = loaded.replay.machine
    opened = await journal.open()
    try:
        if opened.end or opened.snapshot is not None:
            raise UsageError(
                f"the journal is not empty: it ends at position {opened.end}. A backup is imported only into an "
                "empty one: name another place, or remove what is there if it is no longer needed"
            )
        position = Position(machine.position + 1)
        # Homes of one of several cells may have moved since: they grant when another cell has confirmed them.
        lapse = (LapseHomes(),) if machine.state.cells is not None else ()
        machine.apply(position, Entry(0, (RaiseFence(fence), *lapse, Announce("", ""))))
        snapshot = machine.snapshot()
        try:
            await journal.seed(position, snapshot)
        finally:
            snapshot.close()
    finally:
        await journal.close()
    return Restored(position, machine.fence)


@contextmanager
def _told_of(name: str) -> Iterator[None]:
    try:
        yield
    except Damaged as error:
        raise Damaged(f"{name}: {error}") from error


def _begun(head: Head, pieces: list[bytes]) -> Replay:
    snapshot = Snapshot(Position(head.snapshot_position), b"".join(pieces)) if pieces else None
    pieces.clear()
    replay = Replay(snapshot, Epoch(head.epoch))
    if replay.snapshot_position != head.snapshot_position:
        raise Damaged(f"its snapshot, of position {head.snapshot_position}, is missing")
    return replay


def _compare(head: Head, replay: Replay) -> None:
    """The head says where the entries lead to. If they lead elsewhere, this is not the program that wrote it."""
    machine = replay.machine
    found = (machine.position, machine.fence, machine.now_at)
    said = (head.position, head.fence, head.logical_ms)
    if found != said:
        raise Damaged(f"its entries lead to position, fence and time {found}, and its head says {said}")
