"""The streams of a connection, each one call: what is kept of it, its receiver, and the bounds of all.

Only the conversation of its connection changes a stream; see `conversation` for the law.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

STREAM_BYTES = 1_024
"""The room that a stream takes, itself and its receiver."""


class ConversationBounds(NamedTuple):
    """What one connection may have, and all of them together."""

    message_bytes_max: int = 65_536
    metadata_bytes_max: int = 16_384
    streams_max: int = 1_024
    kept_bytes_max: int = 64 << 20
    """Of all connections: streams, unanswered requests, and answers that no client reads."""
    unsent_bytes_max: int = 65_536
    """Beyond this much unsent in a stream, its handler waits."""
    patience_max: int = 4_096
    """How many frames that carry nothing are accepted in a row…"""
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
    """The handler's side of one call."""

    is_one_request: bool
    """Whether nothing is done before its one request is complete."""

    def on_message(self, data: bytes, is_packed: bool) -> None: ...
    def on_whole(self) -> None:
        """The client will send no more."""

    def on_cancelled(self) -> None:
        """The client has cancelled it, or is gone."""

    def on_room(self) -> None:
        """What was pending has been sent."""


class Stream:
    """One call. Its handler only passes it to the conversation, and changes nothing in it."""

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
        """What arrived of an incomplete message…"""
        self.kept = STREAM_BYTES
        """What else is kept for it: itself, and messages that its receiver has not read."""
        self.wanted = 0
        """…and its whole size, as far as that is known."""
        self.late_since = inf
        """Since when the rest of a request is awaited."""
        self.is_whole = False
        """Whether the client has ended its side."""
        self.is_begun = False
        """Whether an answer has begun."""
        self.to_send = bytearray()
        self.was_full = False
        """More was pending than should be, and is not all sent yet: the handler may wait for that."""
        self.ending = b""
        """The block that it ends with, once nothing is left to send."""
        self.undelivered: Callable[[], None] | None = None
        """Called if the client cancels before the answer arrives."""
