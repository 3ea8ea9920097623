"""The layout: where things are in etcd below the prefix of one journal, and how an entry looks there.

1. Positions are digits of one width, so keys sort as positions do, and a range of keys is a range of positions.
2. Every range begins and ends in digits, so it touches no key of a journal whose prefix begins with this one's.

::

    entry      kind 1 | epoch u64 | crc u32 | the entry
    beginning  kind 1 | epoch u64 | crc u32

3. The crc covers position, epoch and entry, so a value that was moved, cut or typed in by hand is never an
   entry.
4. A *beginning* marks the position after which a journal begins: 0 of a new one, that of the snapshot of one
   that was seeded. It holds the place of the previous entry for the first append, and is never read as an entry.
"""

import struct
from zlib import crc32

from fencehold.errors import Damaged
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position

POSITION_MAX = (1 << 63) - 1
_AFTER_DIGITS = b":"
_HEAD = struct.Struct("<BQI")
_PLACE = struct.Struct("<BQQ")
_BEGINNING = 0
_ENTRY = 1


class JournalKeys:
    """The keys under one prefix."""

    __slots__ = ("_entries", "_snapshots", "entries_end", "entries_start", "epoch", "snapshot")

    def __init__(self, prefix: str) -> None:
        root = prefix.encode()
        self.epoch = root + b"epoch"
        self.snapshot = root + b"snapshot"
        self._entries = root + b"entries/"
        self._snapshots = root + b"snapshots/"
        self.entries_start = self.entry(Position(0))
        self.entries_end = self._entries + _AFTER_DIGITS

    def entry(self, position: Position) -> bytes:
        return self._entries + b"%020d" % position

    def position(self, key: bytes) -> Position:
        """The position in an entry's key."""
        return Position(int(key[len(self._entries) :]))

    def chunk(self, name: str, number: int) -> bytes:
        return self._snapshots + b"%s/%08d" % (name.encode(), number)

    def snapshots_before(self, position: Position) -> tuple[bytes, bytes]:
        """The range of all chunks of snapshots of earlier positions, whose names begin with those."""
        return self._snapshots + b"%020d" % 0, self._snapshots + b"%020d" % position


def encode_entry(position: Position, epoch: Epoch, entry: bytes) -> bytes:
    return _HEAD.pack(_ENTRY, epoch, crc32(entry, crc32(_PLACE.pack(_ENTRY, position, epoch)))) + entry


def encode_beginning(position: Position) -> bytes:
    return _HEAD.pack(_BEGINNING, 0, crc32(_PLACE.pack(_BEGINNING, position, 0)))


def decode_entry(position: Position, value: bytes) -> Record | None:
    """The entry, or None for a beginning.

    Raises:
        Damaged: it is neither.
    """
    if len(value) >= _HEAD.size:
        kind, epoch, crc = _HEAD.unpack_from(value)
        entry = value[_HEAD.size :]
        if crc == crc32(entry, crc32(_PLACE.pack(kind, position, epoch))):
            if kind == _ENTRY:
                return Record(position, Epoch(epoch), entry)
            if kind == _BEGINNING:
                return None
    raise Damaged(f"position {position}: what etcd holds there is no entry, or one of a newer program's format")
