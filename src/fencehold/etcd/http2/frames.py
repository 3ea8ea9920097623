"""How HTTP/2 looks (RFC 9113), as far as a client of gRPC meets it.

Header blocks are written and read without a table that both sides would have to keep: the other side is told that
there is none. So a block means the same each time, and what it means is remembered.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from hpack import Decoder, Encoder, HPACKError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
_PADDED = 0x8
_WITH_PRIORITY = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)

REFUSED_STREAM, CANCEL = 0x7, 0x8

FRAME_BYTES = 16_384
"""The largest frame that is sent or taken, as long as nobody has agreed to more."""
WINDOW_BYTES = 65_535
"""What may be sent at first without being asked for more, in a stream and in all of them."""
WINDOW_BYTES_MAX = (1 << 31) - 1
_FRAME_BYTES_MAX = (1 << 24) - 1

_HEAD = struct.Struct(">BHBBI")
_NUMBER = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
_MESSAGE = struct.Struct(">BI")
MESSAGE_HEAD_BYTES = _MESSAGE.size
_REMEMBERED = 128

Metadata: TypeAlias = tuple[tuple[str, str], ...]


class Broken(Exception):
    """What came is not HTTP/2, or more than was agreed: the connection is of no use any more."""


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


class Splitter:
    """Bytes as they come, cut into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now.

        Raises:
            Broken: a frame is larger than was agreed.
        """
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while end - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            size = high << 16 | low
            if size > FRAME_BYTES:
                raise Broken(f"a frame of {size} bytes")
            if end - at - _HEAD.size < size:
                break
            at += _HEAD.size + size
            yield Frame(kind, flags, stream & 0x7FFFFFFF, data[at - size : at])
        self._rest = data[at:]


def plain(arrived: Frame) -> bytes:
    """What a DATA or HEADERS frame carries, without what only fills it."""
    payload, start, end = arrived.payload, 0, len(arrived.payload)
    if arrived.flags & _PADDED:
        if not payload or payload[0] >= end:
            raise Broken("a frame that is all padding")
        start, end = 1, end - payload[0]
    if arrived.kind == HEADERS and arrived.flags & _WITH_PRIORITY:
        start += 5
    return payload[start:end]


def number_in(payload: bytes) -> int:
    """The first number of a RST_STREAM, GOAWAY or WINDOW_UPDATE."""
    if len(payload) < _NUMBER.size:
        raise Broken("a frame that is too short")
    return int(_NUMBER.unpack_from(payload)[0]) & 0x7FFFFFFF


def numbered(kind: int, stream: int, number: int) -> bytes:
    """A frame of one number: RST_STREAM with its cause, or WINDOW_UPDATE with how much more."""
    return frame(kind, 0, stream, _NUMBER.pack(number))


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(_SETTING.pack(*pair) for pair in values.items()))


def settings_in(payload: bytes) -> dict[int, int]:
    """What the other side wants.

    Raises:
        Broken: nobody may want that.
    """
    if len(payload) % _SETTING.size:
        raise Broken("settings cut short")
    values = dict(_SETTING.iter_unpack(payload))
    if not FRAME_BYTES <= values.get(MAX_FRAME_SIZE, FRAME_BYTES) <= _FRAME_BYTES_MAX:
        raise Broken(f"frames of {values[MAX_FRAME_SIZE]} bytes")
    if values.get(INITIAL_WINDOW_SIZE, 0) > WINDOW_BYTES_MAX:
        raise Broken("more room than there can be")
    return values


def message(data: bytes) -> bytes:
    """A message of gRPC, as DATA carries it."""
    return _MESSAGE.pack(0, len(data)) + data


def message_size(received: bytearray) -> int:
    """How long the message is that begins here.

    Raises:
        Broken: it is compressed, which nobody asked for.
    """
    is_compressed, size = _MESSAGE.unpack_from(received)
    if is_compressed:
        raise Broken("a compressed message")
    return int(size)


@lru_cache(_REMEMBERED)
def request_block(scheme: str, authority: str, path: str, timeout_ms: int, metadata: Metadata) -> bytes:
    """The header block of a call; a timeout of 0 is none."""
    headers = [
        (":method", "POST"),
        (":scheme", scheme),
        (":path", path),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "fencehold"),
        *([("grpc-timeout", f"{timeout_ms}m")] if timeout_ms else []),
        *metadata,
    ]
    # What is called sensitive goes into no table.
    return bytes(Encoder().encode([(*header, True) for header in headers], huffman=False))


@lru_cache(_REMEMBERED)
def headers_in(block: bytes) -> dict[str, str]:
    """What a header block says.

    Raises:
        Broken: it cannot be read, or needs a table.
    """
    decoder = Decoder()
    decoder.header_table_size = decoder.max_allowed_table_size = 0
    try:
        return {_text(name): _text(value) for name, value, *_ in decoder.decode(block, raw=True)}
    except HPACKError as error:
        raise Broken(f"headers that cannot be read: {error!r}") from error


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")
