"""The bytes of a backup: what was written is read, and anything else is refused whole."""

import random
import struct
from io import BytesIO
from zlib import crc32

import pytest

from fencehold.backup import load
from fencehold.backup.frames import Head, Reader, framed_entry
from fencehold.errors import Damaged
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position
from tests.unit.backup.samples import ENTRIES, backup_of, frames_of, machine_of, store_of

HEAD = Head("file", 3, 40, 42, 5_000, 17, 1_800_000_000_000_000, "1.2.3")
RECORDS = [Record(Position(41), Epoch(2), b"one"), Record(Position(42), Epoch(3), bytes(5_000))]
SNAPSHOT = random.Random(4).randbytes(2_500_000)


def written(head: Head = HEAD, snapshot: bytes = SNAPSHOT, records: list[Record] = RECORDS) -> bytes:
    return frames_of(head, records, snapshot)


def read(data: bytes) -> tuple[Head, bytes, list[Record]]:
    reader = Reader(BytesIO(data), "backup")
    frames = list(reader.frames())
    records = [frame.record for frame in frames if frame.record is not None]
    return reader.head, b"".join(frame.piece for frame in frames), records


def test_what_was_written_is_read() -> None:
    """The head, a snapshot of several pieces, and the entries with their places."""
    assert read(written()) == (HEAD, SNAPSHOT, RECORDS)
    assert read(written(snapshot=b"", records=[])) == (HEAD, b"", [])


def test_a_file_cut_anywhere_is_refused() -> None:
    """Not one byte may be missing at its end."""
    data = backup_of(store_of(snapshot_at=4))
    for size in range(len(data)):
        with pytest.raises(Damaged, match="cut short"):
            load(BytesIO(data[:size]), "backup")
    assert load(BytesIO(data), "backup").replay.machine.state_hash() == machine_of(ENTRIES).state_hash()


def test_a_flipped_bit_anywhere_is_refused() -> None:
    """In the head, a length, a frame, the trailer: whatever is read, it is not taken for a backup."""
    data = backup_of(store_of(snapshot_at=4))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(Damaged, match=r"^backup"):
            load(BytesIO(bytes(damaged)), "backup")


def test_bytes_after_the_end_are_refused() -> None:
    """Two backups in one file are none."""
    with pytest.raises(Damaged, match="more after its end"):
        read(written() + b"\0")
    with pytest.raises(Damaged, match="more after its end"):
        read(written() * 2)


def test_frames_taken_out_or_exchanged_are_refused() -> None:
    """Each frame is whole, and yet the file is not what was written."""
    with pytest.raises(Damaged, match="the hash at its end"):
        read(_without(written(), framed_entry(RECORDS[0])))
    first, second = (framed_entry(record) for record in RECORDS)
    with pytest.raises(Damaged, match="the hash at its end"):
        read(written().replace(first + second, second + first))


def _without(data: bytes, part: bytes) -> bytes:
    assert data.count(part) == 1
    return data.replace(part, b"")


def test_the_trailer_of_another_backup_is_refused() -> None:
    """Its hash is of other bytes."""
    other = written(HEAD, SNAPSHOT, RECORDS[:1])
    with pytest.raises(Damaged, match="the hash at its end"):
        read(written()[: -(len(b"Z") + 8 + 40)] + other[-(len(b"Z") + 8 + 40) :])


@pytest.mark.parametrize("data", [b"", b"FH", b"FHbak", b"SQLite format 3\0" * 10])
def test_what_is_no_backup_is_told_so(data: bytes) -> None:
    """An empty file, half a head, the file of something else."""
    with pytest.raises(Damaged, match=r"cut short|is not a backup"):
        read(data)


def test_an_unknown_format_version_is_named() -> None:
    """A backup of a later format is refused with both versions in the message."""
    data = bytearray(written())
    struct.pack_into("<I", data, 8, 7)
    with pytest.raises(Damaged, match="format version 7, but only version 1 is known"):
        read(bytes(data))


def test_a_head_with_fields_of_the_future_is_read() -> None:
    """Fields are only added: what a newer program says besides is passed over."""
    data = written()
    length = struct.unpack_from("<I", data, 12)[0]
    packed = bytearray(data[20 : 20 + length])
    packed[0] += 1
    packed += b"\xa3new\xa5field"
    head = struct.pack("<8sIII", data[:8], 1, len(packed), crc32(packed)) + packed
    assert Reader(BytesIO(head + data[20 + length :]), "backup").head == HEAD


def test_a_length_beyond_all_is_not_believed() -> None:
    """Four gigabytes are not read because damaged bytes say so."""
    data = written()
    at = data.index(b"S", 20)
    with pytest.raises(Damaged, match="no frame begins here"):
        read(data[:at] + struct.pack("<cI", b"S", 0xFFFFFFF0) + data[at + 5 :])
    with pytest.raises(Damaged, match="its head is damaged"):
        read(data[:12] + struct.pack("<I", 0xFFFFFFF0) + data[16:])
