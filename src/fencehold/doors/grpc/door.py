"""The gRPC listener: its services, and what they need to reach the service.

1. It runs in a process and on an event loop of its own: what its clients do must not slow a leader.
2. Everything that a client can make it remember has a bound: messages, metadata, streams, calls, sessions,
   watches.
3. A dead client is detected by pings, sooner than a session of the usual ttl would expire.
4. Off loopback it requires TLS, or `insecure` set explicitly.
"""

import keyword
import re
import ssl
from collections.abc import Iterator

from google.protobuf.descriptor_pool import DescriptorPool

from fencehold.doors.grpc import etcd_election, etcd_service
from fencehold.doors.grpc.calls import Method
from fencehold.doors.grpc.etcd_election import EtcdElectionServicer
from fencehold.doors.grpc.etcd_service import EtcdLockServicer, Keys, Leases, LeaseServicer
from fencehold.doors.grpc.health import HEALTH, Health
from fencehold.doors.grpc.lock_service import LockServicer
from fencehold.doors.grpc.reflection import NAMES, Reflection
from fencehold.doors.grpc.server import GrpcServer, ServerBounds
from fencehold.doors.grpc.session_service import SessionServicer
from fencehold.doors.grpc.statuses import refusal_of
from fencehold.doors.grpc.watch_service import WatchServicer
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import Voucher
from fencehold.gateway.questions import Questions
from fencehold.gateway.sessions import Sessions
from fencehold.gateway.upstream import Upstream
from fencehold.security.tls import ServerTls
from fencehold.wire.etcd_messages import pool as etcd_pool
from fencehold.wire.grpc_messages import pool as grpc_pool
from fencehold.wire.messages import pool
from fencehold.wire.services import LOCK, SESSION, WATCH, rpcs_of

PORT = 7421


class GrpcDoor:
    """Started with `start`, served until `stop`."""

    def __init__(
        self,
        url: str,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        tls: ServerTls | None = None,
        upstream_tls: ssl.SSLContext | None = None,
        voucher: Voucher | None = None,
        bounds: ServerBounds = ServerBounds(),  # noqa: B008 - a value
        gateway: GatewayBounds = GatewayBounds(),  # noqa: B008 - a value
    ) -> None:
        self.host = host
        self.port = port
        self._tls = tls
        self._bounds = bounds
        self._questions = Questions(url, upstream_tls, gateway, voucher=voucher)
        self._upstream = Upstream(
            url, via="grpc", tls=upstream_tls, bounds=gateway, voucher=voucher, questions=self._questions
        )
        self.sessions = Sessions(self._upstream)
        self._health = Health(self._questions)
        self._untold_max = gateway.untold_max
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        """Accept calls; `port` says where.

        Raises:
            OSError: the address is in use, or not this machine's.
            UsageError: its certificate cannot be used.
        """
        self._server = GrpcServer(dict(self._methods()), refusal_of, self._bounds, self._tls)
        await self._health.start()
        self.port = await self._server.start(self.host, self.port)

    async def stop(self) -> None:
        """Accept no more calls, end all sessions, let the rest finish."""
        await self._health.stop()
        await self.sessions.close()
        if self._server is not None:
            await self._server.stop()
        await self._questions.close()
        await self._upstream.close()

    def reload(self) -> None:
        """Read the certificates again, as at SIGHUP."""
        if self._server is not None:
            self._server.reload()

    def _methods(self) -> Iterator[tuple[str, Method]]:
        """Every method that is served, by its path."""
        leases = Leases(self.sessions)
        keys = Keys(leases, self._upstream)
        elections = EtcdElectionServicer(leases, keys, self._upstream, self._questions)
        yield from _methods_of(LOCK, pool, LockServicer(self._upstream, self.sessions, self._questions))
        yield from _methods_of(SESSION, pool, SessionServicer(self.sessions, self._untold_max))
        yield from _methods_of(WATCH, pool, WatchServicer(self._questions))
        yield from _methods_of(etcd_service.LEASE, etcd_pool, LeaseServicer(leases, self.sessions))
        yield from _methods_of(etcd_service.LOCK, etcd_pool, EtcdLockServicer(leases, keys))
        yield from _methods_of(etcd_election.ELECTION, etcd_pool, elections)
        yield from _methods_of(HEALTH, grpc_pool, self._health)
        for name in NAMES:
            yield from _methods_of(name, grpc_pool, Reflection(name))


def _methods_of(service: str, described: DescriptorPool, servicer: object) -> Iterator[tuple[str, Method]]:
    """The RPCs of a service, each answered by the method of the servicer that is called like it: `MultiLock` by
    `multi_lock`, and `Break`, a word of Python, by `break_`."""
    for rpc in rpcs_of(service, described):
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", rpc.name).lower()
        behaviour = getattr(servicer, f"{name}_" if keyword.iskeyword(name) else name)
        yield rpc.path, Method(rpc.read, behaviour, rpc.is_client_streaming, rpc.is_server_streaming)
