"""The format of a backup: a head, frames, a trailer. All numbers are little-endian.

::

    head      magic 8 | format version u32 | length u32 | crc u32 | what is in it, MessagePack, `length` bytes
    frame     kind 1 | length u32 | crc u32 | `length` bytes:
                S   a piece of the snapshot
                E   position u64 | epoch u64 | the entry
    trailer   Z | length u32 | crc u32 | how many frames u64 | BLAKE2b 32 of every byte before the trailer

The rules it obeys:

1. A damaged file is refused: a crc finds damage near its place, and the hash in the trailer finds frames that
   were removed, added or exchanged. A file without its trailer was truncated.
2. A length is used only after a check that this format could have written it.
3. Fields are only ever added to the head, with a default. Anything else is another format version.
"""

import hashlib
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple
from zlib import crc32

import msgspec

from fencehold.errors import Damaged
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position

VERSION = 1
_MAGIC = b"FHbak\r\n\x1a"
_START = struct.Struct("<8sIII")
_FRAME = struct.Struct("<cII")
_PLACE = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")
_DIGEST_BYTES = 32
_PIECE_BYTES = 1 << 20
_HEAD_BYTES_MAX = 64 << 10
_FRAME_BYTES_MAX = 256 << 20
"""Above any entry that an engine takes."""
_SNAPSHOT, _ENTRY, _TRAILER = b"S", b"E", b"Z"


class Head(msgspec.Struct, frozen=True):
    """What is in a backup, and where it is from."""

    engine: str
    epoch: int
    """The newest epoch of the journal then."""
    snapshot_position: int
    """0 if the journal had no snapshot."""
    position: int
    """Of the last entry."""
    logical_ms: int
    """Logical time after it."""
    fence: int
    """The fence counter after it."""
    made_at_us: int
    """Microseconds since the Unix epoch, by the wall clock of the machine that made it."""
    made_by: str = ""
    """The version of the program."""


class Frame(NamedTuple):
    """An intact frame: a piece of the snapshot, or an entry."""

    piece: bytes = b""
    record: Record | None = None


class Writer:
    """Writes a backup, front to back."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._frames = 0

    def begin(self, head: Head) -> None:
        data = msgspec.msgpack.encode(head)
        start = _START.pack(_MAGIC, VERSION, len(data), crc32(data))
        self._write(start + data)

    def snapshot(self, data: bytes) -> None:
        """All of the snapshot, in pieces."""
        for at in range(0, len(data), _PIECE_BYTES):
            self.frame(_framed(_SNAPSHOT, data[at : at + _PIECE_BYTES]))

    def frame(self, data: bytes) -> None:
        """One frame, as `framed_entry` made it."""
        self._frames += 1
        self._write(data)

    def end(self) -> None:
        """The trailer. A file without one is not a backup."""
        self._write(_framed(_TRAILER, _COUNT.pack(self._frames) + self._digest.digest()))

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._sink.write(data)


def framed_entry(record: Record) -> bytes:
    """An entry as a frame."""
    return _framed(_ENTRY, _PLACE.pack(record.position, record.epoch) + record.entry)


def frames_in(spool: BinaryIO) -> Iterator[bytes]:
    """The frames that were written to a file one after the other, unread."""
    while start := spool.read(_FRAME.size):
        yield start + spool.read(_FRAME.unpack(start)[1])


def _framed(kind: bytes, data: bytes) -> bytes:
    return _FRAME.pack(kind, len(data), _crc(kind, data)) + data


def _crc(kind: bytes, data: bytes) -> int:
    return crc32(data, crc32(kind + len(data).to_bytes(4, "little")))


class Reader:
    """Reads a backup, front to back. Trust nothing of it before `frames` has reached its end."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        """Read the head.

        Raises:
            Damaged: this is not a backup, or has an unknown format version.
        """
        self._source = source
        self._name = name
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._offset = 0
        self.head = self._head()

    def frames(self) -> Iterator[Frame]:
        """The pieces of the snapshot, then the entries.

        Raises:
            Damaged: it is corrupt, or was truncated; at the latest, after the last frame.
        """
        count = 0
        while True:
            before = self._digest.digest()
            kind, data = self._frame()
            if kind == _TRAILER:
                break
            count += 1
            yield self._decoded(kind, data)
        if data != _COUNT.pack(count) + before:
            raise self._damaged("the hash at its end does not match what is before it")
        if self._source.read(1):
            raise self._damaged("there is more after its end")

    def _head(self) -> Head:
        start = self._take(_START.size)
        magic, version, length, crc = _START.unpack(start)
        if magic != _MAGIC:
            raise Damaged(f"{self._name} is not a backup of a Fencehold journal")
        if version != VERSION:
            raise Damaged(
                f"{self._name}: format version {version}, but only version {VERSION} is known here: "
                "import it with the version of Fencehold that made it, or a newer one"
            )
        data = self._take(length) if length <= _HEAD_BYTES_MAX else b""
        try:
            if crc32(data) != crc:
                raise self._damaged("its head is damaged")
            return msgspec.msgpack.decode(data, type=Head)
        except msgspec.MsgspecError as error:
            raise self._damaged(f"its head cannot be read: {error}") from error

    def _frame(self) -> tuple[bytes, bytes]:
        kind, length, crc = _FRAME.unpack(self._take(_FRAME.size))
        if kind not in (_SNAPSHOT, _ENTRY, _TRAILER) or length > _FRAME_BYTES_MAX:
            raise self._damaged("no frame begins here")
        data = self._take(length)
        if _crc(kind, data) != crc:
            raise self._damaged("the bytes before this place are not what was written")
        return kind, data

    def _decoded(self, kind: bytes, data: bytes) -> Frame:
        if kind == _SNAPSHOT:
            return Frame(piece=data)
        if len(data) <= _PLACE.size:
            raise self._damaged("an entry is empty")
        position, epoch = _PLACE.unpack_from(data)
        return Frame(record=Record(Position(position), Epoch(epoch), data[_PLACE.size :]))

    def _take(self, size: int) -> bytes:
        data = self._source.read(size)
        if len(data) < size:
            raise self._damaged("it was cut short here")
        self._offset += size
        self._digest.update(data)
        return data

    def _damaged(self, what: str) -> Damaged:
        return Damaged(f"{self._name}: offset {self._offset}: {what}; take another copy of the backup")
