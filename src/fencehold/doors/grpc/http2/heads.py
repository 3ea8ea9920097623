"""What a call begins and ends with: its header blocks, read and written.

A client sends the same block with almost every call, so what a block says is remembered by its bytes.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.header_blocks import BlockReader, Fields, TooLarge, field, fields_in

_BLOCK_BYTES_MAX = 1_024
"""Blocks up to this size are remembered."""
_UNITS_S = {"H": 3_600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT_S_MAX = 1e8
_OF_CONNECTIONS = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_WORDS_MAX = 2_048
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord("%")}


class Malformed(Exception):
    """What HTTP/2 forbids in the head of a request (RFC 9113, 8.1.1): the stream is reset."""


class Head(NamedTuple):
    """What a call begins with."""

    path: str
    timeout_s: float | None = None
    encoding: str = "identity"
    """How its messages are compressed."""
    metadata: Mapping[str, str] = MappingProxyType({})
    """Of several values with one key, the first."""
    http_status: int = 200
    """Anything but 200: it is not a gRPC call, and this is the response."""
    problem: str = ""
    """What is wrong with it, if it is a gRPC call that cannot be served."""


def head_in(reader: BlockReader, block: bytes, bytes_max: int) -> Head:
    """The head of a call.

    Raises:
        TooLarge: it has more than `bytes_max` bytes.
        Malformed: the stream is to be reset.
        Broken: nothing that comes after it can be read.
    """
    if reader.needs_table:
        return _head(reader.read(block))
    return _remembered(block, bytes_max) if len(block) <= _BLOCK_BYTES_MAX else _head(fields_in(block, bytes_max))


@lru_cache(1_024)
def _remembered(block: bytes, bytes_max: int) -> Head:
    return _head(fields_in(block, bytes_max))


def check_trailers(reader: BlockReader, block: bytes, bytes_max: int) -> None:
    """Read what a client ends a call with, of which nothing is used.

    Raises:
        Malformed: the stream is to be reset.
        Broken: nothing that comes after it can be read.
    """
    try:
        fields = reader.read(block) if reader.needs_table else fields_in(block, bytes_max)
    except TooLarge:
        return
    if any(name.startswith(b":") for name, _ in fields):
        raise Malformed("a request in the trailers of another")


def _head(fields: Fields) -> Head:
    pseudo: dict[bytes, bytes] = {}
    metadata: dict[str, str] = {}
    for name, value in fields:
        if name.startswith(b":"):
            if metadata or name in pseudo or name not in _PSEUDO:
                raise Malformed(f"{name!r} where it may not be")
            pseudo[name] = value
        elif not name or name in _OF_CONNECTIONS or name != name.lower() or not _is_text(value):
            raise Malformed(f"{name!r} may not be here")
        else:
            metadata.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    if not {b":method", b":scheme", b":path"} <= pseudo.keys():
        raise Malformed("a request without a method, scheme or path")
    return _of_grpc(pseudo, metadata)


def _is_text(value: bytes) -> bool:
    return not (b"\r" in value or b"\n" in value or b"\0" in value)


def _of_grpc(pseudo: dict[bytes, bytes], said: dict[str, str]) -> Head:
    path = pseudo[b":path"].decode("latin-1")
    if said.get("te", "trailers") != "trailers":
        raise Malformed("te may be trailers only")
    if pseudo[b":method"] != b"POST":
        return Head(path, http_status=405)
    if said.get("content-type", "").partition(";")[0].partition("+")[0] != "application/grpc":
        return Head(path, http_status=415)
    timeout = said.get("grpc-timeout", "")
    timeout_s = timeout_in(timeout) if timeout else None
    problem = "" if timeout_s is not None or not timeout else f"grpc-timeout {timeout[:16]!r} is none"
    encoding = said.get("grpc-encoding", "identity")
    return Head(path, timeout_s, encoding, MappingProxyType(said), problem=problem)


def timeout_in(text: str) -> float | None:
    """The seconds of a `grpc-timeout`: at most eight digits, and a unit; None if it is none."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_S or not (number.isascii() and number.isdecimal() and len(number) <= 8):
        return None
    return min(int(number) * _UNITS_S[unit], _TIMEOUT_S_MAX)


# What is answered.

_STATUS_200 = b"\x88"
ANSWER = _STATUS_200 + field(b"content-type", b"application/grpc")
"""The block that an answer begins with."""
_CODES = tuple(field(b"grpc-status", str(code.value).encode()) for code in Code)
DONE = _CODES[Code.OK]
"""The block that an answer ends with."""


def status_block(code: Code, words: str = "", more: tuple[tuple[str, str], ...] = ()) -> bytes:
    """The block that a call ends with."""
    told = field(b"grpc-message", _percent_encoded(words[:_WORDS_MAX])) if words else b""
    return _CODES[code] + told + b"".join(field(key.encode(), value.encode()) for key, value in more)


def http_block(status: int) -> bytes:
    """The block that answers a request that is not a gRPC call."""
    return field(b":status", str(status).encode()) + field(b"content-length", b"0")


def _percent_encoded(words: str) -> bytes:
    """As gRPC wants it: text of ASCII as it is, every other byte of its UTF-8 by its number."""
    raw = words.encode("utf-8", "replace")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw).encode()
