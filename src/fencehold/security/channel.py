"""A TLS channel between a transport of bytes and a protocol of ours: a handshake, and then records.

1. A handshake that fails says why: the TLS alert is sent, and what the client has sent already is read, or the
   connection would be reset and the alert lost.
2. What one read of the socket brought is decrypted in one go, and handed over as one piece. OpenSSL is asked for
   more only if there is more: asking in vain costs an exception, twice what a record does.
3. What is written in one call goes out as one record (above 16 KiB, as several), in one write: to the socket
   itself, while that accepts everything, as in `doors/resp/outbox.py`.
4. Nothing is buffered here: what is decrypted is handed over, and what is encrypted is the transport's, with its
   bounds.
5. All connections of a listener share one pair of buffers to OpenSSL and from it (`Buffers`). With hundreds of
   connections most of the cost of a message is cache misses, and these buffers are used for each.
6. Either side announces its end by an alert. A client that closes without one has closed all the same: commands
   carry their length, so nothing truncated is taken for complete.

Event loops have such a layer of their own. What either costs is in decision 26.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable
from typing import Any, cast

HANDSHAKE_BYTE = 0x16
"""The first byte that a client sends over TLS."""

Factory = Callable[[], asyncio.Protocol]


class Buffers:
    """What goes into OpenSSL, and what comes out of it: both are empty whenever a call here returns.

    OpenSSL takes all that is there, and keeps half a record by itself. So what one connection leaves behind, which
    happens when it fails, is discarded before the next one's turn.
    """

    __slots__ = ("incoming", "outgoing")

    def __init__(self) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()

    def clear(self) -> None:
        if self.incoming.pending:
            self.incoming.read()
        if self.outgoing.pending:
            self.outgoing.read()


class Output:
    """What is sent, in order: by the socket itself while it takes all, and from then on by the transport."""

    __slots__ = ("_socket", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        socket = transport.get_extra_info("socket")
        self._socket = -1 if socket is None else socket.fileno()

    def send(self, data: bytes) -> None:
        """Send it, unless the connection is being closed."""
        # Checked right before writing: once closed, the number may be another connection's socket.
        if self._transport.is_closing():
            return
        if self._socket >= 0:
            try:
                sent = os.write(self._socket, data)
            except OSError:
                # It is full, or broken: the transport finds out which.
                sent = 0
            if sent == len(data):
                return
            self._socket, data = -1, data[sent:]
        self._transport.write(data)


class NotTls(Exception):
    """The client speaks another protocol."""


class TlsHandshake(asyncio.Protocol):
    """The protocol of a connection until its handshake is over; then a `TlsChannel` is.

    `over` is done when that is so. Its exception is `NotTls`, an `ssl.SSLError` whose alert was sent, or a
    `ConnectionError` if the client closed the connection. The caller says how long it may take, and then aborts.
    """

    def __init__(self, context: Callable[[], ssl.SSLContext], factory: Factory, buffers: Buffers) -> None:
        self._context = context
        """Called when the handshake begins."""
        self._factory = factory
        self._buffers = buffers
        self._ssl: ssl.SSLObject | None = None
        self._transport: asyncio.Transport | None = None
        self._output: Output | None = None
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when a connection that did not get any further is gone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are transports in all but their base class.
        self._transport = cast(asyncio.Transport, transport)
        self._output = Output(self._transport)

    def data_received(self, data: bytes) -> None:
        if self.over.done():
            return
        buffers = self._buffers
        if self._ssl is None:
            if data[0] != HANDSHAKE_BYTE:
                self.over.set_exception(NotTls())
                return
            self._ssl = self._context().wrap_bio(buffers.incoming, buffers.outgoing, server_side=True)
        buffers.incoming.write(data)
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._flush()
            buffers.clear()
            self.over.set_exception(error)
        else:
            self._flush()
            self._hand_over(self._ssl)

    def eof_received(self) -> None:
        """The transport closes by itself."""

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)
        if not self.over.done():
            self.over.set_exception(error or ConnectionResetError("closed during the handshake"))

    def say(self, words: bytes) -> None:
        """Send something to a client that does not speak TLS, and end."""
        if self._transport is not None and self._output is not None and not self._transport.is_closing():
            self._output.send(words)
            self._transport.write_eof()

    def abort(self) -> None:
        """Close the connection, if it is still this one's."""
        self.over.cancel()
        if self._transport is not None and not self.closed.done():
            self._transport.abort()

    def _flush(self) -> None:
        outgoing = self._buffers.outgoing
        if outgoing.pending and self._output is not None:
            self._output.send(outgoing.read())

    def _hand_over(self, spoken: ssl.SSLObject) -> None:
        transport, self._transport = self._transport, None
        if transport is None or self._output is None:
            self._buffers.clear()
            return
        channel = TlsChannel(transport, self._output, spoken, self._buffers)
        # What came with the end of the handshake; taken now, as the buffers are shared.
        first = channel.decrypted(b"")
        app = channel.app = self._factory()
        transport.set_protocol(channel)
        self.over.set_result(None)
        app.connection_made(channel)
        channel.hand_on(first)


class TlsChannel(asyncio.Transport, asyncio.Protocol):
    """A connection that has shaken hands: a protocol for the transport below it, a transport for the one above."""

    # Few and close together, and no method is kept: see law 5.
    __slots__ = (
        "_error",
        "_has_said_end",
        "_incoming",
        "_is_closing",
        "_is_ended",
        "_outgoing",
        "_output",
        "_records",
        "_ssl",
        "_transport",
        "app",
    )

    app: asyncio.Protocol

    def __init__(
        self, transport: asyncio.Transport, output: Output, spoken: ssl.SSLObject, buffers: Buffers
    ) -> None:
        super().__init__()
        self._transport = transport
        self._output = output
        self._ssl = spoken
        self._records = spoken._sslobj  # type: ignore[attr-defined]
        """OpenSSL's own, without a call in Python between."""
        self._incoming, self._outgoing = buffers.incoming, buffers.outgoing
        self._is_ended = False
        """The client has announced its end."""
        self._is_closing = False
        self._has_said_end = False
        self._error: Exception | None = None

    # The transport's side.

    def data_received(self, data: bytes) -> None:
        incoming, length = self._incoming, len(data)
        incoming.write(data)
        try:
            # A record is shorter when decrypted: a piece as long as the input is not all of it.
            plain = self._records.read(length)
        except ssl.SSLError as error:
            plain = self._without(error)
        if incoming.pending or self._outgoing.pending or not 0 < len(plain) < length:
            self.hand_on(self.decrypted(plain))
        else:
            self.app.data_received(plain)

    def decrypted(self, plain: bytes) -> bytes:
        """All that can be decrypted of the input, after a first piece. TLS's own messages are sent."""
        pieces = [plain]
        try:
            while not self._is_ended and (piece := self._records.read(_RECORD_BYTES_MAX)):
                pieces.append(piece)
            self._is_ended = True
        except ssl.SSLError as error:
            self._without(error)
        if self._outgoing.pending:
            # New keys, for one, or why nothing more can be understood.
            answer = self._outgoing.read()
            if not self._has_said_end:
                self._output.send(answer)
        if self._incoming.pending:
            # After an end or a failure, and never else: what follows could not be decrypted.
            self._incoming.read()
            if not self._is_ended:
                self._error = ConnectionError("TLS failed: part of the input was left over")
        return b"".join(pieces)

    def hand_on(self, plain: bytes) -> None:
        """Pass on what was decrypted, and the end if that was the last of it."""
        if plain:
            self.app.data_received(plain)
        if self._error is not None:
            self._is_closing = self._has_said_end = True
            self._transport.close()
        elif self._is_ended:
            self._end()

    def _without(self, error: ssl.SSLError) -> bytes:
        """Nothing was decrypted: only half a record arrived; or something that the client did not send."""
        if not isinstance(error, ssl.SSLWantReadError):
            self._error = ConnectionError(f"TLS failed: {error.reason or error}")
            self._is_ended = True
        return b""

    def eof_received(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self.app.connection_lost(error or self._error)

    def pause_writing(self) -> None:
        self.app.pause_writing()

    def resume_writing(self) -> None:
        self.app.resume_writing()

    def _end(self) -> None:
        """The client's end is closed: so is this one. TLS has no connection that is open one way for long."""
        self.app.eof_received()
        self.close()

    # The protocol's side.

    def write(self, data: Any) -> None:
        """Send it, as a record."""
        if self._has_said_end or not data:
            return
        try:
            written = self._records.write(data)
            while written < len(data):
                written += self._records.write(data[written:])
        finally:
            # In any case: the next write is for another connection.
            encrypted = self._outgoing.read()
        self._output.send(encrypted)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Announce the end; what the client still sends is read."""
        self._say_end()
        self._transport.write_eof()

    def close(self) -> None:
        """Close when all is sent, with the closing alert."""
        if not self._is_closing:
            self._is_closing = True
            self._say_end()
            self._transport.close()

    def _say_end(self) -> None:
        if self._has_said_end:
            return
        self._has_said_end = True
        # It would wait for the client's own alert, and raises on anything else it sends.
        with contextlib.suppress(ssl.SSLError):
            self._ssl.unwrap()
        if self._outgoing.pending:
            self._output.send(self._outgoing.read())

    def abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.app

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What TLS knows (`ssl_object`, `sslcontext`), or the transport."""
        if name == "ssl_object":
            return self._ssl
        return self._ssl.context if name == "sslcontext" else self._transport.get_extra_info(name, default)


_RECORD_BYTES_MAX = 16 << 10
"""What a record can hold: OpenSSL never returns more at a time."""
