"""What a journal's directory holds, and what of it a crash may leave and opening may repair.

The rules it obeys:

1. Repair removes only what was never acknowledged: a torn record after the mark, at the end of the last segment,
   and drafts; and it finishes a seeding that was cut short. All else that is not what was written is `Damaged`: an
   operator must decide, not this program.
2. What opening reports is durable from then on. The names are synced. The last record may have been written and
   never synced, by a process that was killed, or be in memory only, after a sync that failed; it is written
   again and synced.
3. Whatever was repaired is noted, with file, offset and number of bytes.
"""

import os
from typing import NamedTuple

from fencehold.engines.file.directory import Directory, segment_name, snapshot_name
from fencehold.engines.file.marks import EPOCHS_NAME, MARK_NAME, read_epoch, read_mark
from fencehold.engines.file.segments import Segment, scan
from fencehold.engines.file.snapshots import finish_seed, read_snapshot
from fencehold.errors import Damaged
from fencehold.journal.port import Opened
from fencehold.types import BEGINNING, Epoch, Position


class Recovered(NamedTuple):
    """A directory that is whole again: what it held, and the segment to continue, if any."""

    opened: Opened
    segment: Segment | None


def recover(directory: Directory) -> Recovered:
    """Read everything that is needed, check it, and repair what a crash leaves.

    Raises:
        Damaged: what is there is not what was written, beyond what a crash can do.
        Unavailable, OSError: something could not be read or repaired.
    """
    notes = [f"{directory.file(name)}: removed, left half-written" for name in directory.remove_drafts()]
    # A process that was killed may have renamed a file and not synced the name. What is read here must stay.
    directory.disk.sync_dir(directory.path)
    if finished := finish_seed(directory):
        notes.append(finished)
    marked = read_mark(directory)
    if marked is None:
        notes.append(f"{directory.file(MARK_NAME)}: unreadable: entries cut off the end would go unnoticed")
    snapshots = directory.snapshots()
    snapshot = read_snapshot(directory, snapshots[-1]) if snapshots else None
    taken = read_epoch(directory)
    covered = snapshot.position if snapshot else BEGINNING
    segment = _scan_all(directory, covered)
    end = segment.end if segment else BEGINNING
    _refuse_if_short(directory, segment, end, marked or BEGINNING, covered)
    _refuse_if_epoch_lost(directory, segment, taken)
    if segment is not None and (segment.torn_bytes or end > (marked or BEGINNING)):
        notes += _settle(directory, segment)
    return Recovered(Opened(snapshot, taken or Epoch(0), end, tuple(notes)), segment)


def _scan_all(directory: Directory, covered: Position) -> Segment | None:
    """Read the segments that hold anything after the snapshot, which covers all up to `covered`."""
    firsts = _needed(directory.segments(), covered)
    segment: Segment | None = None
    for first in firsts:
        if segment is not None:
            _refuse_if_not_joined(segment, first)
        elif first > covered + 1:
            raise Damaged(
                f"{directory.path}: entries {covered + 1} to {first - 1} are missing: no segment holds them; "
                f"restore the segments before {segment_name(first)} from a copy"
            )
        segment = scan(directory, first, segment.epoch if segment else Epoch(0))
    return segment


def _needed(firsts: list[Position], covered: Position) -> list[Position]:
    # Segments before this one are wholly covered by the snapshot. A trim that was cut short may have left any of
    # them; they are not read, so gaps between them mean nothing.
    earlier = sum(first <= covered + 1 for first in firsts)
    return firsts[max(earlier - 1, 0) :]


def _refuse_if_not_joined(segment: Segment, following: Position) -> None:
    if segment.torn_bytes:
        raise Damaged(
            f"{segment.file}: offset {segment.offset}: not a whole record, yet {segment_name(following)} "
            "follows; restore the file from a copy"
        )
    if segment.end + 1 != following:
        raise Damaged(
            f"{segment.file}: offset {segment.offset}: the segment ends at position {segment.end}, but the "
            f"next is {segment_name(following)}; restore the files between them from a copy"
        )


def _refuse_if_short(
    directory: Directory, segment: Segment | None, end: Position, marked: Position, covered: Position
) -> None:
    place = f"{segment.file}: offset {segment.offset}" if segment else f"{directory.path}: no segment"
    if end < marked:
        raise Damaged(
            f"{place}: acknowledged entries are missing: {marked} were acknowledged, but the log ends at {end}; "
            f"restore the file from a copy, or delete {directory.file(MARK_NAME)} to accept the loss"
        )
    if end < covered:
        raise Damaged(
            f"{place}: acknowledged entries are missing: the log ends at {end}, before the snapshot "
            f"{snapshot_name(covered)}; restore the segments from a copy"
        )


def _refuse_if_epoch_lost(directory: Directory, segment: Segment | None, taken: Epoch | None) -> None:
    if segment is None:
        return
    if taken is None or taken < segment.epoch:
        raise Damaged(
            f"{directory.file(EPOCHS_NAME)}: {'missing' if taken is None else f'names epoch {taken}'}, but "
            f"{segment.file} was written under epoch {segment.epoch}; restore it from a copy"
        )


def _settle(directory: Directory, segment: Segment) -> list[str]:
    """Cut the tear, and make the last record durable."""
    disk = directory.disk
    fd = disk.open(segment.file, os.O_RDWR)
    try:
        if segment.torn_bytes:
            disk.truncate(fd, segment.offset)
        # Written, not only synced: after a sync that failed the kernel may hold the page in memory, take it for
        # clean, and sync nothing.
        disk.write(fd, segment.last, segment.offset - len(segment.last))
        disk.sync(fd)
    finally:
        disk.close(fd)
    if not segment.torn_bytes:
        return []
    return [
        f"{segment.file}: offset {segment.offset}: cut {segment.torn_bytes} bytes of an entry that was never "
        "acknowledged"
    ]
