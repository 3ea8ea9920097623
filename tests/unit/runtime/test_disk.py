"""The door to the file system: writes go on until all is written, and a lock excludes every other opening."""

import os
from pathlib import Path

import pytest

from fencehold.runtime.disk import Disk


class ShortDisk(Disk):
    """Writes and reads three bytes at a time."""

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return super().pwrite(fd, data[:3], offset)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return super().pread(fd, min(size, 3), offset)


def test_short_writes_and_reads_are_gone_on_with(tmp_path: Path) -> None:
    """All is written and read back even when the system does it in small pieces."""
    disk = ShortDisk()
    path = str(tmp_path / "file")
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    disk.write(fd, b"a sentence of many bytes", 2)
    disk.close(fd)
    assert disk.read(path) == b"\0\0a sentence of many bytes"


def test_a_lock_excludes_another_opening_in_the_same_process(tmp_path: Path) -> None:
    """A lock belongs to an opening: a second one is refused until the first is closed."""
    disk = Disk()
    first, second = (disk.open(str(tmp_path / "lock"), os.O_RDWR | os.O_CREAT) for _ in range(2))
    disk.lock(first)
    with pytest.raises(BlockingIOError):
        disk.lock(second)
    disk.close(first)
    disk.lock(second)
    disk.close(second)


def test_what_is_opened_is_private(tmp_path: Path) -> None:
    """A new file is for its owner alone, and no other program inherits it."""
    disk = Disk()
    fd = disk.open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    assert os.fstat(fd).st_mode & 0o077 == 0
    assert not os.get_inheritable(fd)
    disk.close(fd)


class Pieces(Disk):
    """Notes how much each call was given."""

    __slots__ = ("sizes",)

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self.sizes.append(len(data))
        return super().pwrite(fd, data, offset)


def test_much_is_written_in_pieces(tmp_path: Path) -> None:
    """No call writes more than 64 KiB, and all of it is there."""
    disk, data = Pieces(), os.urandom((150 << 10) + 1)
    fd = disk.open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    disk.write(fd, data, 5)
    disk.close(fd)
    assert disk.sizes == [64 << 10, 64 << 10, (22 << 10) + 1]
    assert (tmp_path / "file").read_bytes()[5:] == data
