"""The gRPC listener: a server of `grpc.aio`, and what it needs to reach the service.

1. It runs in a process and on an event loop of its own: gRPC costs ten times what RESP does, and must not slow
   a leader.
2. Everything that a client can make it remember has a bound: messages, metadata, streams, calls, sessions,
   watches.
3. A dead client is noticed by pings, sooner than a session of the usual ttl would end.
4. Off loopback it wants TLS, or to be told that it is insecure.
"""

import ssl
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health_pb2_grpc

from fencehold.doors.grpc import etcd_election, etcd_service, reflection
from fencehold.doors.grpc.etcd_election import EtcdElectionServicer
from fencehold.doors.grpc.etcd_service import EtcdLockServicer, Keys, Leases, LeaseServicer
from fencehold.doors.grpc.health import Health
from fencehold.doors.grpc.lock_service import LockServicer
from fencehold.doors.grpc.session_service import SessionServicer
from fencehold.doors.grpc.watch_service import WatchServicer
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import Voucher
from fencehold.gateway.listener import ListenerTls
from fencehold.gateway.questions import Questions
from fencehold.gateway.sessions import Sessions
from fencehold.gateway.upstream import Upstream
from fencehold.wire.etcd_messages import pool as etcd_pool
from fencehold.wire.services import LOCK, SESSION, WATCH, handler_of

PORT = 7421


class GrpcBounds(NamedTuple):
    """What one process of the listener takes."""

    message_bytes_max: int = 65_536
    metadata_bytes_max: int = 16_384
    streams_per_connection_max: int = 1_024
    calls_max: int = 16_384
    """Calls under way at the same time, those that wait for a lock included."""
    ping_s: float = 10.0
    """A client that says nothing is asked so often whether it is there…"""
    ping_answer_s: float = 5.0
    """…and has so long to answer."""
    closing_seconds_max: float = 3.0


class GrpcDoor:
    """Started with `start`, served until `stop`."""

    def __init__(
        self,
        url: str,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        tls: ListenerTls | None = None,
        upstream_tls: ssl.SSLContext | None = None,
        voucher: Voucher | None = None,
        bounds: GrpcBounds = GrpcBounds(),  # noqa: B008 - a value
        gateway: GatewayBounds = GatewayBounds(),  # noqa: B008 - a value
    ) -> None:
        self.host = host
        self.port = port
        self._tls = tls
        self._bounds = bounds
        self._upstream = Upstream(url, via="grpc", tls=upstream_tls, bounds=gateway, voucher=voucher)
        self._questions = Questions(url, upstream_tls, gateway, voucher=voucher)
        self.sessions = Sessions(self._upstream)
        self._health = Health(self._questions)
        self._untold_max = gateway.untold_max
        self._server: Any = None

    async def start(self) -> None:
        """Take calls; `port` says where.

        Raises:
            OSError: the address is in use, or not this machine's.
        """
        server = self._server = grpc.aio.server(
            options=_options(self._bounds), maximum_concurrent_rpcs=self._bounds.calls_max
        )
        leases = Leases(self.sessions)
        keys = Keys(leases, self._upstream)
        elections = EtcdElectionServicer(leases, keys, self._upstream, self._questions)
        server.add_generic_rpc_handlers(
            (
                handler_of(LOCK, LockServicer(self._upstream, self.sessions, self._questions)),
                handler_of(SESSION, SessionServicer(self.sessions, self._untold_max)),
                handler_of(WATCH, WatchServicer(self._questions)),
                handler_of(etcd_service.LEASE, LeaseServicer(leases, self.sessions), etcd_pool),
                handler_of(etcd_service.LOCK, EtcdLockServicer(leases, keys), etcd_pool),
                handler_of(etcd_election.ELECTION, elections, etcd_pool),
                *reflection.handlers(),
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, server)
        where = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        self.port = self._bound(server, where)
        await self._health.start()
        await server.start()

    async def stop(self) -> None:
        """Take no more calls, end all sessions, let the rest finish."""
        await self._health.stop()
        await self.sessions.close()
        await self._server.stop(self._bounds.closing_seconds_max)
        await self._questions.close()
        await self._upstream.close()

    def _bound(self, server: Any, where: str) -> int:
        try:
            if self._tls is None:
                return int(server.add_insecure_port(where))
            return int(server.add_secure_port(where, _credentials(self._tls)))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {where}: is it in use?") from error


def _options(bounds: GrpcBounds) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", bounds.message_bytes_max),
        ("grpc.max_metadata_size", bounds.metadata_bytes_max),
        ("grpc.absolute_max_metadata_size", bounds.metadata_bytes_max),
        ("grpc.max_concurrent_streams", bounds.streams_per_connection_max),
        ("grpc.keepalive_time_ms", int(1000 * bounds.ping_s)),
        ("grpc.keepalive_timeout_ms", int(1000 * bounds.ping_answer_s)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        # Two listeners on one port would each get some of the calls of one session.
        ("grpc.so_reuseport", 0),
    ]


def _credentials(tls: ListenerTls) -> Any:
    """What the server shows, read anew when its files change: connections that are there stay."""
    shown: list[tuple[float, ...]] = [tls.changed_at()]

    def configuration() -> Any:
        certificate, key, ca = tls.read()
        return grpc.ssl_server_certificate_configuration(((key, certificate),), root_certificates=ca)

    def renewed() -> Any:
        now = tls.changed_at()
        if now == shown[0]:
            return None
        shown[0] = now
        return configuration()

    return grpc.dynamic_ssl_server_credentials(
        configuration(), renewed, require_client_authentication=tls.clients == "required"
    )
