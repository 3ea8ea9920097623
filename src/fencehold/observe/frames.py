"""Frames: what a node tells its observer, and what the observer answers, over a socket between the two processes.

A frame is four bytes of length and a MessagePack array. What a node says comes in order, so an answer has seen all
that was said before its question.
"""

from typing import TypeAlias

import msgspec
from msgspec import Struct

from fencehold.core.commands import Entry
from fencehold.core.outcomes import Applied

FRAME_BYTES_MAX = 1 << 30
LENGTH_BYTES = 4


class Journaled(Struct, frozen=True, gc=False, array_like=True):
    """A durable entry and what it did."""

    entry: Entry
    applied: Applied


class Entries(Struct, frozen=True, array_like=True, tag="entries"):
    """Durable entries, in order, but for those in which nothing happened."""

    tier: str
    after: int
    """The last position that was seen before these."""
    up_to: int
    """The last position that they cover."""
    leads: bool
    """Whether the node led when they became durable."""
    things: list[Journaled]
    append_s: list[float]
    """How long the appends took, where it led."""
    shard: int = 0
    dated: tuple[int, int] | None = None
    """The logical time of the first of them, and the time of day when it was durable; None: it is not needed."""


class Began(Struct, frozen=True, array_like=True, tag="began"):
    """The journal was opened, and is followed from here on."""

    end: int
    """The last position in it."""
    snapshot_at: int = 0
    snapshot: bytes = b""
    """What its entries begin with, if the observer has not come as far; empty otherwise."""
    shard: int = 0


class Asked(Struct, frozen=True, array_like=True, tag="asked"):
    """A question about the past of a name."""

    number: int
    name: str
    since_ms: int | None
    until_ms: int | None
    count: int
    held: list[int] | None
    """The fences that hold the name now; None: that is not known."""
    shard: int = 0
    """Where the name is at home."""


class Measured(Struct, frozen=True, array_like=True, tag="measured"):
    """What has been counted so far is wanted."""

    number: int


Said: TypeAlias = Entries | Began | Asked | Measured


class Answered(Struct, frozen=True, array_like=True, tag="answered"):
    """The answer to a question, as JSON."""

    number: int
    data: bytes
    error: str = ""
    """Why there is none."""


class Noted(Struct, frozen=True, array_like=True, tag="noted"):
    """Something worth a line in the node's log."""

    level: int
    event: str
    facts: dict[str, str | int | float | None]


Told: TypeAlias = Answered | Noted

_ENCODER = msgspec.msgpack.Encoder()
read_said = msgspec.msgpack.Decoder(Said).decode
read_told = msgspec.msgpack.Decoder(Told).decode


def framed(message: Said | Told) -> bytes:
    """A message as it is sent."""
    data = _ENCODER.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


class Unframer:
    """Takes frames out of bytes as they come."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, without their lengths."""
        self._data += data
        found, start, size = [], 0, len(self._data)
        while size - start >= LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(self._data[start : start + LENGTH_BYTES], "big")
            if end > size:
                break
            found.append(bytes(self._data[start + LENGTH_BYTES : end]))
            start = end
        del self._data[:start]
        return found
