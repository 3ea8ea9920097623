"""The server: sockets that listen, the connections that come in, and how both end.

1. Connections have a bound. Beyond it, the one that has been without a call for longest is closed; if all have
   calls, the newest is.
2. Over TLS, a handshake has its seconds and its bound (`security/listener.py`), and a connection whose certificate
   was revoked is ended. A plaintext client is disconnected without a reply, and this is logged: after any reply
   gRPC libraries retry at once, without one they back off.
3. Stopping accepts no more calls, gives those in flight a moment to end, and then ends them.
"""

import asyncio
from typing import Any, NamedTuple

from fencehold.doors.grpc.calls import Calls, Methods, Refusal
from fencehold.doors.grpc.http2.connection import Begin, ConnectionBounds, GrpcConnection
from fencehold.doors.grpc.http2.streams import ConversationBounds, Shelf
from fencehold.gateway.listener import TlsEntrance, tell_refused
from fencehold.security.listener import HandshakeBounds
from fencehold.security.tls import ServerTls

_BACKLOG = 1_024
_REVOKED = "the client certificate was revoked"


class ServerBounds(NamedTuple):
    """What one process of the listener takes."""

    conversation: ConversationBounds = ConversationBounds()
    connection: ConnectionBounds = ConnectionBounds()
    handshakes: HandshakeBounds = HandshakeBounds()
    connections_max: int = 4_000
    calls_max: int = 16_384
    """Calls in flight at the same time, those that wait for a lock included."""
    closing_seconds_max: float = 3.0


class GrpcServer:
    """Started with `start`, served until `stop`."""

    def __init__(self, methods: Methods, refusal: Refusal, bounds: ServerBounds, tls: ServerTls | None) -> None:
        self._bounds = bounds
        self._entrance = tls and TlsEntrance(
            tls,
            self._connection,
            alpn="h2",
            on_revoked=self._end_revoked,
            bounds=bounds.handshakes,
        )
        self._shelf = Shelf(bounds.conversation.kept_bytes_max)
        self._calls = Calls(
            methods,
            refusal,
            calls_max=bounds.calls_max,
            message_bytes_max=bounds.conversation.message_bytes_max,
        )
        self._begin = Begin(self._calls.begin, self._on_opened, self._on_closed)
        self._connections: dict[GrpcConnection, None] = {}
        self._gone = asyncio.Event()
        self._listening: Any = None

    async def start(self, host: str, port: int) -> int:
        """Accept connections; returns the port.

        Raises:
            OSError: the address is in use, or not this machine's.
        """
        if self._entrance is not None:
            self._listening = self._entrance
            return await self._entrance.open(host, port)
        loop = asyncio.get_running_loop()
        # Two listeners on one port would each get some of the calls of one session.
        self._listening = await loop.create_server(
            self._connection, host, port, backlog=_BACKLOG, reuse_port=False
        )
        return int(self._listening.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Accept no more calls, let those in flight end, then end them."""
        if self._listening is not None:
            self._listening.close()
        for connection in tuple(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(self._bounds.closing_seconds_max):
                while self._connections:
                    self._gone.clear()
                    await self._gone.wait()
        except TimeoutError:
            pass
        await self._calls.close()
        # Their last output is written at the end of this turn.
        await asyncio.sleep(0)
        for connection in tuple(self._connections):
            connection.close()

    def reload(self) -> None:
        """Read the certificates again, if there are any."""
        if self._entrance is not None:
            self._entrance.reload()

    def _connection(self) -> GrpcConnection:
        return GrpcConnection(self._begin, self._shelf, self._bounds.conversation, self._bounds.connection)

    def _on_opened(self, connection: GrpcConnection) -> None:
        self._connections[connection] = None
        self._end_if_revoked(connection)
        if len(self._connections) > self._bounds.connections_max:
            idle = (each for each in self._connections if each.conversation.is_idle)
            next(idle, connection).close()

    def _end_revoked(self) -> None:
        """End the connections whose certificates are on the revocation list now."""
        for connection in tuple(self._connections):
            self._end_if_revoked(connection)

    def _end_if_revoked(self, connection: GrpcConnection) -> None:
        if self._entrance is not None and self._entrance.is_revoked(connection.shown):
            tell_refused(connection.peer, _REVOKED)
            connection.close()

    def _on_closed(self, connection: GrpcConnection) -> None:
        self._connections.pop(connection, None)
        self._gone.set()
