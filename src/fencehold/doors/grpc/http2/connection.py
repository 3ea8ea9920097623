"""A connection: a conversation with a socket and a clock.

1. Output is written once per turn of the loop, however many calls were answered in it.
2. A client that does not read is not read from either, until it does, and nothing more is written to it.
3. A silent client is pinged, and disconnected if it does not respond; so is one that has not sent its preface, or
   not finished a request it began, in time.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from fencehold.doors.grpc.http2.conversation import Conversation
from fencehold.doors.grpc.http2.heads import Head
from fencehold.doors.grpc.http2.streams import ConversationBounds, Receiver, Shelf, Stream
from fencehold.drivers.http2.frames import Broken
from fencehold.gateway.listener import CLIENT_HELLO, SPEAKS_TLS_HERE, tell_refused

_FAREWELL_S = 1.0
"""How long a client that broke the rules has to read why it is disconnected."""
_PLAIN_REPLY = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
    b"This port speaks gRPC, which is HTTP/2. For HTTP/1.1 there is a listener of its own (7422).\n"
)
_HTTP_1 = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI")


class ConnectionBounds(NamedTuple):
    """What the clock of one connection allows."""

    ping_s: float = 10.0
    """A silent client is pinged this often…"""
    ping_answer_s: float = 5.0
    """…and has this long to respond."""
    request_s_max: float = 15.0
    """How long a client may take to send its preface, or the rest of a request."""


class Begin(NamedTuple):
    """Called for a new call, with its connection."""

    call: Callable[["GrpcConnection", Stream, Head], Receiver | None]
    opened: Callable[["GrpcConnection"], None]
    closed: Callable[["GrpcConnection"], None]


class GrpcConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, begin: Begin, shelf: Shelf, bounds: ConversationBounds, clock: ConnectionBounds) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin = begin
        self._clock = clock
        self._transport: Any = None
        self._opened_at = self._heard_at = self._loop.time()
        self.conversation = Conversation(
            bounds, shelf, lambda stream, head: begin.call(self, stream, head), self._heard_at
        )
        self.peer = ""
        """Where it comes from: `host:port`."""
        self.certificate = b""
        """The client certificate, in PEM; empty: none."""
        self.shown: ssl.SSLObject | None = None
        """What TLS knows of it, if it speaks TLS."""
        self.logins: dict[str, Any] = {}
        """The parsed `authorization` headers of its calls; see `calls`."""
        self._is_flushing = self._is_broken = self._is_full = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_asked = False

    # What calls ask of it.

    def flush_soon(self) -> None:
        """Write what is pending at the end of this turn."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def drain(self) -> None:
        """Accept no more calls; close when those in flight have ended."""
        self.conversation.drain()
        self.flush_soon()

    def close(self) -> None:
        """Close at once."""
        self._transport.abort()

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.shown = shown = transport.get_extra_info("ssl_object")
        der = shown.getpeercert(binary_form=True) if shown is not None else None
        if der is not None:
            # The handshake has checked it. It is parsed when a call needs it.
            self.certificate = ssl.DER_cert_to_PEM_cert(der).encode()
        self._begin.opened(self)
        # Nothing is sent before the client speaks: one that speaks HTTP/1 could not read the answer behind it.
        self._timer = self._loop.call_later(self._clock.ping_s / 2, self._on_tick)

    def data_received(self, data: bytes) -> None:
        if self._is_broken:
            return
        self._heard_at = self._loop.time()
        self._is_asked = False
        try:
            self.conversation.feed(data, self._heard_at)
        except Broken:
            self._break(data)
            return
        self.flush_soon()

    def pause_writing(self) -> None:
        self._is_full = True
        self.conversation.hold()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self.conversation.go_on()
        self._transport.resume_reading()
        self.flush_soon()

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_broken = True
        if self._timer is not None:
            self._timer.cancel()
        self.conversation.end()
        self._begin.closed(self)

    def _flush(self) -> None:
        self._is_flushing = False
        if self._transport.is_closing():
            return
        while not self._is_full and (out := self.conversation.take()):
            self._transport.write(out)
        if self.conversation.is_draining and self.conversation.is_idle and not self._is_full:
            self._transport.close()

    def _break(self, data: bytes) -> None:
        """The client broke the rules: tell it, and the handlers of its calls."""
        self._is_broken = True
        out = self.conversation.take()
        if not self.conversation.is_greeted and data[:4] in _HTTP_1:
            out = _PLAIN_REPLY
        elif not self.conversation.is_greeted and data.startswith(CLIENT_HELLO):
            tell_refused(self.peer, SPEAKS_TLS_HERE)
        self.conversation.end()
        self._transport.write(out)
        self._transport.close()
        self._stop_clock()
        self._timer = self._loop.call_later(_FAREWELL_S, self._transport.abort)

    def _on_tick(self) -> None:
        now, clock = self._loop.time(), self._clock
        silent_s = now - self._heard_at
        if not self.conversation.is_greeted and now - self._opened_at > clock.request_s_max:
            self._transport.abort()
            return
        if self._is_asked and silent_s > clock.ping_s + clock.ping_answer_s:
            self._transport.abort()
            return
        if silent_s >= clock.ping_s and not self._is_asked and self.conversation.is_greeted:
            self._is_asked = True
            self.conversation.ping()
        self.conversation.late(now - clock.request_s_max)
        self.flush_soon()
        self._timer = self._loop.call_later(clock.ping_s / 2, self._on_tick)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
