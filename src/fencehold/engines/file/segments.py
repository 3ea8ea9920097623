"""Reading a segment back: which records are whole, and what the bytes after the last of them are.

It changes nothing and decides nothing about repair; it says what is there. The rules it obeys:

1. Records follow each other without gaps from the position the segment is named after, under epochs that
   never go back. A whole record that breaks this is damage: a crash leaves pieces, never wrong wholes.
2. The records end where only zeros follow. Anything else there is a *tear*, or damage if a whole record comes
   after it: one append is under way at a time, so a crash tears the last record and no other.
"""

from typing import NamedTuple

from fencehold.engines.file.directory import Directory, segment_name
from fencehold.engines.file.records import (
    HEAD_BYTES,
    RECORD_MAGIC,
    Place,
    decode_head,
    encode_head,
    find,
)
from fencehold.errors import Damaged
from fencehold.types import Epoch, Position


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
