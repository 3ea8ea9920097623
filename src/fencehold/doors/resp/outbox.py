"""The outbox: what is said to one client within one turn of the event loop goes out in one write.

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

    __slots__ = ("outboxes",)

    def __init__(self) -> None:
        self.outboxes: list[Outbox] = []

    def begin(self) -> None:
        """Have the turn end: what is in the list by then is sent."""
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        outboxes, self.outboxes = self.outboxes, []
        for outbox in outboxes:
            outbox.flush()


class Outbox:
    """The outgoing side of one transport."""

    __slots__ = ("_bytes", "_parts", "_transport", "_turn")

    def __init__(self, transport: asyncio.Transport, turn: Turn) -> None:
        self._transport = transport
        self._turn = turn
        self._parts: list[bytes] = []
        self._bytes = 0

    def send(self, data: bytes) -> None:
        """Have it sent at the end of the present turn."""
        if not self._parts:
            outboxes = self._turn.outboxes
            if not outboxes:
                self._turn.begin()
            outboxes.append(self)
        self._parts.append(data)
        self._bytes += len(data)
        if self._bytes > _AT_ONCE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what there is."""
        parts, self._parts, self._bytes = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def unsent_bytes(self) -> int:
        """What the client has still to take."""
        return self._bytes + self._transport.get_write_buffer_size()
