"""After an error that leaves the disk's state unknown, the log stops, says so, and never guesses."""

import errno
from pathlib import Path

import pytest

from fencehold.engines.file.log import Log
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.runtime.disk import Disk
from fencehold.types import Position
from tests.unit.engines.file.test_full_disk import OverwriteFails
from tests.unit.engines.file.wreck import UnsyncedDisk, append_all, open_and_read, opened_log


class SyncFails(Disk):
    """Counts syncs, and fails them when told."""

    datasyncs = 0
    datasync_fails = sync_dir_fails = False

    def datasync(self, fd: int) -> None:
        self.datasyncs += 1
        if self.datasync_fails:
            raise OSError(errno.EIO, "Input/output error")
        super().datasync(fd)

    def sync_dir(self, path: str) -> None:
        if self.sync_dir_fails:
            raise OSError(errno.EIO, "Input/output error")
        super().sync_dir(path)


def assert_stopped(log: Log) -> None:
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"stopped, since .*close the journal and open it anew"):
            append_all(log, [b"later"])
        with pytest.raises(Unavailable, match="stopped"):
            log.lead()


def test_an_append_syncs_exactly_once(tmp_path: Path) -> None:
    """Each append costs one sync of data, whatever its size."""
    disk = SyncFails()
    with opened_log(tmp_path / "journal", disk) as (log, _):
        log.lead()
        append_all(log, [b"entry" * i for i in range(1, 50)])
        assert disk.datasyncs == 49


@pytest.mark.guarantee("G3")
def test_a_failed_sync_stops_the_log_and_is_never_tried_again(tmp_path: Path) -> None:
    """The append's outcome is unknown, every later call is refused, and the sync is not repeated."""
    disk = SyncFails()
    path = tmp_path / "journal"
    with opened_log(path, disk) as (log, _):
        log.lead()
        records = append_all(log, [b"one", b"two"])
        disk.datasync_fails = True
        with pytest.raises(
            OutcomeUnknown, match=r"0001\.log: offset \d+: syncing position 3 failed: Input/output"
        ):
            append_all(log, [b"three"])
        disk.datasync_fails = False
        assert_stopped(log)
        assert disk.datasyncs == 3
    found = open_and_read(path)[1]
    assert found[:2] == records
    assert [record.entry for record in found[2:]] in ([], [b"three"])


def test_a_failed_directory_sync_makes_the_epoch_unknown(tmp_path: Path) -> None:
    """An epoch whose file may come back as it was is unknown; the next one taken is newer either way."""
    disk = SyncFails()
    with opened_log(tmp_path / "journal", disk) as (log, _):
        log.lead()
        disk.sync_dir_fails = True
        with pytest.raises(OutcomeUnknown, match="syncing the directory failed"):
            log.lead()
        disk.sync_dir_fails = False
        assert_stopped(log)
    with opened_log(tmp_path / "journal") as (log, opened):
        assert opened.epoch in (1, 2)
        assert log.lead() > opened.epoch


def test_a_segment_that_may_not_stay_holds_no_entry(tmp_path: Path) -> None:
    """When a new segment's name cannot be made durable the entry is absent, and the log stops."""
    disk = SyncFails()
    with opened_log(tmp_path / "journal", disk, segment_bytes_max=100) as (log, _):
        log.lead()
        records = append_all(log, [b"one" * 30])
        disk.sync_dir_fails = True
        with pytest.raises(Unavailable, match="nothing was appended"):
            append_all(log, [b"two" * 30])
        disk.sync_dir_fails = False
        assert_stopped(log)
    with opened_log(tmp_path / "journal") as (log, _):
        records += append_all(log, [b"two"])
    assert open_and_read(tmp_path / "journal")[1] == records


@pytest.mark.parametrize(("error", "cutting_fails"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_a_write_whose_traces_stay_stops_the_log(tmp_path: Path, error: int, cutting_fails: bool) -> None:
    """A record that failed midway, and could not surely be taken away, has an unknown outcome."""
    disk = OverwriteFails()
    path = tmp_path / "journal"
    with opened_log(path, disk) as (log, _):
        log.lead()
        records = append_all(log, [b"one"])
        disk.error, disk.cutting_fails = error, cutting_fails
        with pytest.raises(OutcomeUnknown, match="position 2 failed"):
            log.append(b"entry" * 20, log.epoch, Position(2))
        disk.error, disk.cutting_fails = None, False
        assert_stopped(log)
    opened, found = open_and_read(path)
    assert found == records
    assert "bytes of an entry that was never acknowledged" in opened.notes[0]


class RoomFails(UnsyncedDisk):
    """Cannot write zeros."""

    broken = False

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if self.broken and not any(data):
            raise OSError(errno.EIO, "injected")
        return super().pwrite(fd, data, offset)


def test_a_broken_disk_under_the_room_ahead_stops_the_log(tmp_path: Path) -> None:
    """An error other than a full disk, before the entry was begun, leaves it absent and stops the log."""
    disk = RoomFails()
    with opened_log(tmp_path / "journal", disk, allocate_bytes=64) as (log, _):
        log.lead()
        records = append_all(log, [b"one"])
        disk.broken = True
        with pytest.raises(Unavailable):
            append_all(log, [b"two" * 100])
        disk.broken = False
        assert_stopped(log)
    assert open_and_read(tmp_path / "journal")[1] == records


class PageCache(UnsyncedDisk):
    """Remembers what was written since the last sync of a file that is open."""

    def __init__(self) -> None:
        self.rewritten: list[bytes] = []

    def write(self, fd: int, data: bytes, offset: int) -> None:
        self.rewritten.append(data)
        super().write(fd, data, offset)


def test_opening_writes_an_unmarked_last_record_again(tmp_path: Path) -> None:
    """A record that may be in memory only is written anew and synced before anyone is told of it."""
    path = tmp_path / "journal"
    with opened_log(path) as (log, _):
        log.lead()
        append_all(log, [b"one"])
        marked = (path / "mark").read_bytes()
        append_all(log, [b"two is in doubt"])
    (path / "mark").write_bytes(marked)
    disk = PageCache()
    with opened_log(path, disk) as (_, opened):
        assert opened.end == 2
    assert any(data.endswith(b"two is in doubt") for data in disk.rewritten)
    again = PageCache()
    with opened_log(path, again):
        assert not any(data.endswith(b"two is in doubt") for data in again.rewritten)
