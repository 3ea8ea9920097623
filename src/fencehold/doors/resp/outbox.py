"""The outbox: what is said to one client within one turn of the event loop goes out in one write.

A batch answers hundreds of commands of one connection at once, and a write costs more than the rest of an answer.
"""

import asyncio


class Outbox:
    """The outgoing side of one transport."""

    __slots__ = ("_loop", "_parts", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []

    def send(self, data: bytes) -> None:
        """Have it sent when whoever is speaking now is done."""
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        """Send what there is."""
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def unsent_bytes(self) -> int:
        """What the client has still to take."""
        return sum(map(len, self._parts)) + self._transport.get_write_buffer_size()
