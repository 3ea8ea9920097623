"""Header blocks (RFC 7541) without a table that both sides keep.

Each side of a connection of ours tells the other that its table has no room. A block then means the same each
time: what it means is a function of its bytes, and can be remembered. Until the peer has received that, its blocks
may still need a table: `BlockReader` keeps one for as long.
"""

from functools import lru_cache
from typing import TypeAlias

from hpack import Decoder, HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from fencehold.drivers.http2.frames import Broken, Cause

Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]

_STATIC: Fields = ((b"", b""), *HeaderTable.STATIC_TABLE)
_OVERHEAD_BYTES = 32
"""What a field counts for beside its text (RFC 9113, 6.5.2)."""
_TEXT_BYTES_MAX = 64
"""Texts up to this length are remembered when they are unpacked."""
_NUMBER_BYTES_MAX = 4
_TABLED_BYTES_MAX = 1 << 18
"""What a block may unpack to that uses a table, in which a byte can stand for kilobytes."""


def field(name: bytes, value: bytes) -> bytes:
    """One field as text, which goes into no table."""
    return b"\0" + _text(name) + _text(value)


def _text(raw: bytes) -> bytes:
    size = len(raw)
    if size < 0x7F:
        return bytes((size,)) + raw
    head, rest = bytearray(b"\x7f"), size - 0x7F
    while rest >= 0x80:
        head.append(rest & 0x7F | 0x80)
        rest >>= 7
    head.append(rest)
    return bytes(head) + raw


class TooLarge(Exception):
    """The fields of a block are more than is taken. The blocks after it can be read all the same."""


class BlockReader:
    """Reads the blocks of one connection, in their order."""

    def __init__(self, fields_bytes_max: int) -> None:
        self._fields_bytes_max = fields_bytes_max
        self._decoder: Decoder | None = Decoder(_TABLED_BYTES_MAX)

    @property
    def needs_table(self) -> bool:
        """Whether the peer may still use one; if not, a block can be given to `fields_in`."""
        return self._decoder is not None

    def on_settled(self) -> None:
        """The peer has received that there is no table. In its next block it says so (RFC 7541, 4.2); one that
        never used a table may have nothing to say."""
        self._decoder = None

    def read(self, block: bytes) -> Fields:
        """What a block says.

        Raises:
            TooLarge: more than is taken.
            Broken: it cannot be read.
        """
        decoder = self._decoder
        if decoder is None:
            return fields_in(block, self._fields_bytes_max)
        try:
            found = decoder.decode(block, raw=True)
        except HPACKError as error:
            raise Broken(f"headers that cannot be read: {error!r}", Cause.COMPRESSION_ERROR) from error
        fields = tuple((bytes(name), bytes(value)) for name, value, *_ in found)
        if sum(len(name) + len(value) + _OVERHEAD_BYTES for name, value in fields) > self._fields_bytes_max:
            raise TooLarge
        return fields


def fields_in(block: bytes, bytes_max: int) -> Fields:
    """What a block says that needs no table.

    Raises:
        TooLarge: more than so many bytes.
        Broken: it cannot be read, or needs a table.
    """
    try:
        return tuple(_fields(block, bytes_max))
    except (IndexError, HPACKError) as error:
        raise Broken(f"headers that cannot be read: {error!r}", Cause.COMPRESSION_ERROR) from error


def _fields(block: bytes, bytes_max: int) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    at, end, left = 0, len(block), bytes_max
    while at < end:
        first = block[at]
        if first & 0x80:
            number, at = _number(block, at, 0x7F)
            name, value = _static(number)
        elif first & 0xE0 == 0x20:
            size, at = _number(block, at, 0x1F)
            if size or found:
                raise Broken("headers that need a table", Cause.COMPRESSION_ERROR)
            continue
        else:
            # With or without a wish to be kept: there is no table that could keep it.
            number, at = _number(block, at, 0x3F if first & 0x40 else 0x0F)
            if number:
                name = _static(number)[0]
            else:
                name, at = _string(block, at)
            value, at = _string(block, at)
        left -= len(name) + len(value) + _OVERHEAD_BYTES
        if left < 0:
            raise TooLarge
        found.append((name, value))
    return found


def _static(number: int) -> tuple[bytes, bytes]:
    if not 0 < number < len(_STATIC):
        raise Broken("headers that need a table", Cause.COMPRESSION_ERROR)
    return _STATIC[number]


def _number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    for shift in range(0, 7 * _NUMBER_BYTES_MAX, 7):
        more = block[at]
        at += 1
        number += (more & 0x7F) << shift
        if more < 0x80:
            return number, at
    raise Broken("a number without an end", Cause.COMPRESSION_ERROR)


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    is_packed = block[at] & 0x80
    size, at = _number(block, at, 0x7F)
    end = at + size
    if end > len(block):
        raise Broken("headers cut short", Cause.COMPRESSION_ERROR)
    raw = block[at:end]
    if not is_packed:
        return raw, end
    return (_unpacked(raw) if size <= _TEXT_BYTES_MAX else bytes(decode_huffman(raw))), end


@lru_cache(1_024)
def _unpacked(raw: bytes) -> bytes:
    return bytes(decode_huffman(raw))
