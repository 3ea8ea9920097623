"""kazoo's handler for an event loop: what kazoo's thread learns is told on the loop, and sockets are made our way.

kazoo asks its handler for threads, sockets, `select` and two queues: one for answers, one for watches. `select` is
left to whoever uses this, who knows what kazoo is to take for a socket. The rules:

1. The one thread is kazoo's connection. Answers and watches go from it to the loop at once, in the order in which
   they came: no thread of a queue stands between, and nothing of ours runs on kazoo's thread.
2. A server that does not answer a connect is given up after a second, so that the others are asked in time.
3. `cut` ends the connection from any thread, whatever it waits for. kazoo then makes another one, to another
   server; after `hang_up` it makes none, so that a client whose session is over never begins another session.
4. The end of the thread is told on the loop, whatever ended it.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_CONNECT_S = 1.0


class Posts:
    """Looks like a queue to kazoo: what is put there is called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """From any thread."""
        # A loop that is closed has nobody left to tell.
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
            # Whoever hung up meanwhile may have met the socket before it could be cut.
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
