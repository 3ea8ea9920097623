"""How an entry looks as a value in etcd.

::

    entry      kind 1 | epoch u64 | crc u32 | the entry
    beginning  kind 1 | epoch u64 | crc u32

1. The crc covers position, epoch and entry, so a value that was moved, cut or typed in by hand is never an
   entry.
2. A *beginning* marks the position after which a journal begins: 0 of a new one, that of the snapshot of one
   that was seeded. It holds the place of the previous entry for the first append, and is never read as an entry.
"""

import struct
from zlib import crc32

from fencehold.errors import Damaged
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position

_HEAD = struct.Struct("<BQI")
_PLACE = struct.Struct("<BQQ")
_BEGINNING = 0
_ENTRY = 1


def encode(position: Position, epoch: Epoch, entry: bytes) -> bytes:
    return _HEAD.pack(_ENTRY, epoch, crc32(entry, crc32(_PLACE.pack(_ENTRY, position, epoch)))) + entry


def beginning(position: Position) -> bytes:
    return _HEAD.pack(_BEGINNING, 0, crc32(_PLACE.pack(_BEGINNING, position, 0)))


def decode(position: Position, value: bytes) -> Record | None:
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
