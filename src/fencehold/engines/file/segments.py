"""Segments: how entries look as bytes, what is whole in a file, and reading entries in order.

A segment is a head, then records, then zeros: room that is allocated but not used yet. All numbers are
little-endian.

::

    head    magic 8 | format version u32 | first position u64 | salt u32 | crc u32
    record  magic 4 | length u32 | position u64 | epoch u64 | crc u32 | the entry, `length` bytes

1. A record's crc covers every byte of it, and begins with its segment's salt: bytes that once were a record
   elsewhere, or that a client put into an entry, are not a record here.
2. A record is never empty and its magic has no zero byte, so zeros are never a record.

Reading a segment back changes nothing and decides nothing about repair; it says what is there:

3. Records follow each other without gaps from the position the segment is named after, under epochs that
   never go back. A whole record that breaks this is damage: a crash leaves pieces, never wrong wholes.
4. The records end where only zeros follow. Anything else there is a *tear*, or damage if a whole record comes
   after it: one append is under way at a time, so a crash tears the last record and no other.

Reading entries from segment to segment, in steps that fit in memory, runs beside the appender and shares nothing
with it but the files:

5. It never reads beyond the position that was acknowledged, so what it reads is settled: bytes there that are not
   a whole record of the next position are damage.
6. No file stays open between steps, so a reader that is abandoned leaks nothing and holds up no trim.
7. A segment that is gone was trimmed if a snapshot covers the next position; otherwise it was lost.
"""

import os
import struct
from typing import NamedTuple
from zlib import crc32

from fencehold.engines.file.directory import Directory, segment_name
from fencehold.errors import Damaged, Trimmed, Unavailable
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position

FORMAT_VERSION = 1
SEGMENT_MAGIC = b"FHseg\r\n\x1a"
RECORD_MAGIC = b"\xf1Rec"

_HEAD = struct.Struct("<8sIQI")
_FIELDS = struct.Struct("<4sIQQ")
_CRC = struct.Struct("<I")

HEAD_BYTES = _HEAD.size + _CRC.size
RECORD_BYTES = _FIELDS.size + _CRC.size
"""What a record takes beside its entry."""
_STEP_BYTES = 256 << 10


class Place(NamedTuple):
    """A record that was found whole: what it says of itself, and where it ends."""

    position: Position
    epoch: Epoch
    end: int


def encode_head(first: Position, salt: int) -> bytes:
    fields = _HEAD.pack(SEGMENT_MAGIC, FORMAT_VERSION, first, salt)
    return fields + _CRC.pack(crc32(fields))


def decode_head(data: bytes, first: Position, file: str) -> int:
    """The salt of the segment in `file`, which begins at `first`.

    Raises:
        Damaged: this is not its head, or one of a format version not known here.
    """
    if len(data) < HEAD_BYTES or not data.startswith(SEGMENT_MAGIC):
        raise Damaged(f"{file}: offset 0: not the head of a segment; restore the file from a copy")
    _, version, begins, salt = _HEAD.unpack_from(data)
    check_version(version, file)
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32(data[: _HEAD.size]) or begins != first:
        raise Damaged(f"{file}: offset 0: the segment's head is damaged; restore the file from a copy")
    return int(salt)


def check_version(version: int, file: str) -> None:
    if version != FORMAT_VERSION:
        raise Damaged(
            f"{file}: format version {version}, but only version {FORMAT_VERSION} is known here: "
            "run the program that wrote it, or restore the file from a copy if it was damaged"
        )


def encode(entry: bytes, epoch: Epoch, position: Position, salt: int) -> bytes:
    fields = _FIELDS.pack(RECORD_MAGIC, len(entry), position, epoch)
    return b"".join((fields, _CRC.pack(crc32(entry, crc32(fields, salt))), entry))


def find(data: bytes | memoryview, offset: int, salt: int) -> Place | None:
    """The whole, undamaged record at `offset`, or None if there is none."""
    begin = offset + RECORD_BYTES
    if begin >= len(data):
        return None
    magic, length, position, epoch = _FIELDS.unpack_from(data, offset)
    end = begin + length
    if magic != RECORD_MAGIC or length == 0 or end > len(data):
        return None
    view = memoryview(data)
    expected = crc32(view[begin:end], crc32(view[offset : offset + _FIELDS.size], salt))
    if _CRC.unpack_from(data, begin - _CRC.size)[0] != expected:
        return None
    return Place(Position(position), Epoch(epoch), end)


def length_at(data: bytes, offset: int) -> int | None:
    """How many bytes the record at `offset` says it takes, unchecked; None if no record begins there."""
    if len(data) < offset + RECORD_BYTES or not data.startswith(RECORD_MAGIC, offset):
        return None
    return RECORD_BYTES + int(_FIELDS.unpack_from(data, offset)[1])


class Segment(NamedTuple):
    """What a segment holds."""

    file: str
    first: Position
    salt: int
    end: Position
    """The position of the last whole record; the one before `first` if there is none."""
    epoch: Epoch
    """The epoch of the last whole record, or of the segment before."""
    offset: int
    """Where the whole records end."""
    last: bytes
    """The bytes of the last whole record."""
    torn_bytes: int
    """How many bytes that are neither a record nor zeros follow."""


def scan(directory: Directory, first: Position, epoch: Epoch) -> Segment:
    """Read and check the segment that begins at `first`; the segment before it ended under `epoch`.

    Raises:
        Damaged: the bytes are not what was written, beyond what a crash can do.
    """
    file = directory.file(segment_name(first))
    data = directory.disk.read(file)
    salt = decode_head(data, first, file)
    end, offset, last_offset = Position(first - 1), HEAD_BYTES, HEAD_BYTES
    while place := find(data, offset, salt):
        _check_order(place, end, epoch, file, offset)
        last_offset = offset
        end, epoch, offset = place
    torn_bytes = _torn_bytes(data, offset)
    if torn_bytes:
        _refuse_if_followed(data, offset, salt, file)
    return Segment(file, first, salt, end, epoch, offset, data[last_offset:offset], torn_bytes)


def create(directory: Directory, first: Position, allocate_bytes: int) -> tuple[int, int]:
    """Make an empty segment with room allocated, durably, and open it: its file descriptor and its salt.

    Raises:
        OSError: there is no such segment.
        OutcomeUnknown: there may be one, and it is empty.
    """
    name = segment_name(first)
    salt = int.from_bytes(directory.disk.random(4), "little")
    fd = directory.draft(name)
    try:
        directory.disk.write(fd, encode_head(first, salt).ljust(allocate_bytes, b"\0"), 0)
        directory.disk.sync(fd)
        directory.publish(name)
    except BaseException:
        directory.disk.close(fd)
        directory.discard(name)
        raise
    return fd, salt


def _check_order(place: Place, end: Position, epoch: Epoch, file: str, offset: int) -> None:
    if place.position != end + 1:
        raise Damaged(
            f"{file}: offset {offset}: position {place.position} stands where {end + 1} belongs; "
            "restore the file from a copy"
        )
    if place.epoch < epoch:
        raise Damaged(
            f"{file}: offset {offset}: position {place.position} is of epoch {place.epoch}, after one of "
            f"epoch {epoch}; restore the file from a copy"
        )


def _torn_bytes(data: bytes, offset: int) -> int:
    # Compared with zeros first: that is the common case, and the room ahead may be large.
    if data[offset:] == bytes(len(data) - offset):
        return 0
    return len(data.rstrip(b"\0")) - offset


def _refuse_if_followed(data: bytes, offset: int, salt: int, file: str) -> None:
    at = data.find(RECORD_MAGIC, offset + 1)
    while at >= 0:
        if place := find(data, at, salt):
            raise Damaged(
                f"{file}: offset {offset}: not a whole record, yet position {place.position} stands whole "
                f"after it at offset {at}; restore the file from a copy"
            )
        at = data.find(RECORD_MAGIC, at + 1)


class Cursor:
    """A place in the log: the entry at `position` has been read, the next one begins at an offset."""

    def __init__(self, directory: Directory, after: Position) -> None:
        self.position = after
        self._directory = directory
        self._disk = directory.disk
        self._file: str | None = None
        self._salt = 0
        self._offset = 0
        self._found = Position(0)
        """The position before the offset: behind `position` until the first entry wanted is found."""

    def step(self, end: Position) -> list[Record]:
        """The next entries, at least one, none beyond `end`.

        Raises:
            Trimmed: the next entry is gone, and a snapshot covers it.
            Damaged: stored bytes are not what was written.
            Unavailable: the file cannot be read.
        """
        try:
            records: list[Record] = []
            while not records:
                records = self._step(end)
            return records
        except FileNotFoundError:
            raise self._missing() from None
        except OSError as error:
            raise Unavailable(f"{self._file}: cannot be read: {error.strerror}") from error

    def _step(self, end: Position) -> list[Record]:
        if self._file is None:
            self._enter(self._holding(Position(self.position + 1)))
        data = self._data()
        records, offset = [], 0
        while self._found < end and (place := find(data, offset, self._salt)):
            if place.position != self._found + 1:
                raise self._damaged(offset, f"position {place.position} stands where {self._found + 1} belongs")
            if place.position > self.position:
                records.append(Record(*place[:2], data[offset + RECORD_BYTES : place.end]))
                self.position = place.position
            self._found, offset = place.position, place.end
        if offset == 0:
            self._enter_next(data)
        self._offset += offset
        return records

    def _data(self) -> bytes:
        """The bytes from the offset on: a step's worth, or as many as the next record takes."""
        fd = self._disk.open(str(self._file), os.O_RDONLY)
        try:
            data = self._disk.pread(fd, _STEP_BYTES, self._offset)
            size = length_at(data, 0)
            if size is not None and size > len(data) == _STEP_BYTES:
                data += self._disk.pread(fd, size - len(data), self._offset + len(data))
            return data
        finally:
            self._disk.close(fd)

    def _holding(self, position: Position) -> Position:
        firsts = [first for first in self._directory.segments() if first <= position]
        if not firsts:
            raise self._missing()
        return firsts[-1]

    def _enter_next(self, data: bytes) -> None:
        following = Position(self._found + 1)
        if self._offset > HEAD_BYTES and following in self._directory.segments():
            self._enter(following)
        elif not any(data) and following <= max(self._directory.snapshots(), default=0):
            raise self._missing()
        else:
            raise self._damaged(0, f"not the whole record of position {following}")

    def _enter(self, first: Position) -> None:
        self._file = self._directory.file(segment_name(first))
        fd = self._disk.open(self._file, os.O_RDONLY)
        try:
            head = self._disk.pread(fd, HEAD_BYTES, 0)
        finally:
            self._disk.close(fd)
        self._salt = decode_head(head, first, self._file)
        self._offset, self._found = HEAD_BYTES, Position(first - 1)

    def _missing(self) -> Trimmed | Damaged:
        wanted = Position(self.position + 1)
        covered = max(self._directory.snapshots(), default=Position(0))
        if wanted <= covered:
            return Trimmed(f"{self._directory.path}: position {wanted} was trimmed; the snapshot is at {covered}")
        return Damaged(
            f"{self._directory.path}: position {wanted} is missing: no segment holds it; "
            "restore the segments from a copy"
        )

    def _damaged(self, offset: int, what: str) -> Damaged:
        return Damaged(f"{self._file}: offset {self._offset + offset}: {what}; restore the file from a copy")
