"""The services of a member, by etcd's own names: where each call goes, what it takes and what it answers.

A channel is one of ours, or gRPC's: they have the same verbs.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

from fencehold.drivers.etcd import messages

Ask: TypeAlias = Callable[..., Awaitable[Any]]
"""One request, one answer."""
Talk: TypeAlias = Callable[..., Any]
"""Requests and answers, as they come."""


class Channel(Protocol):
    """What calls go over."""

    def unary_unary(self, path: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any], /) -> Ask: ...
    def stream_stream(self, path: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any], /) -> Talk: ...


class KV:
    def __init__(self, channel: Channel) -> None:
        self.Range = _ask(channel, "KV/Range", messages.RangeRequest, messages.RangeResponse)
        self.Put = _ask(channel, "KV/Put", messages.PutRequest, messages.PutResponse)
        self.DeleteRange = _ask(
            channel, "KV/DeleteRange", messages.DeleteRangeRequest, messages.DeleteRangeResponse
        )
        self.Txn = _ask(channel, "KV/Txn", messages.TxnRequest, messages.TxnResponse)
        self.Compact = _ask(channel, "KV/Compact", messages.CompactionRequest, messages.CompactionResponse)


class Watch:
    def __init__(self, channel: Channel) -> None:
        self.Watch = _talk(channel, "Watch/Watch", messages.WatchRequest, messages.WatchResponse)


class Lease:
    def __init__(self, channel: Channel) -> None:
        self.LeaseGrant = _ask(
            channel, "Lease/LeaseGrant", messages.LeaseGrantRequest, messages.LeaseGrantResponse
        )
        self.LeaseRevoke = _ask(
            channel, "Lease/LeaseRevoke", messages.LeaseRevokeRequest, messages.LeaseRevokeResponse
        )
        self.LeaseKeepAlive = _talk(
            channel, "Lease/LeaseKeepAlive", messages.LeaseKeepAliveRequest, messages.LeaseKeepAliveResponse
        )
        self.LeaseTimeToLive = _ask(
            channel, "Lease/LeaseTimeToLive", messages.LeaseTimeToLiveRequest, messages.LeaseTimeToLiveResponse
        )


class Maintenance:
    def __init__(self, channel: Channel) -> None:
        self.Status = _ask(channel, "Maintenance/Status", messages.StatusRequest, messages.StatusResponse)


class Cluster:
    def __init__(self, channel: Channel) -> None:
        self.MemberList = _ask(
            channel, "Cluster/MemberList", messages.MemberListRequest, messages.MemberListResponse
        )


class Auth:
    def __init__(self, channel: Channel) -> None:
        self.Authenticate = _ask(
            channel, "Auth/Authenticate", messages.AuthenticateRequest, messages.AuthenticateResponse
        )


def _ask(channel: Channel, name: str, request: type[Message], answer: type[Message]) -> Ask:
    return channel.unary_unary(f"/etcdserverpb.{name}", request.SerializeToString, answer.FromString)


def _talk(channel: Channel, name: str, request: type[Message], answer: type[Message]) -> Talk:
    return channel.stream_stream(f"/etcdserverpb.{name}", request.SerializeToString, answer.FromString)
