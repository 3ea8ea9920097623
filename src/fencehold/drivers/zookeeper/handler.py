"""kazoo's handlers for an event loop: what kazoo's thread learns is delivered on the loop, and sockets are made
our way.

kazoo asks its handler for threads, sockets, `select` and two queues: one for answers, one for watches. The rules:

1. The one thread is kazoo's connection. Answers and watches go from it to the loop at once, in the order in which
   they came: no thread of a queue is in between, and nothing of ours runs on kazoo's thread.
2. A connect that is not answered is aborted after a second, so that the others are asked in time.
3. `cut` ends the connection from any thread, whatever it waits for. kazoo then makes another one, to another
   server; after `hang_up` it makes none, so that a client whose session is over never begins another session.
4. The end of the thread is reported on the loop, whatever ended it.

`LoopHandler` leaves `select` to its subclasses: `PollHandler` here has plain sockets, and a `select` that costs
little; `BufferedHandler` (see `buffered`) makes as few system calls as it can.
"""

import asyncio
import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_CONNECT_S = 1.0


class Posts:
    """Looks like a queue to kazoo: what is put there is called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """From any thread."""
        # A loop that is closed has no caller left to notify.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Serves one client, on the event loop it was made on."""

    def __init__(self, name: str, tls: ssl.SSLContext | None, posts: type[Posts] = Posts) -> None:
        super().__init__()
        self.posts = posts(asyncio.get_running_loop())
        self.completion_queue = self.callback_queue = self.posts
        self.on_end: Callable[[], None] = lambda: None
        self._name = name
        self._tls = tls
        self._socket: socket.socket | None = None
        self._hung_up = False

    @property
    def running(self) -> bool:
        # Were it ever not, kazoo would call back on whatever thread it is on.
        return True

    def start(self) -> None:
        """There is no queue with a thread of its own to start."""

    def stop(self) -> None:
        """Nor one to stop."""

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            # What ended it kazoo has written to its log, and that it ended is all that matters here.
            with contextlib.suppress(Exception):
                func(*args, **kwargs)
            self.posts.put(self.on_end)

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        thread.start()
        return thread

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float = _CONNECT_S, **_: object
    ) -> Any:
        """A socket, or what kazoo is to take for one."""
        connection = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self._socket = connection
        try:
            connection.settimeout(min(timeout, _CONNECT_S))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect(address)
            if self._tls is not None:
                self._socket = connection = self._tls.wrap_socket(connection, server_hostname=hostname)
            # A thread that hung up meanwhile may have met the socket before it could be cut.
            if self._hung_up:
                raise ConnectionAbortedError("hung up")
        except BaseException:
            connection.close()
            raise
        return connection

    def hang_up(self) -> None:
        """For good."""
        self._hung_up = True
        self.cut()

    def cut(self) -> None:
        """End the connection there is."""
        if self._socket is not None:
            # It may be closed already, or not be connected yet.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class PollHandler(LoopHandler):
    """Serves one client, on the event loop it was made on."""

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `select.select`, for any number of files; kazoo's own makes and closes an epoll each time."""
        # What TLS has read ahead is in no socket any more, and no poll would report it.
        ahead = {reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()}
        poll = select.poll()
        for file in {*readers, *writers}:
            poll.register(file, select.POLLIN * (file in readers) | select.POLLOUT * (file in writers))
        wait_ms = 0 if ahead else None if timeout is None else timeout * 1_000
        found = dict(poll.poll(wait_ms))
        can_read = [file for file in readers if file in ahead or found.get(file.fileno(), 0) & ~select.POLLOUT]
        can_write = [file for file in writers if found.get(file.fileno(), 0) & ~select.POLLIN]
        return can_read, can_write, []
