"""The streams of a connection, each one call: what is kept of it, who serves it, and the bounds of all.

Only the conversation of its connection changes a stream; see `conversation` for the law.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

STREAM_BYTES = 1_024
"""What a stream takes, by itself and with who serves it, of the room that there is."""


class ConversationBounds(NamedTuple):
    """What one connection may have, and all of them together."""

    message_bytes_max: int = 65_536
    metadata_bytes_max: int = 16_384
    streams_max: int = 1_024
    kept_bytes_max: int = 64 << 20
    """Of all connections: streams, requests that are not answered, and answers that nobody takes."""
    unsent_bytes_max: int = 65_536
    """Beyond this much in a stream, who sends waits."""
    patience_max: int = 4_096
    """How many frames that ask for nothing are taken in a row…"""
    patience_per_s: int = 200
    """…and how fast that grows again."""


class Shelf:
    """What all connections of a listener keep together, in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.kept = 0

    @property
    def left(self) -> int:
        return self._bytes_max - self.kept


class Receiver(Protocol):
    """Who serves one call."""

    is_one_request: bool
    """Whether nothing is done before its one request is whole."""

    def on_message(self, data: bytes, is_packed: bool) -> None: ...
    def on_whole(self) -> None:
        """The client will send no more."""

    def on_cancelled(self) -> None:
        """The client has cancelled it, or is gone."""

    def on_room(self) -> None:
        """What was to be sent has gone."""


class Stream:
    """One call. Who serves it hands it back to the conversation, and touches nothing in it."""

    __slots__ = (
        "credit",
        "ending",
        "heard",
        "is_begun",
        "is_whole",
        "kept",
        "late_since",
        "number",
        "read",
        "receiver",
        "room",
        "to_send",
        "undelivered",
        "wanted",
        "was_full",
    )

    def __init__(self, number: int, credit: int, room: int) -> None:
        self.number = number
        self.receiver: Receiver | None = None
        self.credit = credit
        """How much the client has room for."""
        self.room = room
        """How much it may still send."""
        self.read = 0
        """How much was read since the window last grew."""
        self.heard = bytearray()
        """What came of a message that is not whole yet…"""
        self.kept = STREAM_BYTES
        """What is kept for it beside: itself, and messages that its receiver has, and has not read."""
        self.wanted = 0
        """…and how much there is when it is, as far as that is known."""
        self.late_since = inf
        """Since when the rest of a request is waited for."""
        self.is_whole = False
        """Whether the client has ended its side."""
        self.is_begun = False
        """Whether an answer has begun."""
        self.to_send = bytearray()
        self.was_full = False
        """More waited to be sent than should, and has not all gone yet: who sends may wait for that."""
        self.ending = b""
        """The block that it ends with, once nothing is left to send."""
        self.undelivered: Callable[[], None] | None = None
        """Called if the client cancels before the answer arrives."""
