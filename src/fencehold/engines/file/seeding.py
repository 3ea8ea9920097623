"""Beginning an empty journal with a snapshot that another journal held.

A seed is a snapshot under a name of its own, `<position>.seed`, until the rest of the directory agrees with it.
The rules it obeys:

1. Publishing the seed is the moment: before, the journal is empty; from then on it begins there. What is left to
   do after that is done here, or by the next opening if this process ends on the way.
2. Every step may be done again: the file of the epoch, an empty segment for the next position, and last the seed
   becomes the snapshot. So what recovery refuses (no epoch, no segment, a log that ends before its snapshot) is
   refused as ever.
3. Nobody appends before the last step is durable. So entries or a snapshot beside a seed are no crash's work.
"""

from fencehold.engines.file.directory import Directory, seed_name, snapshot_name
from fencehold.engines.file.epochs import read_epoch, write_epoch
from fencehold.engines.file.records import HEAD_BYTES
from fencehold.engines.file.segments import create, scan
from fencehold.engines.file.snapshots import read_snapshot
from fencehold.errors import Damaged, OutcomeUnknown, Unavailable
from fencehold.types import Epoch, Position


def finish_seed(directory: Directory) -> str | None:
    """Finish the seeding that was cut short, if there was one, and say so.

    Raises:
        Damaged: the journal is not empty, or the seed is not what was written.
        Unavailable, OSError: it is to be finished by the next opening.
    """
    seeds = directory.seeds()
    if not seeds:
        return None
    position, name = seeds[-1], seed_name(seeds[-1])
    file = directory.file(name)
    if len(seeds) > 1 or directory.snapshots() or _has_entries(directory):
        raise Damaged(f"{file}: stands beside entries or a snapshot; remove it if it was put there by hand")
    read_snapshot(directory, position, name)
    try:
        put_in_place(directory, position)
    except OutcomeUnknown as error:
        raise Unavailable(f"{error}; open it again") from error
    return f"{file}: put in its place, left by a seeding that was cut short"


def put_in_place(directory: Directory, position: Position) -> None:
    """Make the directory begin after the seed at `position`, which is published.

    Raises:
        OSError, OutcomeUnknown: it is to be finished by the next opening.
    """
    if read_epoch(directory) is None:
        # Nobody ever led. Written down, so that a file which is missing later is known to be lost.
        write_epoch(directory, Epoch(0))
    following = Position(position + 1)
    if following not in directory.segments():
        fd, _ = create(directory, following, HEAD_BYTES)
        directory.disk.close(fd)
    directory.rename(seed_name(position), snapshot_name(position))


def _has_entries(directory: Directory) -> bool:
    return any(scan(directory, first, Epoch(0)).end >= first for first in directory.segments())
