"""One member of etcd, and the connection to it.

1. A member that did not answer lately is greeted before anything is asked of it: a greeting changes nothing, so
   what fails there is certain to have done nothing, and a member that hangs costs a greeting and not the call.
2. Leases are renewed in a stream that is kept from one renewal to the next. A stream answers in the order of the
   requests, and does not say which one it answers. So *an answer belongs to the renewal before it, or to none*:
   trust in a lease counts from when its renewal was sent, and the late answer of an earlier one must not pass for
   that of a later one. A stream in which a renewal was not answered is closed, and so is one in which an
   unsolicited message came.
"""

import ssl
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeAlias

from fencehold.drivers import tls
from fencehold.drivers.address import TlsFiles
from fencehold.drivers.etcd import messages, services
from fencehold.drivers.etcd.failures import why_not_connected
from fencehold.drivers.etcd.http2.channel import Channel, Talk
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.transactions import Message
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import Metadata

_TXN_PATH = "/etcdserverpb.KV/Txn"


class RenewalStream:
    """Those of one member. `begin` begins a stream."""

    def __init__(self, begin: Callable[..., Talk]) -> None:
        self._begin = begin
        self._kept: Talk | None = None
        """Not in use now."""
        self._metadata: Metadata = ()
        """What it was begun with."""

    async def renew(self, request: Message, *, timeout: float, metadata: Metadata) -> Message:  # noqa: ASYNC109 - called as services are
        """One renewal, as if it were a call of its own.

        Raises:
            CallFailed: see its `code` and `is_sent`.
        """
        talk = self._take(metadata)
        try:
            answer = await talk.exchange(request, timeout)
            if answer is None or answer.ID != request.ID:
                raise CallFailed(Code.UNAVAILABLE, "the stream of renewals ended, or is out of step")
        except BaseException:
            talk.cancel()
            raise
        self._keep(talk, metadata)
        return answer

    def _take(self, metadata: Metadata) -> Talk:
        """The stream that was kept, if it will do; a caller that comes while it is in use gets one of its own."""
        talk, self._kept = self._kept, None
        if talk is not None:
            if talk.is_at_rest and metadata == self._metadata:
                return talk
            talk.cancel()
        return self._begin(metadata=metadata)

    def _keep(self, talk: Talk, metadata: Metadata) -> None:
        if self._kept is not None:
            self._kept.cancel()
        self._kept, self._metadata = talk, metadata


Connect: TypeAlias = Callable[[str, ssl.SSLContext | None], Channel]
"""How a member is called; a test passes its own, in which calls go wrong."""


class MemberStanding(IntEnum):
    """How well a member can serve, by its reply to a greeting."""

    GONE = 0
    """No connection can be made there."""
    SILENT = 1
    """It did not answer in time."""
    ALONE = 2
    """It knows no leader: it is cut off, or they are electing."""
    FOLLOWS = 3
    LEADS = 4
    """Asking it saves the round trip from a follower to it."""


class EtcdMember:
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
        """By which the other members know it; 0 until it has reported it."""
        self.renewals = RenewalStream(self.leases.LeaseKeepAlive)
        self.term = 0
        """The newest raft term it knew of at its last status…"""
        self.leads = False
        """…and whether it led in that term."""
        self.trouble = ""
        """Why it could not be reached, when it could not."""

    def begin_transaction(
        self, request: bytes, timeout_s: float, metadata: Metadata, told: Callable[[bytes | CallFailed], None]
    ) -> bool:
        """Send a transaction, and have `told` called with its answer; False: there is no connection."""
        return self._channel.begin_unary(_TXN_PATH, request, timeout_s=timeout_s, metadata=metadata, told=told)

    async def greet(self, timeout_s: float, metadata: Metadata) -> MemberStanding:
        """Ask how it is."""
        try:
            status = await self.status(timeout_s, metadata)
        except CallFailed as error:
            return self._standing_by(error)
        if not status.leader:
            return MemberStanding.ALONE
        return MemberStanding.LEADS if self.leads else MemberStanding.FOLLOWS

    async def status(self, timeout_s: float, metadata: Metadata) -> Any:
        """What it says of itself.

        Raises:
            CallFailed: it does not say.
        """
        try:
            said = await self._maintenance.Status(messages.StatusRequest(), timeout=timeout_s, metadata=metadata)
        except CallFailed:
            self.leads = False
            raise
        self.id, self.term = int(said.header.member_id), int(said.header.raft_term)
        self.leads = bool(said.leader) and said.leader == said.header.member_id
        return said

    async def fellows(self, timeout_s: float, metadata: Metadata) -> list[Any]:
        """All members of its cluster, as it knows them; itself among them.

        Raises:
            CallFailed: it does not say.
        """
        answer = await self._cluster.MemberList(messages.MemberListRequest(), timeout=timeout_s, metadata=metadata)
        return list(answer.members)

    def _standing_by(self, error: CallFailed) -> MemberStanding:
        if error.details.startswith(("etcdserver: no leader", "etcdserver: not capable")):
            return MemberStanding.ALONE
        if error.code is Code.UNAVAILABLE and not error.is_sent:
            self.trouble = why_not_connected(error.details)
            return MemberStanding.GONE
        if error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
            self.trouble = f"{self.endpoint}: no answer"
            return MemberStanding.SILENT
        # It answered, if only that it shows its state to administrators alone.
        return MemberStanding.FOLLOWS

    async def close(self) -> None:
        await self._channel.close()


def context_of(files: TlsFiles | None) -> ssl.SSLContext | None:
    """What TLS needs to carry gRPC; None without.

    Raises:
        UsageError: a file cannot be read, or holds nothing of the kind.
    """
    if files is None:
        return None
    context = tls.client_context(files)
    context.set_alpn_protocols(["h2"])
    return context
