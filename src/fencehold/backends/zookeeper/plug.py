"""A plug and a bell: what kazoo takes for its socket, and for the pair of sockets by which it is woken.

kazoo turns to the system some ten times for each request. Each time its thread lets go of the interpreter, and
gets it back when the loop has a pause. So:

1. What is sent is gathered, and goes out when no more is to be sent at the moment: many requests at once.
2. What has come is read as a whole, and handed out in the pieces that kazoo wants.
3. A bell is heard by a thread that is awake without the system's help; only one that sleeps has to be woken.
"""

import contextlib
import select
import socket
import ssl
import time
from collections import deque

_CHUNK = 65_536
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Plug:
    """A connection that gathers what is sent, and reads ahead. Used by kazoo's thread alone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._in = memoryview(b"")
        self._out = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    def setblocking(self, flag: bool) -> None:
        self._connection.setblocking(flag)

    def getpeername(self) -> tuple[str, int]:
        host, port, *_ = self._connection.getpeername()
        return host, port

    def close(self) -> None:
        self._connection.close()

    def pending(self) -> int:
        """How much can be had without the system."""
        ahead = self._connection.pending() if isinstance(self._connection, ssl.SSLSocket) else 0
        return len(self._in) + ahead

    def recv(self, size: int) -> bytes:
        if not self._in:
            self._in = memoryview(self._connection.recv(max(size, _CHUNK)))
        piece, self._in = self._in[:size], self._in[size:]
        return bytes(piece)

    def send(self, message: bytes) -> int:
        self._out += message
        if len(self._out) >= _CHUNK:
            self.flush()
        return len(message)

    def flush(self) -> bool:
        """Send what was gathered; says whether all of it went out."""
        while self._out:
            try:
                sent = self._connection.send(self._out)
            except _LATER:
                return False
            del self._out[:sent]
        return True


class Bell:
    """Looks like both ends of a pair of sockets: rung from any thread, heard by kazoo's."""

    def __init__(self) -> None:
        self._rings: deque[None] = deque()
        self._is_asleep = False
        self._hearing, self._ringing = socket.socketpair()
        self._hearing.setblocking(False)
        self._ringing.setblocking(False)

    def fileno(self) -> int:
        return self._hearing.fileno()

    def close(self) -> None:
        self._hearing.close()
        self._ringing.close()

    def send(self, message: bytes) -> int:
        """Ring."""
        # In this order: whoever is about to fall asleep says so first, and looks for rings then.
        self._rings.append(None)
        if self._is_asleep:
            self._is_asleep = False
            # If it cannot take more, it is awake already.
            with contextlib.suppress(BlockingIOError):
                self._ringing.send(b"\0")
        return len(message)

    def recv(self, size: int) -> bytes:
        """Hear one ring."""
        if not self._rings:
            raise BlockingIOError("nobody rang")
        self._rings.pop()
        return b"\0"

    def pending(self) -> int:
        return len(self._rings)

    def fall_asleep(self) -> None:
        self._is_asleep = True

    def wake_up(self) -> None:
        self._is_asleep = False
        with contextlib.suppress(BlockingIOError):
            self._hearing.recv(_CHUNK)


def ready(files: list[Plug | Bell], timeout: float | None) -> list[Plug | Bell]:
    """Which of these can be read now, or within so many seconds; what was gathered to be sent goes out before."""
    plugs = [file for file in files if isinstance(file, Plug)]
    bells = [file for file in files if isinstance(file, Bell)]
    # While somebody rings, there is more to gather.
    if not any(bell.pending() for bell in bells):
        for plug in plugs:
            plug.flush()
    for bell in bells:
        bell.fall_asleep()
    try:
        return [file for file in files if file.pending()] or _polled(files, plugs, timeout)
    finally:
        for bell in bells:
            bell.wake_up()


def _polled(files: list[Plug | Bell], plugs: list[Plug], timeout: float | None) -> list[Plug | Bell]:
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        is_sent = all(map(Plug.flush, plugs))
        poll = select.poll()
        for file in files:
            poll.register(file, select.POLLIN if is_sent or file not in plugs else select.POLLIN | select.POLLOUT)
        left_ms = None if until is None else max(until - time.monotonic(), 0) * 1_000
        found = dict(poll.poll(left_ms))
        readable = [file for file in files if found.get(file.fileno(), 0) & ~select.POLLOUT]
        if readable or not found:
            return readable
