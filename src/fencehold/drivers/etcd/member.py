"""One member of etcd, and the connection to it.

A member that did not answer lately is greeted before anything is asked of it: a greeting changes nothing, so
what fails there is certain to have done nothing, and a member that hangs costs a greeting and not the call.
"""

import ssl
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeAlias

from fencehold.drivers import tls
from fencehold.drivers.address import TlsFiles
from fencehold.drivers.etcd import messages, services
from fencehold.drivers.etcd.failures import why_not_connected
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.http2.frames import Metadata
from fencehold.drivers.etcd.http2.status import CallFailed, Code
from fencehold.drivers.etcd.renewals import Renewals

Connect: TypeAlias = Callable[[str, ssl.SSLContext | None], Channel]
"""How a member is called; a test has its own way, on which calls go wrong."""


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

    def __init__(self, endpoint: str, context: ssl.SSLContext | None, connect: Connect = Channel) -> None:
        self.endpoint = endpoint
        self._channel = connect(endpoint, context)
        self.kv = services.KV(self._channel)
        self.auth = services.Auth(self._channel)
        self.streams = services.Watch(self._channel)
        self.leases = services.Lease(self._channel)
        self._maintenance = services.Maintenance(self._channel)
        self._cluster = services.Cluster(self._channel)
        self.id = 0
        """By which the other members know it; 0 until it has said so."""
        self.renewals = Renewals(self.leases.LeaseKeepAlive)
        self.trouble = ""
        """Why it could not be had when it could not."""

    async def greet(self, timeout_s: float, metadata: Metadata) -> Standing:
        """Ask how it is."""
        try:
            status = await self.status(timeout_s, metadata)
        except CallFailed as error:
            return self._standing_by(error)
        self.id = int(status.header.member_id)
        if not status.leader:
            return Standing.ALONE
        return Standing.LEADS if status.leader == status.header.member_id else Standing.FOLLOWS

    async def status(self, timeout_s: float, metadata: Metadata) -> Any:
        """What it says of itself.

        Raises:
            CallFailed: it does not say.
        """
        return await self._maintenance.Status(messages.StatusRequest(), timeout=timeout_s, metadata=metadata)

    async def fellows(self, timeout_s: float, metadata: Metadata) -> list[Any]:
        """All members of its cluster, as it knows them; itself among them.

        Raises:
            CallFailed: it does not say.
        """
        answer = await self._cluster.MemberList(messages.MemberListRequest(), timeout=timeout_s, metadata=metadata)
        return list(answer.members)

    def _standing_by(self, error: CallFailed) -> Standing:
        if error.details.startswith(("etcdserver: no leader", "etcdserver: not capable")):
            return Standing.ALONE
        if error.code is Code.UNAVAILABLE and not error.is_sent:
            self.trouble = why_not_connected(error.details)
            return Standing.GONE
        if error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
            self.trouble = f"{self.endpoint}: no answer"
            return Standing.SILENT
        # It answered, if only that it tells its state to administrators alone.
        return Standing.FOLLOWS

    async def close(self) -> None:
        await self._channel.close()


def context_of(files: TlsFiles | None) -> ssl.SSLContext | None:
    """What TLS needs to carry gRPC; None without.

    Raises:
        UsageError: a file cannot be read, or holds nothing of the kind.
    """
    if files is None:
        return None
    context = tls.context_of(files)
    context.set_alpn_protocols(["h2"])
    return context
