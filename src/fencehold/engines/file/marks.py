"""Two marks beside the log: the newest epoch, and up to which position appends were acknowledged.

The epoch is in a file of its own, replaced whole. It is durable before anything is written under it, so a record
can never be of a newer epoch than the file names. A file that is not what was written is refused: guessing low
would unseal a leader.

::

    epoch   magic 8 | format version u32 | epoch u64 | crc u32

A log that was cut short at the end of a record looks like one that was never longer. The mark of how far appends
were acknowledged tells the two apart. The rules it obeys:

1. It is written after the entry was synced, so it is never ahead of the log, whatever is lost.
2. It is never synced itself, so it costs a few stores to memory. It survives the end of the process; after a
   power loss it may be old, or gone. Then less is noticed, and nothing is wrong.
3. Two slots take turns, so one half-written leaves the other whole. Positions grow: the higher one counts.

::

    slot    magic 4 | position u64 | crc u32, at offsets 0 and 64
"""

import mmap
import os
import struct
from zlib import crc32

from fencehold.engines.file.directory import Directory
from fencehold.engines.file.segments import check_version
from fencehold.errors import Damaged
from fencehold.types import BEGINNING, Epoch, Position

EPOCHS_NAME = "epoch"
_EPOCHS_MAGIC = b"FHepo\r\n\x1a"
_VERSION = 1
_EPOCHS_FIELDS = struct.Struct("<8sIQ")
_CRC = struct.Struct("<I")
MARK_NAME = "mark"
_MARK_MAGIC = b"FHm\x01"
_MARK_FIELDS = struct.Struct("<4sQ")
_SLOT_OFFSETS = (0, 64)
_SLOT_BYTES = _MARK_FIELDS.size + _CRC.size
_SIZE = 128


def read_epoch(directory: Directory) -> Epoch | None:
    """The newest epoch; None if there never was a leader."""
    file = directory.file(EPOCHS_NAME)
    try:
        data = directory.disk.read(file)
    except FileNotFoundError:
        return None
    return _decode_epoch(data, file)


def write_epoch(directory: Directory, epoch: Epoch) -> None:
    """Make `epoch` the newest, durably. Raises as `Directory.replace`."""
    fields = _EPOCHS_FIELDS.pack(_EPOCHS_MAGIC, _VERSION, epoch)
    directory.replace(EPOCHS_NAME, fields + _CRC.pack(crc32(fields)))


def _decode_epoch(data: bytes, file: str) -> Epoch:
    if len(data) != _EPOCHS_FIELDS.size + _CRC.size or not data.startswith(_EPOCHS_MAGIC):
        raise Damaged(f"{file}: not an epoch file; restore it from a copy")
    _, version, epoch = _EPOCHS_FIELDS.unpack_from(data)
    check_version(version, file)
    if _CRC.unpack_from(data, _EPOCHS_FIELDS.size)[0] != crc32(data[: _EPOCHS_FIELDS.size]):
        raise Damaged(f"{file}: the newest epoch is damaged; restore the file from a copy")
    return Epoch(epoch)


def read_mark(directory: Directory) -> Position | None:
    """How far appends were certainly acknowledged; None if the mark cannot be read."""
    try:
        data = directory.disk.read(directory.file(MARK_NAME))
    except FileNotFoundError:
        return BEGINNING
    if not any(data):
        return BEGINNING
    slots = (_decode_mark(data, offset) for offset in _SLOT_OFFSETS)
    return max((position for position in slots if position is not None), default=None)


class Mark:
    """The mark of a journal that is open."""

    def __init__(self, directory: Directory, position: Position) -> None:
        self._turn = 1
        self._map = _map(directory, _slot(position).ljust(_SIZE, b"\0"))

    def set(self, position: Position) -> None:
        # Memory, not a system call: this thread then need not give up the interpreter lock once more per append.
        offset = _SLOT_OFFSETS[self._turn]
        self._map[offset : offset + _SLOT_BYTES] = _slot(position)
        self._turn ^= 1

    def close(self) -> None:
        self._map.close()


def _slot(position: Position) -> bytes:
    fields = _MARK_FIELDS.pack(_MARK_MAGIC, position)
    return fields + _CRC.pack(crc32(fields))


def _decode_mark(data: bytes, offset: int) -> Position | None:
    slot = data[offset : offset + _SLOT_BYTES]
    if len(slot) < _SLOT_BYTES:
        return None
    position = Position(_MARK_FIELDS.unpack_from(slot)[1])
    return position if slot == _slot(position) else None


def _map(directory: Directory, data: bytes) -> mmap.mmap:
    fd = directory.disk.open(directory.file(MARK_NAME), os.O_RDWR | os.O_CREAT)
    try:
        # Written, not only sized: a store to a page the disk has no room for would end the process.
        directory.disk.write(fd, data, 0)
        return directory.disk.map(fd, len(data))
    finally:
        directory.disk.close(fd)
