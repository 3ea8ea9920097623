"""A handler that makes system calls, and wakes the loop, as seldom as it can.

kazoo makes some ten system calls for each request. Each time its thread releases the interpreter, and gets it back
when the loop has a pause. So:

1. What is sent is gathered, and goes out when no more is to be sent at the moment: many requests at once.
2. What has come is read as a whole, and handed out in the pieces that kazoo wants.
3. The pair of sockets by which kazoo is woken is a `Wakeup`: a thread that is awake sees it without a system call;
   only one that sleeps has to be woken.
4. What kazoo's thread has to deliver by the time the loop wakes is delivered at one wake-up, still in order.
"""

import asyncio
import contextlib
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fencehold.drivers.zookeeper.handler import LoopHandler, Posts

_CHUNK = 65_536
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BufferedSocket:
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
        """How much can be read without the system."""
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
        """Send what was gathered; returns whether all of it went out."""
        while self._out:
            try:
                sent = self._connection.send(self._out)
            except _LATER:
                return False
            del self._out[:sent]
        return True


class Wakeup:
    """Looks like both ends of a pair of sockets: rung from any thread, heard by kazoo's."""

    def __init__(self) -> None:
        self._rings: deque[None] = deque()
        self._is_asleep = False
        self._near_end, self._far_end = socket.socketpair()
        self._near_end.setblocking(False)
        self._far_end.setblocking(False)

    def fileno(self) -> int:
        return self._near_end.fileno()

    def close(self) -> None:
        self._near_end.close()
        self._far_end.close()

    def send(self, message: bytes) -> int:
        """Ring."""
        # In this order: a thread that is about to fall asleep says so first, and looks for rings then.
        self._rings.append(None)
        if self._is_asleep:
            self._is_asleep = False
            # If it cannot take more, it is awake already.
            with contextlib.suppress(BlockingIOError):
                self._far_end.send(b"\0")
        return len(message)

    def recv(self, size: int) -> bytes:
        """Hear one ring."""
        if not self._rings:
            raise BlockingIOError("no ring is pending")
        self._rings.pop()
        return b"\0"

    def pending(self) -> int:
        return len(self._rings)

    def fall_asleep(self) -> None:
        self._is_asleep = True

    def wake_up(self) -> None:
        self._is_asleep = False
        with contextlib.suppress(BlockingIOError):
            self._near_end.recv(_CHUNK)


def ready(files: list[BufferedSocket | Wakeup], timeout: float | None) -> list[BufferedSocket | Wakeup]:
    """Which of these can be read now, or within so many seconds; what was gathered to be sent goes out before."""
    sockets = [file for file in files if isinstance(file, BufferedSocket)]
    wakeups = [file for file in files if isinstance(file, Wakeup)]
    # While rings are pending, there is more to gather.
    if not any(wakeup.pending() for wakeup in wakeups):
        for connection in sockets:
            connection.flush()
    for wakeup in wakeups:
        wakeup.fall_asleep()
    try:
        return [file for file in files if file.pending()] or _polled(files, sockets, timeout)
    finally:
        for wakeup in wakeups:
            wakeup.wake_up()


def _polled(
    files: list[BufferedSocket | Wakeup], sockets: list[BufferedSocket], timeout: float | None
) -> list[BufferedSocket | Wakeup]:
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        is_sent = all(map(BufferedSocket.flush, sockets))
        poll = select.poll()
        for file in files:
            poll.register(
                file, select.POLLIN if is_sent or file not in sockets else select.POLLIN | select.POLLOUT
            )
        left_ms = None if until is None else max(until - time.monotonic(), 0) * 1_000
        found = dict(poll.poll(left_ms))
        readable = [file for file in files if found.get(file.fileno(), 0) & ~select.POLLOUT]
        if readable or not found:
            return readable


class GatheredPosts(Posts):
    """What is put there is called on the loop, in order, many at one waking."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._calls: deque[Callable[[], object]] = deque()
        self._is_woken = False

    def put(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            super().put(self._deliver)

    def _deliver(self) -> None:
        # First, so that what is put from now on wakes the loop again.
        self._is_woken = False
        while self._calls:
            self._calls.popleft()()


class BufferedHandler(LoopHandler):
    """Serves one client, on the event loop it was made on."""

    def __init__(self, name: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(name, tls, GatheredPosts)

    def create_connection(self, *args: Any, **kwargs: Any) -> BufferedSocket:
        return BufferedSocket(super().create_connection(*args, **kwargs))

    def create_socket_pair(self) -> tuple[Wakeup, Wakeup]:
        wakeup = Wakeup()
        return wakeup, wakeup

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `select.select`. A connection takes whatever is to be sent."""
        return ready(list(readers), timeout) if readers else [], list(writers), []
