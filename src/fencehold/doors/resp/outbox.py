"""The outbox: what is said to one client within one turn of the event loop goes out in one write.

What an entry says is sent as soon as all of it is said, in the same turn: to wait for the next one would cost a
look at all sockets first, and those who wait for a reply as long as that takes.

A batch answers hundreds of commands of one connection at once, and a write costs more than the rest of an answer.
What is much goes out at once all the same, so that the transport can say that it has become too much.
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
        """`end` will be called; or it was planned."""

    def begin(self) -> None:
        """Have the turn end: what is in the list by then is sent."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._end_planned)

    def hold(self) -> None:
        """Much is about to be said: `end` will be called when all of it is."""
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
        """Mostly there is one thing to say in a turn: it needs no list, and is not counted."""
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
                # One connection that cannot be written to is its own loss, not that of all who are told with it.
                self._transport.abort()

    def unsent_bytes(self) -> int:
        """What the client has still to take."""
        return len(self._first) + self._more_bytes + self._transport.get_write_buffer_size()
