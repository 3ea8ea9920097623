"""A connection: bytes in, commands out; replies in the order of the commands, pushes between them.

1. Every command has one *slot*. Slots are filled in any order and sent in theirs, so a client may pipeline and a
   command may block.
2. Everything has a bound: the bytes of a frame, the seconds half a frame may take, the commands in flight, the
   bytes that wait to be sent. Who goes beyond is told, if that can be, and disconnected; nobody else notices.
3. What the client's end closes suspends the session: it has its grace to come back. What this end closes, or the
   network lost, costs the session nothing but time.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import hiredis

from fencehold.core.outcomes import Notice
from fencehold.doors.resp import replies
from fencehold.doors.resp.arguments import Wrong

if TYPE_CHECKING:
    from fencehold.doors.resp.door import Door
    from fencehold.doors.resp.member import Member
    from fencehold.doors.resp.watching import Watching

Handler = Callable[["Connection", list[bytes], "Slot"], None]

_ABORTS = (ConnectionResetError, BrokenPipeError)


class Slot:
    """The place of one reply among those of its connection."""

    __slots__ = ("_connection", "data")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.data: bytes | None = None

    def fill(self, data: bytes) -> None:
        """Give the reply; it is sent when all before it are."""
        self.data = data
        self._connection.send_ready()

    def reply(self, value: object) -> None:
        self.fill(replies.reply(value, self._connection.version))

    def error(self, code: str, message: str) -> None:
        self.fill(replies.error(code, message))


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, door: "Door") -> None:
        self.door = door
        self.node = door.node
        self.version = 2
        self.name = ""
        self.closed = False
        self.member: Member | None = None
        """The session it speaks for, once it has one."""
        self.is_plain = True
        """It has not opened or resumed a session itself."""
        self.awaiting_session: list[tuple[Slot, Callable[[], None]]] = []
        self.watching: Watching | None = None
        self.partial_since: float | None = None
        self._partial_bytes = 0
        self._reader = hiredis.Reader()
        self._slots: deque[Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._closing_by_us = False
        self._full = False

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are transports in all but their base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=self.door.bounds.unsent_bytes_high)
        self.door.on_opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            self._handle_all(len(data))
        except (hiredis.HiredisError, MemoryError) as error:
            self.end("ERR", f"protocol error: {error}")

    def eof_received(self) -> None:
        """The client's end is closed; the transport closes by itself."""

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.door.on_closed(self)
        if self.member is not None:
            by_client = not self._closing_by_us and (error is None or isinstance(error, _ABORTS))
            self.member.on_disconnected(by_client)

    def pause_writing(self) -> None:
        """The client reads too slowly: it gets no more done until it does."""
        self._full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        if self._transport is not None and not self.closed:
            self._transport.resume_reading()
        if self.watching is not None:
            self.watching.wake()

    # Commands in.

    def _handle_all(self, fed_bytes: int) -> None:
        gets = self._reader.gets
        words = gets()
        if words is False:
            self._partial_bytes += fed_bytes
        else:
            while words is not False and not self._closing_by_us:
                self._handle(words)
                words = gets()
            self._partial_bytes = self._reader.len()
            self.partial_since = None
        if self._partial_bytes or len(self._slots) > self.door.bounds.in_flight_max:
            self._look_at_bounds()

    def _look_at_bounds(self) -> None:
        if self._partial_bytes > self.door.bounds.frame_bytes_max:
            self.end("LIMIT", f"a command has at most {self.door.bounds.frame_bytes_max} bytes")
        elif self._partial_bytes and self.partial_since is None:
            self.partial_since = self.door.now()
        if len(self._slots) > self.door.bounds.in_flight_max and not self._full:
            self.end("LIMIT", f"at most {self.door.bounds.in_flight_max} commands may await their replies")

    def _handle(self, words: object) -> None:
        slot = Slot(self)
        self._slots.append(slot)
        if type(words) is not list or not words or type(words[0]) is not bytes:
            self.end("ERR", "protocol error: a command is an array of bulk strings")
            return
        handler = self.door.handlers.get(words[0].upper())
        if handler is None:
            slot.error("ERR", f"unknown command {words[0][:40].decode(errors='replace')!r}")
            return
        try:
            handler(self, words, slot)
        except Wrong as wrong:
            slot.error(wrong.code, str(wrong))
        except (TypeError, AttributeError):
            # A word that is no bulk string: an integer, a nested array.
            if all(type(word) is bytes for word in words):
                raise
            self.end("ERR", "protocol error: a command is an array of bulk strings")

    # Replies and pushes out.

    def send_ready(self) -> None:
        """Send what has its turn."""
        slots = self._slots
        if self.closed or self._transport is None:
            slots.clear()
            return
        while slots and slots[0].data is not None:
            self._transport.write(slots.popleft().data)  # type: ignore[arg-type]

    def push(self, data: bytes) -> None:
        """Send something that was not asked for, if the client can take it."""
        if self.version == 3 and not self.closed and self._transport is not None:
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > self.door.bounds.unsent_bytes_max:
                self.end("LIMIT", "you read too slowly")

    @property
    def is_full(self) -> bool:
        """Whether more waits to be sent than should."""
        return self._full

    def on_notice(self, notice: Notice, at_ms: int) -> None:
        if self.member is not None:
            self.member.on_notice(notice, at_ms)

    @property
    def peer(self) -> str:
        """The address of the client's end."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""

    def stop_reading(self) -> None:
        """Take no more commands."""
        self._full = True
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    def leave(self) -> None:
        """Close as the client asked for: for its session it is as if the client had closed."""
        if self._transport is not None and not self.closed:
            self._transport.close()

    def end(self, code: str = "", message: str = "") -> None:
        """Close from this end, with a last word if there is one. What was asked for and not answered stays so."""
        if self.closed or self._closing_by_us or self._transport is None:
            return
        self._closing_by_us = True
        if code:
            self._transport.write(replies.error(code, message))
        self._transport.close()
