"""HTTP/1.1 as uvicorn speaks it, with bounds on what slow or many clients can take from others.

1. A request is read within `REQUEST_S_MAX`, from the connection or its first byte to its last: uvicorn waits for
   ever.
2. Connections have a bound. Beyond it, the one that has been idle longest is closed: so abandoned connections do
   not keep others out.
3. A TLS client on a plaintext listener is disconnected, and this is logged.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fencehold.gateway.credentials import CERTIFICATE
from fencehold.gateway.listener import CLIENT_HELLO, SPEAKS_TLS_HERE, tell_refused

REQUEST_S_MAX = 15.0
CONNECTIONS_MAX = 2_000
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\r\n"
    b'{"type": "about:blank", "title": "the request was not sent in time", "status": 408, "reason": "USAGE"}'
)


def bounded(
    request_s_max: float = REQUEST_S_MAX,
    connections_max: int = CONNECTIONS_MAX,
    is_refused: Callable[[asyncio.BaseTransport], bool] = lambda _: False,
) -> type[H11Protocol]:
    """The protocol of one listener: its connections are counted together.

    `is_refused`: whether a new connection is to be closed at once.
    """
    resting: dict[Any, None] = {}

    class BoundedProtocol(H11Protocol):
        """One connection."""

        def __init__(self, *given: Any, **said: Any) -> None:
            super().__init__(*given, **said)
            self._reading: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
            super().connection_made(transport)
            if is_refused(transport):
                transport.abort()
                return
            shown = transport.get_extra_info("ssl_object")
            der = shown.getpeercert(binary_form=True) if shown is not None else None
            if der is not None:
                # The handshake has checked it. It is parsed when a request needs it.
                self.app_state = {**self.app_state, CERTIFICATE: ssl.DER_cert_to_PEM_cert(der).encode()}
            if len(self.connections) > connections_max and resting:
                next(iter(resting)).close_resting()
            self._watch()

        def data_received(self, data: bytes) -> None:
            if data.startswith(CLIENT_HELLO) and self.conn.their_state is h11.IDLE:
                host, port = self.client or ("", 0)
                tell_refused(f"{host}:{port}", SPEAKS_TLS_HERE)
                self.transport.close()
                return
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            resting.pop(self, None)
            self._stop_clock()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def close_resting(self) -> None:
            """Make room for another."""
            resting.pop(self, None)
            self.transport.close()

        def _watch(self) -> None:
            """Note whether a request is being read, or the connection is idle."""
            is_read = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
            if is_read or self.transport.is_closing():
                self._stop_clock()
            elif self._reading is None and self.timeout_keep_alive_task is None:
                self._reading = self.loop.call_later(request_s_max, self._on_late)
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                resting.setdefault(self)
            else:
                resting.pop(self, None)

        def _on_late(self) -> None:
            self._reading = None
            if self.conn.our_state is h11.IDLE:
                self.transport.write(_LATE)
            self.transport.close()

        def _stop_clock(self) -> None:
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None

    return BoundedProtocol
