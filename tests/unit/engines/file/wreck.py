"""Making a journal's directory, wrecking it, and asking what opening makes of it.

Everything here works on the log itself, without threads or an event loop: a case costs a fraction of a
millisecond, so that every byte of a file can be one.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fencehold.engines.file.directory import Directory
from fencehold.engines.file.log import Log
from fencehold.engines.file.segments import Cursor
from fencehold.engines.file.snapshots import Draft
from fencehold.journal.port import Opened, Record
from fencehold.runtime.disk import Disk
from fencehold.types import BEGINNING, Epoch, Position

Contents = dict[str, bytes]


class UnsyncedDisk(Disk):
    """Syncs nothing: these tests wreck files themselves, and no power is lost."""

    def sync(self, fd: int) -> None:
        pass

    def datasync(self, fd: int) -> None:
        pass


@contextmanager
def opened_log(
    path: Path, disk: Disk | None = None, *, segment_bytes_max: int = 16 << 20, allocate_bytes: int = 4096
) -> Iterator[tuple[Log, Opened]]:
    log = Log(
        Directory(str(path), UnsyncedDisk() if disk is None else disk),
        segment_bytes_max=segment_bytes_max,
        allocate_bytes=allocate_bytes,
    )
    opened = log.open()
    try:
        yield log, opened
    finally:
        log.close()


def append_all(log: Log, entries: Iterable[bytes]) -> list[Record]:
    records = []
    for entry in entries:
        records.append(Record(Position(log.end + 1), log.epoch, entry))
        log.append(entry, log.epoch, records[-1].position)
    return records


def save(path: Path, position: int, data: bytes) -> None:
    draft = Draft(Directory(str(path), UnsyncedDisk()), Position(position))
    draft.begin()
    draft.add(data)
    draft.publish()


def read_after(path: Path, opened: Opened) -> list[Record]:
    """The entries after the snapshot, as a node would read them when it starts."""
    after = opened.snapshot.position if opened.snapshot else BEGINNING
    cursor = Cursor(Directory(str(path), UnsyncedDisk()), after)
    records: list[Record] = []
    while cursor.position < opened.end:
        records += cursor.step(opened.end)
    return records


def open_and_read(path: Path) -> tuple[Opened, list[Record]]:
    with opened_log(path) as (_, opened):
        return opened, read_after(path, opened)


def contents(path: Path) -> Contents:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def restore(path: Path, files: Contents) -> None:
    """Make the directory hold exactly these files."""
    for name in set(os.listdir(path)) - set(files):
        (path / name).unlink()
    for name, data in files.items():
        (path / name).write_bytes(data)


def segment_files(files: Contents) -> list[str]:
    return [name for name in files if name.endswith(".log")]


def sample(path: Path) -> tuple[Contents, tuple[Opened, list[Record]]]:
    """A journal with all there is: several segments, a snapshot amid them, two epochs, room ahead; and what
    opening it must give. It is copied while open, as a killed process would leave it."""
    with opened_log(path, segment_bytes_max=3_000, allocate_bytes=1_000) as (log, _):
        log.lead()
        records = append_all(log, (f"first {i} ".encode() * (i % 7 + 1) + bytes(i % 3) for i in range(60)))
        save(path, 45, b"the state after 45 " * 20)
        log.lead()
        records += append_all(log, (f"second {i} ".encode() * (i % 9 + 1) for i in range(60)))
        files = contents(path)
        epoch = Epoch(log.epoch)
    restore(path, files)
    opened, found = open_and_read(path)
    assert (opened.epoch, opened.end, opened.notes, found) == (epoch, 120, (), records[45:])
    return files, (opened, found)
