"""A line: one connection whose socket is written and read by the thread whose turn it is. Laws:

1. To the driver it is a transport, and all it does as one is done on the loop's thread.
2. The loop listens on it by an epoll of its own inside the loop's (the *ear*). A caller that reads by itself
   disables it, so that the reply does not wake up the loop. A disconnect is still reported.
3. The socket blocks callers that read, for at most `PATIENCE_S`, most of them after they have spun a little
   (`spin`); the loop's thread never reads or writes so.
4. TLS is applied in memory, by the thread whose turn it is.
"""

import asyncio
import select
import socket
import ssl
import struct
from typing import Any

from hiredis import Reader

from fencehold.client.direct.spin import NOW, spinning
from fencehold.client.direct.turns import PATIENCE_S, Turns
from fencehold.client.driver import Connection
from fencehold.client.protocol.session import NOTHING
from fencehold.drivers.address import Endpoint

AT_ONCE_BYTES = 65_536
IS_KNOWN_HERE = hasattr(select, "epoll") and NOW != 0
"""Whether this system has what is needed."""


class Tls:
    """One end of TLS, in memory."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._end = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    async def shake_hands(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        """Raises OSError, which ssl.SSLError is, if it fails."""
        is_done = False
        while not is_done:
            try:
                self._end.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                pass
            finally:
                # An alert, too.
                if words := self._outgoing.read():
                    await loop.sock_sendall(sock, words)
            if not is_done:
                data = await loop.sock_recv(sock, AT_ONCE_BYTES)
                if not data:
                    raise ConnectionResetError
                self._incoming.write(data)

    def encrypt(self, data: bytes) -> bytes:
        """The bytes to send for this."""
        self._end.write(data)
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> tuple[bytes, bool]:
        """The plain bytes, and whether they were the last."""
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            while part := self._end.read(AT_ONCE_BYTES):
                parts.append(part)
            return b"".join(parts), True
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        except ssl.SSLZeroReturnError:
            return b"".join(parts), True

    def pending(self) -> bytes:
        """Bytes that TLS itself has to send."""
        return self._outgoing.read()


async def dial(
    loop: asyncio.AbstractEventLoop, endpoint: Endpoint, context: ssl.SSLContext | None
) -> tuple[socket.socket, Tls | None]:
    """Connect to one address of a node after the other, as `create_connection` does, and with its errors."""
    try:
        # For a numeric address: no thread is needed to look it up.
        numeric = socket.AI_NUMERICHOST
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=numeric)
    except (OSError, UnicodeError):
        found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    errors: list[OSError] = []
    for family, kind, number, _, address in found:
        sock = socket.socket(family, kind, number)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            break
        except OSError as error:
            errors.append(error)
            sock.close()
        except BaseException:
            sock.close()
            raise
    else:
        words = list(dict.fromkeys(map(str, errors))) or ["getaddrinfo() returned empty list"]
        raise errors[0] if len(words) == 1 and errors else OSError(f"Multiple exceptions: {', '.join(words)}")
    if context is None:
        return sock, None
    try:
        tls = Tls(context, endpoint.host)
        await tls.shake_hands(loop, sock)
    except BaseException:
        sock.close()
        raise
    return sock, tls


class Line:
    """A connected socket."""

    def __init__(
        self,
        sock: socket.socket,
        tls: Tls | None,
        turns: Turns,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
    ) -> None:
        self.socket = sock
        self.tls = tls
        self.send, self.receive = sock.send, spinning(sock.recv)
        self.renew_reader()
        self.is_heard = True
        self._turns, self._loop, self._connection = turns, loop, connection
        self._backlog = b""
        self._is_closed = False
        self._number = sock.fileno()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds, fraction = divmod(PATIENCE_S, 1)
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(seconds), int(fraction * 1e6))
        )
        sock.setblocking(True)
        self._ear = select.epoll()
        self._ear.register(self._number, select.EPOLLIN)

    def begin(self) -> None:
        """Listen from now on."""
        self._loop.add_reader(self._ear.fileno(), self._on_readable)
        if self.tls is not None:
            # What came with the end of the handshake is in memory already.
            self._loop.call_soon(self._hear, b"")

    # In any turn.

    def renew_reader(self) -> None:
        """Discard an incomplete reply."""
        self.reader = Reader(notEnoughData=NOTHING)
        """For what callers read."""

    def deafen(self) -> None:
        """A caller reads by itself: the loop does not listen."""
        self.is_heard = False
        self._ear.modify(self._number, 0)

    def listen(self) -> None:
        """No caller reads: the loop listens."""
        if not self._is_closed:
            self._ear.modify(self._number, select.EPOLLIN)
            self.is_heard = True

    # On the loop's thread, as of a transport.

    def write(self, data: bytes) -> None:
        """Send, now or as soon as possible."""
        if not self._is_closed:
            self.write_raw(data if self.tls is None else self.tls.encrypt(data))

    def write_raw(self, data: bytes) -> None:
        """The same for what needs no TLS, or has been through it."""
        had, self._backlog = self._backlog, self._backlog + data
        if not had:
            self._flush()
            if self._backlog and not self._is_closed:
                self._loop.add_writer(self._number, self._flush)

    def abort(self) -> None:
        """Close it now, without waiting for what was not written."""
        self._lose(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As of a transport."""
        if self._is_closed:
            return default
        if name == "socket":
            return self.socket
        try:
            return {"sockname": self.socket.getsockname, "peername": self.socket.getpeername}[name]()
        except (KeyError, OSError):
            return default

    def _flush(self) -> None:
        try:
            sent = self.send(self._backlog, NOW)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        self._backlog = self._backlog[sent:]
        if not self._backlog:
            self._loop.remove_writer(self._number)

    def _on_readable(self) -> None:
        with self._turns:
            if self._is_closed:
                return
            try:
                data = self.socket.recv(AT_ONCE_BYTES, NOW)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(error)
                return
            if data:
                self._hear(data)
            else:
                self._lose(None)

    def _hear(self, data: bytes) -> None:
        with self._turns:
            is_last = False
            if self.tls is not None:
                if self._is_closed:
                    return
                try:
                    data, is_last = self.tls.decrypt(data)
                except ssl.SSLError as error:
                    self._lose(error)
                    return
                if words := self.tls.pending():
                    self.write_raw(words)
            if data:
                self._connection.data_received(data)
            if is_last:
                self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._ear.fileno())
        self._loop.remove_writer(self._number)
        self._ear.close()
        self.socket.close()
        self._loop.call_soon(self._connection.connection_lost, error)
