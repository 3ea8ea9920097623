"""How an ask looks as a value in etcd: one line of JSON for whoever looks, and for nothing else.

The instants are by the asker's time of day, so they are told as well as two such clocks agree. Nothing is decided
by them.
"""

import time
from typing import NamedTuple

import msgspec


class Record(NamedTuple):
    """What is shown of an ask."""

    stamp: str
    """Whose it is, as `seen.stamp` says it."""
    since: float
    """When it was asked for, or granted if it had to wait."""
    ends: float | None = None
    """When it ends by itself."""


_NOBODY = Record("", 0.0)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[str, float, float | None])


def encode(stamp: str, ttl: float | None) -> bytes:
    """The value of an ask as of now."""
    now = time.time()
    return _encoder.encode((stamp, now, None if ttl is None else now + ttl))


def decode(value: bytes) -> Record:
    """What a value says; nobody's, if it is none of ours."""
    try:
        return Record(*_decoder.decode(value))
    except msgspec.DecodeError:
        return _NOBODY
