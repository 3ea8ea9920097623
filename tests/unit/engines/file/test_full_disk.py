"""A full disk, a real one and an injected one: nothing is half there, and room made is room used."""

import errno
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencehold.engines.file.log import Log
from fencehold.errors import Overloaded, Unavailable
from fencehold.journal.port import Record
from fencehold.runtime.disk import Disk
from fencehold.types import Position
from tests.unit.engines.file.wreck import UnsyncedDisk, append_all, open_and_read, opened_log

SmallDisk = tuple[Path, Callable[[], None]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A directory with little room, and a way to make more: a file system of its own where this user may mount
    one, else a limit on the size of files."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "fencehold-test", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        try:
            (tmp_path / "ballast").write_bytes(bytes(128 << 10))
            yield tmp_path / "journal", (tmp_path / "ballast").unlink
        finally:
            subprocess.run(["umount", str(tmp_path)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, hard))
        yield tmp_path / "journal", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def append_until_full(log: Log) -> list[Record]:
    records = []
    while log.end < 1_000:
        try:
            records += append_all(log, [b"entry " * 200 + bytes(100)])
        except Unavailable:
            return records
    raise AssertionError("the disk never was full")


def test_a_full_disk_is_waited_out(small_disk: SmallDisk) -> None:
    """When the disk is full appends are certainly absent; once there is room they go on, without a gap."""
    path, make_room = small_disk
    with opened_log(path, Disk(), allocate_bytes=16 << 10) as (log, _):
        log.lead()
        records = append_until_full(log)
        assert len(records) > 40
        for _ in range(3):
            with pytest.raises(Unavailable, match="make room on the disk, then try again"):
                append_all(log, [b"entry " * 2_000])
        make_room()
        records += append_all(log, [b"after " * 2_000, b"more"])
    opened, found = open_and_read(path)
    assert (found, opened.notes) == (records, ())


def test_a_full_disk_can_be_opened_anew(small_disk: SmallDisk) -> None:
    """A journal closed on a full disk opens with every acknowledged entry, and goes on when there is room."""
    path, make_room = small_disk
    with opened_log(path, Disk(), allocate_bytes=16 << 10) as (log, _):
        log.lead()
        records = append_until_full(log)
    make_room()
    with opened_log(path, Disk()) as (log, opened):
        assert opened.end == len(records)
        records += append_all(log, [b"after"])
    assert open_and_read(path)[1] == records


class FillingDisk(UnsyncedDisk):
    """Has room for so many bytes more; then writes what fits and is full."""

    def __init__(self, error: int = errno.ENOSPC) -> None:
        self.room = 1 << 30
        self.error = error

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        fits = min(len(data), self.room)
        if fits == 0:
            raise OSError(self.error, "injected")
        self.room -= fits
        return super().pwrite(fd, data[:fits], offset)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("segment_bytes_max", [300, 1 << 20])
def test_full_at_any_byte_leaves_nothing_of_the_entry(tmp_path: Path, error: int, segment_bytes_max: int) -> None:
    """Wherever the room ends, in the room ahead, a record or a new segment, the entry is whole or absent."""
    disk = FillingDisk(error)
    path = tmp_path / "journal"
    with opened_log(path, disk, segment_bytes_max=segment_bytes_max, allocate_bytes=64) as (log, _):
        log.lead()
        records = append_all(log, [b"first"])
        for room in range(0, 500, 7):
            disk.room = room
            try:
                # Ends in zeros: written in part it could pass for whole.
                records += append_all(log, [b"entry" + bytes(60)])
            except Unavailable:
                assert log.end == len(records)
            disk.room = 1 << 30
            records += append_all(log, [b"next"])
    opened, found = open_and_read(path)
    assert (found, opened.notes) == (records, ())


class OverwriteFails(UnsyncedDisk):
    """Has room for zeros only, as a copy-on-write file system may: a record is written in part, then fails."""

    error: int | None = None
    cutting_fails = False

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if self.error is None or not any(data[:4]):
            return super().pwrite(fd, data, offset)
        # Not counted as written, but there: all that is missing are zeros.
        super().pwrite(fd, data[: len(data) - 10], offset)
        raise OSError(self.error, "injected")

    def truncate(self, fd: int, size: int) -> None:
        if self.cutting_fails:
            raise OSError(errno.EIO, "injected")
        super().truncate(fd, size)


def test_a_record_written_in_part_is_cut_off(tmp_path: Path) -> None:
    """When allocated room turns out to be none, what was written is taken away before `Unavailable` is said."""
    disk = OverwriteFails()
    with opened_log(tmp_path / "journal", disk) as (log, _):
        log.lead()
        records = append_all(log, [b"one"])
        disk.error = errno.ENOSPC
        with pytest.raises(Unavailable):
            log.append(b"entry" + bytes(60), log.epoch, Position(2))
        disk.error = None
        records += append_all(log, [b"two"])
    assert open_and_read(tmp_path / "journal")[1] == records


class CrampedDisk(UnsyncedDisk):
    """Has room for what is small, and for nothing else; what could not be written leaves that as it was."""

    fits = 1 << 30

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if len(data) > self.fits:
            raise OSError(errno.ENOSPC, "injected")
        return super().pwrite(fd, data, offset)


def test_a_new_segment_takes_no_more_than_the_entry_where_there_is_no_room_for_a_step(tmp_path: Path) -> None:
    """A nearly full disk has room for an entry, in a segment of its own, when it has none for the room ahead."""
    disk = CrampedDisk()
    with opened_log(tmp_path / "journal", disk, segment_bytes_max=4_000, allocate_bytes=4_000) as (log, _):
        log.lead()
        records = append_all(log, [b"entry" * 600])
        disk.fits = 2_500
        records += append_all(log, [b"entry" * 200])
    assert open_and_read(tmp_path / "journal")[1] == records
    assert len(list((tmp_path / "journal").glob("*.log"))) == 2


@pytest.mark.parametrize(("fits", "segments"), [(50, 2), (1 << 20, 3)])
def test_a_log_that_cannot_roll_goes_on_where_it_is(tmp_path: Path, fits: int, segments: int) -> None:
    """A new segment gives a trim more to take; without room for one, the entry goes where the others are."""
    disk = CrampedDisk()
    with opened_log(tmp_path / "journal", disk, allocate_bytes=1_000) as (log, _):
        log.lead()
        records = append_all(log, [b"one"])
        log.roll()
        disk.fits = fits
        records += append_all(log, [b"two"])
        disk.fits = 1 << 20
        log.roll()
        records += append_all(log, [b"three"])
    opened, found = open_and_read(tmp_path / "journal")
    assert (found, opened.notes) == (records, ())
    assert len(list((tmp_path / "journal").glob("*.log"))) == segments


def test_want_of_room_is_told_from_other_failures(tmp_path: Path) -> None:
    """`Overloaded` where the disk is full: whoever waits may come back; the log goes on when there is room."""
    disk = FillingDisk()
    with opened_log(tmp_path / "journal", disk, allocate_bytes=64) as (log, _):
        log.lead()
        append_all(log, [b"one"])
        disk.room = 0
        with pytest.raises(Overloaded):
            append_all(log, [b"entry" * 100])
