"""The only access to the file system: each method is a system call or two, so that a test can replace any.

It decides nothing. The rules it obeys:

1. Errors are raised as `OSError`, unchanged; the caller decides what one means for an entry.
2. `pwrite` may write less than it was given, as the real call may; `write` goes on until all is written or an
   error says why not.
3. Open files are never inherited by another program, and only their owner may read them: a journal holds secrets.
"""

import fcntl
import mmap
import os
from pathlib import Path
from typing import NamedTuple

_MOUNTS = "/proc/self/mounts"
_PIECE_BYTES = 64 << 10
"""What one call writes at the most. The kernel may keep what one call wrote as one piece of its cache, and goes
through all blocks of it at each later write of some bytes: 30 µs for a piece of a megabyte, 10 for one of this."""


class Volume(NamedTuple):
    """Where a directory is: the file system, and how much room there is."""

    path: str
    file_system: str
    """Its type, such as `ext4`; empty if it is not known."""
    free_bytes: int
    """Available to this user, which may be less than the total."""
    total_bytes: int


def file_system_of(place: Path, mounts: str) -> str:
    """The type of the file system a path is on: that of the longest mount point above it."""
    found = ("", "")
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        point = point.encode().decode("unicode_escape")
        # Not shorter, rather than longer: a later mount on the same point hides the earlier one.
        if (place == Path(point) or Path(point) in place.parents) and len(point) >= len(found[0]):
            found = (point, kind)
    return found[1]


class Disk:
    """The real file system. Tests override methods to fail, to record, or to lose what was not synced."""

    __slots__ = ("__weakref__",)

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`. On an error, any part of it may have been written."""
        size = len(data)
        written = self.pwrite(fd, data if size <= _PIECE_BYTES else memoryview(data)[:_PIECE_BYTES], offset)
        while written < size:
            piece = memoryview(data)[written : written + _PIECE_BYTES]
            written += self.pwrite(fd, piece, offset + written)

    def read(self, path: str) -> bytes:
        """The whole file."""
        fd = self.open(path, os.O_RDONLY)
        try:
            return self._read_all(fd)
        finally:
            self.close(fd)

    def _read_all(self, fd: int) -> bytes:
        data = self.pread(fd, size := self.size(fd), 0)
        while len(data) < size and (more := self.pread(fd, size - len(data), len(data))):
            data += more
        return data

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def datasync(self, fd: int) -> None:
        """Make the contents and the size durable; times may stay behind."""
        os.fdatasync(fd)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable: what was created, renamed or removed."""
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sync(fd)
        finally:
            self.close(fd)

    def make_dir(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def list(self, path: str) -> list[str]:
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def lock(self, fd: int) -> None:
        """Lock the open file for this owner alone; raises `BlockingIOError` if another has it.

        The lock belongs to the opening, not to the process: two in one process exclude each other too.
        """
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def map(self, fd: int, size: int) -> mmap.mmap:
        return mmap.mmap(fd, size)

    def volume(self, path: str) -> Volume:
        """Where a directory is. It may take long where that is a network."""
        room = os.statvfs(path)
        try:
            mounts = Path(_MOUNTS).read_text()
        except OSError:
            mounts = ""
        kind = file_system_of(Path(path).resolve(), mounts)
        return Volume(path, kind, room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize)

    def random(self, size: int) -> bytes:
        return os.urandom(size)
