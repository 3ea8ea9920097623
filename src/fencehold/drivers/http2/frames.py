"""How HTTP/2 looks (RFC 9113), as far as gRPC meets it, and which frames are forbidden.

What the RFC tells to ignore is ignored: frames of unknown kinds, flags that a kind does not have, the bit before a
number, settings that are not known.

Header blocks are written and read without a table that both sides would have to keep: the peer is told that there
is none. So a block means the same each time, and what it means is remembered.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from hpack import Decoder, Encoder, HPACKError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
_PADDED = 0x8
_WITH_PRIORITY = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS = 1, 2, 3
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 4, 5, 6


class Cause(IntEnum):
    """Why a stream or a connection is ended (RFC 9113, 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


FRAME_BYTES = 16_384
"""The largest frame that is sent or taken, as long as no more was agreed on."""
WINDOW_BYTES = 65_535
"""What may be sent at first without a window update, in a stream and in all of them."""
WINDOW_BYTES_MAX = (1 << 31) - 1
_FRAME_BYTES_MAX = (1 << 24) - 1
_31_BITS = (1 << 31) - 1
_CAUSES = frozenset(Cause)

_HEAD = struct.Struct(">BHBBI")
_NUMBER = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
_GOAWAY = struct.Struct(">II")
_MESSAGE = struct.Struct(">BI")
MESSAGE_HEAD_BYTES = _MESSAGE.size
_REMEMBERED = 128

Metadata: TypeAlias = tuple[tuple[str, str], ...]


class Broken(Exception):
    """What came is not HTTP/2, or more than was agreed: the connection is of no use any more."""

    def __init__(self, why: str, cause: Cause = Cause.PROTOCOL_ERROR) -> None:
        super().__init__(why)
        self.cause = cause
        """What the peer is told."""


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


class UnaryAnswer(NamedTuple):
    """What a call with one answer is nearly always answered: three frames of one stream, and no others."""

    stream: int
    head: bytes
    body: bytes
    """Of its DATA frame."""
    trailer: bytes


def unary_answer_in(data: bytes) -> UnaryAnswer | None:
    """The answer that this is, from its first byte to its last; None if it is anything else."""
    end = len(data)
    if end < 3 * _HEAD.size:
        return None
    high, size, kind, flags, stream = _HEAD.unpack_from(data)
    body_at = 2 * _HEAD.size + size
    if high or kind != HEADERS or flags != END_HEADERS or body_at > end:
        return None
    more_high, more_size, more_kind, more_flags, more_stream = _HEAD.unpack_from(data, body_at - _HEAD.size)
    tail_at = body_at + more_size + _HEAD.size
    if more_high or more_kind != DATA or more_flags or more_stream != stream or tail_at > end:
        return None
    last_high, last_size, last_kind, last_flags, last_stream = _HEAD.unpack_from(data, tail_at - _HEAD.size)
    if last_high or last_kind != HEADERS or last_flags != END_HEADERS | END_STREAM or last_stream != stream:
        return None
    if tail_at + last_size != end or max(size, more_size, last_size) > FRAME_BYTES:
        return None
    return UnaryAnswer(
        stream, data[_HEAD.size : body_at - _HEAD.size], data[body_at : tail_at - _HEAD.size], data[tail_at:]
    )


class Splitter:
    """Bytes as they come, cut into frames."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_between(self) -> bool:
        """Whether what comes next begins a frame."""
        return not self._rest

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
                raise Broken(f"a frame of {size} bytes", Cause.FRAME_SIZE_ERROR)
            if end - at - _HEAD.size < size:
                break
            at += _HEAD.size + size
            yield Frame(kind, flags, stream & _31_BITS, data[at - size : at])
        self._rest = data[at:]


_SIZES = {PRIORITY: 5, RST_STREAM: _NUMBER.size, PING: 8, WINDOW_UPDATE: _NUMBER.size}
_IN_NO_STREAM = (SETTINGS, PING, GOAWAY)
_IN_STREAMS = (DATA, HEADERS, PRIORITY, RST_STREAM, CONTINUATION)


def check(arrived: Frame) -> None:
    """See that a frame may look like this, whatever came before it.

    Raises:
        Broken: none may.
    """
    kind, _, stream, payload = arrived
    if kind == PUSH_PROMISE:
        raise Broken("a push, which was declined")
    if (kind in _IN_STREAMS and not stream) or (kind in _IN_NO_STREAM and stream):
        raise Broken(f"a frame of kind {kind} in stream {stream}")
    if len(payload) != _SIZES.get(kind, len(payload)) or (kind == GOAWAY and len(payload) < _GOAWAY.size):
        raise Broken(f"a frame of kind {kind} with {len(payload)} bytes", Cause.FRAME_SIZE_ERROR)


def plain(arrived: Frame) -> bytes:
    """What a DATA or HEADERS frame carries, without what only fills it."""
    payload, start, end = arrived.payload, 0, len(arrived.payload)
    if arrived.kind == HEADERS and arrived.flags & _WITH_PRIORITY:
        start = 5
    if arrived.flags & _PADDED:
        start += 1
        if start > end or payload[0] > end - start:
            raise Broken("a frame that is all padding")
        end -= payload[0]
    if start > end:
        raise Broken("headers cut short", Cause.FRAME_SIZE_ERROR)
    return payload[start:end]


def increment_in(payload: bytes) -> int:
    """How much more room a WINDOW_UPDATE gives."""
    return int(_NUMBER.unpack(payload)[0]) & _31_BITS


def check_credit(credit: int) -> None:
    """Refuse room that there cannot be.

    Raises:
        Broken: there is more.
    """
    if credit > WINDOW_BYTES_MAX:
        raise Broken("more room than there can be", Cause.FLOW_CONTROL_ERROR)


def cause_in(payload: bytes) -> int:
    """Why a RST_STREAM ends its stream. All its bits count: with one more, it is another cause."""
    return int(_NUMBER.unpack(payload)[0])


def cause_name(number: int) -> str:
    """The name of a cause, which may be an unknown one."""
    return Cause(number).name if number in _CAUSES else f"cause {number}"


class GoAway(NamedTuple):
    """What a GOAWAY says."""

    last: int
    """The last stream that was processed."""
    cause: int
    words: bytes


def goaway(cause: Cause, last: int = 0, words: bytes = b"") -> bytes:
    """A GOAWAY frame, with the last stream of the peer that was processed: a client processes none."""
    return frame(GOAWAY, payload=_GOAWAY.pack(last, cause) + words)


def goaway_in(payload: bytes) -> GoAway:
    last, cause = _GOAWAY.unpack_from(payload)
    return GoAway(last & _31_BITS, cause, payload[_GOAWAY.size :])


def numbered(kind: int, stream: int, number: int) -> bytes:
    """A frame of one number: RST_STREAM with its cause, or WINDOW_UPDATE with how much more."""
    return frame(kind, 0, stream, _NUMBER.pack(number))


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(_SETTING.pack(*pair) for pair in values.items()))


def settings_in(payload: bytes) -> dict[int, int]:
    """The settings that the peer wants.

    Raises:
        Broken: they are not allowed.
    """
    if len(payload) % _SETTING.size:
        raise Broken("settings cut short", Cause.FRAME_SIZE_ERROR)
    values = {}
    for name, value in _SETTING.iter_unpack(payload):
        if name == MAX_FRAME_SIZE and not FRAME_BYTES <= value <= _FRAME_BYTES_MAX:
            raise Broken(f"frames of {value} bytes")
        if name == INITIAL_WINDOW_SIZE and value > WINDOW_BYTES_MAX:
            raise Broken("more room than there can be", Cause.FLOW_CONTROL_ERROR)
        if name == ENABLE_PUSH and value > 1:
            raise Broken(f"a push that is {value}")
        values[name] = value
    return values


def message(data: bytes) -> bytes:
    """A message of gRPC, as DATA carries it."""
    return _MESSAGE.pack(0, len(data)) + data


def is_message(body: bytes) -> bool:
    """Whether this is one message of gRPC, whole and not compressed, and nothing else."""
    size = len(body) - _MESSAGE.size
    return size >= 0 and _MESSAGE.unpack_from(body) == (0, size)


def message_size(received: bytearray) -> int:
    """How long the message is that begins here.

    Raises:
        Broken: it is compressed, which was not negotiated.
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
        raise Broken(f"headers that cannot be read: {error!r}", Cause.COMPRESSION_ERROR) from error


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")
