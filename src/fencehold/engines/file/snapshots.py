"""Keeping a snapshot, and reading it back.

::

    snapshot   magic 8 | format version u32 | position u64 | the data | length of the data u64 | blake2b 32

The rules it obeys:

1. A snapshot is written beside its place and published whole; the older one stands until then.
2. The digest covers everything before it. A newest snapshot that does not match is refused, not passed over:
   what it covered may be trimmed.
3. All of this runs on one thread that is not the appender's, and syncs in steps, so that no append waits behind
   the whole of a large snapshot.
"""

import contextlib
import hashlib
import struct
from collections.abc import Iterator
from itertools import pairwise

from fencehold.engines.file.directory import Directory, segment_name, snapshot_name
from fencehold.engines.file.records import check_version
from fencehold.errors import Damaged, Unavailable
from fencehold.journal.port import Snapshot
from fencehold.types import Position

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
            Unavailable: the draft is of no use any more: discard it. The older snapshot stands.
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
            OutcomeUnknown: it stands in its place, but a power loss may bring the older one back.
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
        """Give the draft up, if it was not published. Calling again does nothing."""
        if not self._done:
            self._done = True
            self._close()
            self._directory.discard(self._name)

    def _unavailable(self) -> contextlib.AbstractContextManager[None]:
        return _unavailable(f"{self._directory.file(self._name)}: the snapshot was not saved")

    def _open(self) -> int:
        if self._fd is None:
            raise Unavailable(f"{self._directory.file(self._name)}: the snapshot was given up")
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
    """Remove the segments and snapshots that the newest snapshot made needless, oldest first.

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
