"""One member of etcd, and the connection to it.

A member that did not answer lately is greeted before anything is asked of it: a greeting changes nothing, so
what fails there is certain to have done nothing, and a member that hangs costs a greeting and not the call.
"""

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import grpc
from aetcd import rpc

from fencehold.errors import UsageError
from fencehold.etcd import forked
from fencehold.etcd.address import Files
from fencehold.etcd.failures import why_not_connected

MESSAGE_BYTES_MAX = 16 << 20
"""The largest answer taken; a page of entries that is larger is asked for again in halves."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    # etcd refuses clients that ask more often than every 5 s whether it is there.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    # A member that comes back is found within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    # Handles do not share connections: what happens to one does not touch the other.
    ("grpc.use_local_subchannel_pool", 1),
)


class Standing(IntEnum):
    """How well a member can serve, as it said when greeted."""

    GONE = 0
    """Nobody can be connected to there."""
    SILENT = 1
    """It did not answer in time."""
    ALONE = 2
    """It knows no leader: it is cut off, or they are electing."""
    FOLLOWS = 3
    LEADS = 4
    """Asking it saves the way from a follower to it and back."""


class Member:
    """A connection to one member, made when it is first asked."""

    def __init__(self, endpoint: str, credentials: Any, interceptors: Sequence[Any]) -> None:
        self.endpoint = endpoint
        self._channel = self._connect(endpoint, credentials, interceptors)
        self.kv = rpc.KVStub(self._channel)
        self.auth = rpc.AuthStub(self._channel)
        self.streams = rpc.WatchStub(self._channel)
        self.leases = rpc.LeaseStub(self._channel)
        self._maintenance = rpc.MaintenanceStub(self._channel)
        self.trouble = ""
        """Why it could not be had when it could not."""

    async def greet(self, timeout_s: float, metadata: Sequence[tuple[str, str]]) -> Standing:
        """Ask how it is."""
        try:
            status = await self._maintenance.Status(rpc.StatusRequest(), timeout=timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return self._standing_by(error)
        if not status.leader:
            return Standing.ALONE
        return Standing.LEADS if status.leader == status.header.member_id else Standing.FOLLOWS

    def _standing_by(self, error: Any) -> Standing:
        if (error.details() or "").startswith(("etcdserver: no leader", "etcdserver: not capable")):
            return Standing.ALONE
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            self.trouble = why_not_connected(error.details() or "")
            return Standing.GONE
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            self.trouble = f"{self.endpoint}: no answer"
            return Standing.SILENT
        # It answered, if only that it tells its state to administrators alone.
        return Standing.FOLLOWS

    async def keep_alive(self, request: Any, *, timeout: float, metadata: Sequence[tuple[str, str]]) -> Any:  # noqa: ASYNC109 - called as gRPC's own are
        """One renewal of a lease, as if it were a call of its own."""
        stream = self.leases.LeaseKeepAlive(timeout=timeout, metadata=metadata)
        try:
            await stream.write(request)
            answer = await stream.read()
        except asyncio.InvalidStateError as error:
            raise _broken() from error
        finally:
            stream.cancel()
        if answer is grpc.aio.EOF:
            raise _broken()
        return answer

    async def close(self) -> None:
        await self._channel.close()
        forked.on_closed(self._channel)

    @staticmethod
    def _connect(endpoint: str, credentials: Any, interceptors: Sequence[Any]) -> Any:
        if forked.is_child():
            return forked.ChildChannel(endpoint, credentials)
        if credentials is None:
            channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS, interceptors=list(interceptors))
        else:
            channel = grpc.aio.secure_channel(
                endpoint, credentials, options=_OPTIONS, interceptors=list(interceptors)
            )
        forked.on_opened(channel)
        return channel


def _broken() -> Any:
    return grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details="the stream broke"
    )


def credentials_of(files: Files | None) -> Any:
    """What TLS needs, read anew each time it is opened, so that certificates can be replaced; None without.

    Raises:
        UsageError: a file cannot be read.
    """
    if files is None:
        return None
    ca, cert, key = (_contents(name, path) for name, path in files._asdict().items())
    if forked.is_child():
        return forked.context_of(files)
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def _contents(name: str, path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name}={path} cannot be read: {error.strerror}; correct the URL") from error
