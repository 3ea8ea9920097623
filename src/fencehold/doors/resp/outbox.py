"""The outbox: what is sent to one client within one turn of the event loop goes out in one write.

The replies of an entry are sent as soon as all of them are made, in the same turn: waiting for the next turn would
cost a poll of all sockets first, and delay every client that waits for a reply by as much.

A batch answers hundreds of commands of one connection at once, and a write costs more than the rest of an answer.
Large output goes out at once all the same, so that the transport can signal that it has become too much.
"""

import asyncio

_AT_ONCE_BYTES = 64 << 10


class Turn:
    """One turn of the event loop: the outboxes that have something to send at its end.

    One call-back for all of them: with hundreds of clients answered by one batch, one each would cost as much as
    the making of the answers.
    """

    __slots__ = ("_is_planned", "is_held", "outboxes")

    def __init__(self) -> None:
        self.outboxes: list[Outbox] = []
        self.is_held = self._is_planned = False
        """`end` will be called; or it was scheduled."""

    def begin(self) -> None:
        """Schedule the end of the turn: what is in the list by then is sent."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._end_planned)

    def hold(self) -> None:
        """Much is about to be sent: `end` will be called after all of it."""
        self.is_held = True

    def end(self) -> None:
        """Send what there is now."""
        self.is_held = False
        if self.outboxes:
            self._end()

    def _end_planned(self) -> None:
        self._is_planned = False
        self._end()

    def _end(self) -> None:
        outboxes, self.outboxes = self.outboxes, []
        for outbox in outboxes:
            outbox.flush()


class Outbox:
    """The outgoing side of one transport."""

    __slots__ = ("_first", "_more", "_more_bytes", "_transport", "_turn")

    def __init__(self, transport: asyncio.Transport, turn: Turn) -> None:
        self._transport = transport
        self._turn = turn
        self._first = b""
        """Mostly there is one reply in a turn: it needs no list, and is not counted."""
        self._more: list[bytes] = []
        self._more_bytes = 0

    def send(self, data: bytes) -> None:
        """Have it sent at the end of the present turn."""
        if not self._first:
            turn = self._turn
            if not (turn.is_held or turn.outboxes):
                turn.begin()
            turn.outboxes.append(self)
            self._first = data
            return
        self._more.append(data)
        self._more_bytes += len(data)
        if self._more_bytes > _AT_ONCE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what there is."""
        data, self._first = self._first, b""
        if self._more:
            data = b"".join((data, *self._more))
            self._more, self._more_bytes = [], 0
        if data and not self._transport.is_closing():
            try:
                self._transport.write(data)
            except (OSError, RuntimeError):
                # A connection that cannot be written to must not affect the others of this turn.
                self._transport.abort()

    def unsent_bytes(self) -> int:
        """What the client has still to take."""
        return len(self._first) + self._more_bytes + self._transport.get_write_buffer_size()
