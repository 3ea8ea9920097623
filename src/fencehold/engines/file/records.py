"""How an entry and the head of a segment look as bytes.

A segment is a head, then records, then zeros: room that is allocated but not used yet. All numbers are
little-endian.

::

    head    magic 8 | format version u32 | first position u64 | salt u32 | crc u32
    record  magic 4 | length u32 | position u64 | epoch u64 | crc u32 | the entry, `length` bytes

The rules it obeys:

1. A record's crc covers every byte of it, and begins with its segment's salt: bytes that once were a record
   elsewhere, or that a client smuggled into an entry, are not a record here.
2. A record is never empty and its magic has no zero byte, so zeros are never a record.
"""

import struct
from typing import NamedTuple
from zlib import crc32

from fencehold.errors import Damaged
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
