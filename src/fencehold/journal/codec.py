"""The codec: entries to bytes and back, behind one byte of format version.

A newer version must still read what an older one wrote: commands are only added, and fields only at their end with
a default. What cannot be read is refused, never guessed: a replica that skips a command is not a replica.
"""

from typing import Final

import msgspec

from fencehold.core.commands import Entry
from fencehold.errors import Damaged

VERSION = 1
_PREFIX: Final = bytes([VERSION])
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Entry).decode


def encode(entry: Entry) -> bytes:
    """The bytes a journal keeps. Most entries do not have the time of day, and spend no byte on it."""
    return _PREFIX + _encode(entry if entry.unix_ms else (entry.elapsed_ms, entry.commands))


def decode(data: bytes) -> Entry:
    """The entry those bytes are.

    Raises:
        Damaged: no entry of a version known here.
    """
    if data[:1] != _PREFIX:
        raise Damaged(f"an entry has format version {data[:1].hex() or 'none'}, and only {VERSION} is known here")
    try:
        return _decode(memoryview(data)[1:])
    except msgspec.MsgspecError as error:
        raise Damaged(f"an entry cannot be read: {error}") from error
