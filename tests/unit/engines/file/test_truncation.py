"""A log cut short at every byte of a 64 KiB tail; without `LONG=1` beside the ends of records and now and then."""

import os
from pathlib import Path

import pytest

from fencehold.engines.file.directory import Directory
from fencehold.engines.file.recovery import recover
from fencehold.engines.file.segments import RECORD_BYTES
from fencehold.errors import Damaged
from tests.depth import deep
from tests.unit.engines.file.wreck import UnsyncedDisk, append_all, open_and_read, opened_log

TAIL_BYTES = 65_536
SIZES = (1, 7, 300, 2_000, 4_096, 8_000, 12_000)


class Tail:
    """A journal whose last segment ends in records of many sizes, 64 KiB and more of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened_log(path) as (log, _):
            log.lead()
            sizes = [SIZES[i % len(SIZES)] for i in range(20)]
            self.records = append_all(log, (bytes([65 + i]) * size for i, size in enumerate(sizes)))
        self.segment = path / f"{1:020d}.log"
        self.data = self.segment.read_bytes()
        self.first_cut = len(self.data) - TAIL_BYTES
        self.ends = []
        end = len(self.data) - sum(RECORD_BYTES + len(record.entry) for record in self.records)
        for record in self.records:
            end += RECORD_BYTES + len(record.entry)
            self.ends.append(end)

    def cuts(self) -> list[int]:
        """Where to cut it: everywhere, or where a record ends and here and there between."""
        near = {end + by for end in self.ends for by in range(-RECORD_BYTES, RECORD_BYTES + 1)}
        sizes = range(self.first_cut, len(self.data))
        return [size for size in sizes if deep(size % 61 == 0 or size in near, True)]

    def whole(self, size: int) -> int:
        """How many records are whole in the first `size` bytes."""
        return sum(end <= size for end in self.ends)


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    return Tail(tmp_path / "journal")


@pytest.mark.slow
@pytest.mark.guarantee("G3")
def test_a_log_cut_anywhere_before_its_mark_is_refused(tail: Tail) -> None:
    """Whichever of the last 65 536 bytes the log is cut at, a lost acknowledged entry is noticed."""
    directory = Directory(str(tail.path), UnsyncedDisk())
    # Backwards: each case is the one before with a byte less.
    for size in reversed(tail.cuts()):
        os.truncate(tail.segment, size)
        with pytest.raises(Damaged, match="acknowledged entries are missing") as caught:
            recover(directory)
        end = ([len(tail.data) - tail.ends[-1], *tail.ends])[tail.whole(size)]
        assert f"{tail.segment}: offset {end}" in str(caught.value)
        assert tail.segment.stat().st_size == size


@pytest.mark.slow
def test_a_log_cut_anywhere_without_a_mark_gives_its_whole_records(tail: Tail) -> None:
    """Whichever byte the log is cut at, every whole record before it is found, and the piece cut is noted."""
    (tail.path / "mark").unlink()
    directory = Directory(str(tail.path), UnsyncedDisk())
    os.truncate(tail.segment, tail.first_cut)
    with tail.segment.open("rb+", buffering=0) as segment:
        for size in tail.cuts():
            begin = segment.seek(0, os.SEEK_END)
            segment.write(tail.data[begin:size])
            found = recover(directory).opened
            whole = tail.whole(size)
            assert found.end == whole
            begin = tail.ends[whole - 1]
            piece = len(tail.data[begin:size].rstrip(b"\0"))
            expected = () if size == begin else (f"{tail.segment}: offset {begin}: cut {piece} bytes",)
            assert tuple(note.split(" of an entry")[0] for note in found.notes) == expected
            assert os.fstat(segment.fileno()).st_size == begin


def test_a_cut_log_is_read_and_written_on(tail: Tail) -> None:
    """After a cut at or beside the end of each record, the prefix is read whole and appending goes on."""
    for end in tail.ends[1:]:
        for size in (end - 1, end, end + 1):
            tail.segment.write_bytes(tail.data[:size])
            (tail.path / "mark").unlink()
            records = tail.records[: tail.whole(size)]
            assert open_and_read(tail.path)[1] == records
            with opened_log(tail.path) as (log, _):
                records += append_all(log, [b"going on"])
            assert open_and_read(tail.path)[1] == records
