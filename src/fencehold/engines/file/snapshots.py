"""Keeping a snapshot, reading it back, and beginning an empty journal with one that another journal held.

::

    snapshot   magic 8 | format version u32 | position u64 | the data | length of the data u64 | blake2b 32

The rules it obeys:

1. A snapshot is written beside its place and published whole; until then the older one is the current one.
2. The digest covers everything before it. A newest snapshot that does not match is refused, not passed over:
   what it covered may be trimmed.
3. All of this runs on one thread that is not the appender's, and syncs in steps, so that no append waits behind
   the whole of a large snapshot.

A seed is a snapshot under a name of its own, `<position>.seed`, until the rest of the directory agrees with it.
The rules it obeys:

1. Publishing the seed is the moment: before, the journal is empty; from then on it begins there. What is left to
   do after that is done here, or by the next opening if this process ends on the way.
2. Every step may be done again: the file of the epoch, an empty segment for the next position, and last the seed
   becomes the snapshot. So what recovery refuses (no epoch, no segment, a log that ends before its snapshot) is
   refused as always.
3. No entry is appended before the last step is durable. So entries or a snapshot beside a seed are not the work of
   a crash.
"""

import contextlib
import hashlib
import struct
from collections.abc import Iterator
from itertools import pairwise

from fencehold.engines.file.directory import Directory, seed_name, segment_name, snapshot_name
from fencehold.engines.file.marks import read_epoch, write_epoch
from fencehold.engines.file.segments import HEAD_BYTES, check_version, create, scan
from fencehold.errors import Damaged, OutcomeUnknown, Unavailable
from fencehold.journal.port import Snapshot
from fencehold.types import Epoch, Position

_MAGIC = b"FHsnp\r\n\x1a"
_VERSION = 1
_HEAD = struct.Struct("<8sIQ")
_LENGTH = struct.Struct("<Q")
_DIGEST_BYTES = 32
_SYNC_BYTES = 4 << 20


def read_snapshot(directory: Directory, position: Position, name: str = "") -> Snapshot:
    """The snapshot at `position`, under its own name or another.

    Raises:
        Damaged: the file is not what was written.
    """
    file = directory.file(name or snapshot_name(position))
    data = directory.disk.read(file)
    _check(data, position, file)
    return Snapshot(position, data[_HEAD.size : -_LENGTH.size - _DIGEST_BYTES])


class Draft:
    """A snapshot being written, to be published under its own name or another."""

    def __init__(self, directory: Directory, position: Position, name: str = "") -> None:
        self._directory = directory
        self._position = position
        self._name = name or snapshot_name(position)
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._size = self._synced = 0
        self._fd: int | None = None
        self._done = False

    def begin(self) -> None:
        """Open the draft and write its head. Raises as `add`."""
        with self._unavailable():
            self._fd = self._directory.draft(self._name)
            self._write(self._fd, _HEAD.pack(_MAGIC, _VERSION, self._position))

    def add(self, data: bytes) -> None:
        """Write some more.

        Raises:
            Unavailable: the draft is of no use any more: discard it. The older snapshot is kept.
        """
        fd = self._open()
        with self._unavailable():
            self._write(fd, data)
            if self._size - self._synced >= _SYNC_BYTES:
                self._directory.disk.datasync(fd)
                self._synced = self._size

    def publish(self) -> None:
        """Put the snapshot in its place.

        Raises:
            Unavailable: as `add`.
            OutcomeUnknown: it is in its place, but a power loss may bring the older one back.
        """
        self.finish()
        with self._unavailable():
            self._directory.publish(self._name)
        self._done = True

    def finish(self) -> None:
        """Write the rest, and make it durable: it is whole, and only its name is a draft's. Raises as `add`."""
        fd = self._open()
        with self._unavailable():
            self._write(fd, _LENGTH.pack(self._size - _HEAD.size))
            self._write(fd, self._digest.digest())
            # A failed sync here harms nothing: the draft is thrown away, and never trusted.
            self._directory.disk.sync(fd)
            self._close()

    def discard(self) -> None:
        """Discard the draft, if it was not published. Idempotent."""
        if not self._done:
            self._done = True
            self._close()
            self._directory.discard(self._name)

    def _unavailable(self) -> contextlib.AbstractContextManager[None]:
        return _unavailable(f"{self._directory.file(self._name)}: the snapshot was not saved")

    def _open(self) -> int:
        if self._fd is None:
            raise Unavailable(f"{self._directory.file(self._name)}: the snapshot was aborted")
        return self._fd

    def _write(self, fd: int, data: bytes) -> None:
        self._directory.disk.write(fd, data, self._size)
        self._digest.update(data)
        self._size += len(data)

    def _close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._directory.disk.close(fd)


def trim(directory: Directory) -> None:
    """Remove the segments and snapshots that the newest snapshot made unnecessary, oldest first.

    The segment in use stays even if it is covered: the end of the log is read from it.

    Raises:
        Unavailable: some of them stay. Calling again is safe.
    """
    with _unavailable(f"{directory.path}: trimming failed, try again later"):
        _trim(directory)


def _trim(directory: Directory) -> None:
    snapshots, segments = directory.snapshots(), directory.segments()
    if not snapshots:
        return
    for position in snapshots[:-1]:
        directory.disk.unlink(directory.file(snapshot_name(position)))
    for first, following in pairwise(segments):
        if following <= snapshots[-1] + 1:
            directory.disk.unlink(directory.file(segment_name(first)))


@contextlib.contextmanager
def _unavailable(message: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{message}: {error.strerror}") from error


def _check(data: bytes, position: Position, file: str) -> None:
    advice = "restore it from a copy"
    if len(data) < _HEAD.size + _LENGTH.size + _DIGEST_BYTES or not data.startswith(_MAGIC):
        raise Damaged(f"{file}: not a whole snapshot; {advice}")
    _, version, at = _HEAD.unpack_from(data)
    check_version(version, file)
    end = len(data) - _LENGTH.size - _DIGEST_BYTES
    digest = hashlib.blake2b(memoryview(data)[:-_DIGEST_BYTES], digest_size=_DIGEST_BYTES).digest()
    if at != position or _LENGTH.unpack_from(data, end)[0] != end - _HEAD.size or digest != data[-_DIGEST_BYTES:]:
        raise Damaged(f"{file}: the snapshot is damaged; {advice}")


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
        # There never was a leader. Written down, so that a file which is missing later is known to be lost.
        write_epoch(directory, Epoch(0))
    following = Position(position + 1)
    if following not in directory.segments():
        fd, _ = create(directory, following, HEAD_BYTES)
        directory.disk.close(fd)
    directory.rename(seed_name(position), snapshot_name(position))


def _has_entries(directory: Directory) -> bool:
    return any(scan(directory, first, Epoch(0)).end >= first for first in directory.segments())
