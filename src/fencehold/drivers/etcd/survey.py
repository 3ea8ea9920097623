"""A survey of the members of an etcd: which there are, which answer, which one leads; how full each is, and may
get.

1. A survey has connections of its own, made for it and closed after it: no call of a journal or a lock waits for
   it. Asked are the members that the URL names, and those that they name in turn. What only administrators may
   know stays out.
2. A member says how large its database is and, from etcd 3.6 on, its quota. Before that the quota is only in its
   metrics, which it serves at the address of its clients unless it is configured otherwise. They are long, and a
   quota changes only with a restart: they are asked for seldom.
3. What a member does not say is None. To say it harms nothing: it is asked without a vote or a leader.
"""

import asyncio
import contextlib
import ssl
from contextlib import suppress
from typing import Any, NamedTuple

from fencehold.drivers.address import TlsFiles
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.member import Connect, EtcdMember, MemberStanding, context_of

_MEMBERS_MAX = 32
_METRIC = b"\netcd_server_quota_backend_bytes "
_METRICS_BYTES_MAX = 4 << 20


class EtcdMemberStatus(NamedTuple):
    """One member."""

    endpoint: str
    standing: MemberStanding
    trouble: str
    is_learner: bool = False
    """It has no vote: whether it is up decides nothing."""


async def survey(address: EtcdAddress, within_s: float, connect: Connect = Channel) -> list[EtcdMemberStatus]:
    """All members that can be found, in the order of the URL, then by address."""
    context = context_of(address.tls)
    made: list[EtcdMember] = []

    def member(endpoint: str) -> EtcdMember:
        made.append(EtcdMember(endpoint, context, connect))
        return made[-1]

    try:
        named = [member(endpoint) for endpoint in address.endpoints]
        seen = await _greeted(named, within_s / 3)
        known = await _known(seen, within_s / 3)
        others = [member(endpoint) for endpoint in _not_named(known, seen)]
        seen |= await _greeted(others, within_s / 3)
        learners = {fellow.ID for fellow in known if fellow.isLearner}
        found = [
            EtcdMemberStatus(one.endpoint, standing, one.trouble, one.id in learners)
            for one, standing in seen.items()
        ]
        return found + [
            EtcdMemberStatus(
                f"member {fellow.ID:x}", MemberStanding.GONE, "it was added, and has not started", fellow.isLearner
            )
            for fellow in known
            if not fellow.clientURLs
        ]
    finally:
        await asyncio.gather(*(one.close() for one in made), return_exceptions=True)


async def _greeted(members: list[EtcdMember], timeout_s: float) -> dict[EtcdMember, MemberStanding]:
    standings = await asyncio.gather(*(member.greet(timeout_s, ()) for member in members))
    return dict(zip(members, standings, strict=True))


async def _known(seen: dict[EtcdMember, MemberStanding], timeout_s: float) -> list[Any]:
    """The members there are, by the first one that answers; empty, if none does."""
    for member, standing in seen.items():
        if standing > MemberStanding.SILENT:
            with suppress(CallFailed):
                return (await member.fellows(timeout_s, ()))[:_MEMBERS_MAX]
    return []


def _not_named(known: list[Any], seen: dict[EtcdMember, MemberStanding]) -> list[str]:
    """Where the members are that the URL does not name: each has reported its id, or has another address."""
    ids = {member.id for member in seen if member.id}
    places = {member.endpoint for member in seen}
    found = []
    for fellow in known:
        endpoints = [url.partition("://")[2].rstrip("/") for url in fellow.clientURLs]
        if fellow.ID not in ids and endpoints and not places.intersection(endpoints):
            found.append(endpoints[0])
    return sorted(found)


class MemberStorage(NamedTuple):
    """One member's database."""

    endpoint: str
    size_bytes: int
    """Of the file, as far as it was ever filled. This is what the quota is held against, and it never shrinks by
    itself; but pages in it that are free are filled first."""
    in_use_bytes: int
    quota_bytes: int | None
    """None if it is not known; 0 if there is none."""
    has_alarm: bool
    """The database was full once: until an operator disarms the alarm, no member takes a write."""


async def storage_of(member: EtcdMember, timeout_s: float, metadata: Any) -> MemberStorage | None:
    """What a member says of its database; None if it does not answer."""
    try:
        status = await member.status(timeout_s, metadata)
    except CallFailed:
        return None
    has_alarm = any("NOSPACE" in error for error in status.errors)
    quota_bytes = int(status.dbSizeQuota) or None
    return MemberStorage(member.endpoint, int(status.dbSize), int(status.dbSizeInUse), quota_bytes, has_alarm)


async def quota_of(endpoint: str, files: TlsFiles | None, within_s: float) -> int | None:
    """A member's quota, by its metrics: 0 if it has none, None if it does not say."""
    try:
        async with asyncio.timeout(within_s):
            return quota_in(await _metrics(endpoint, context_of(files)))
    except (TimeoutError, OSError):
        return None


def quota_in(page: bytes) -> int | None:
    """The quota in a page of metrics."""
    _, found, rest = page.partition(_METRIC)
    try:
        # A negative one says that there is none.
        return max(0, round(float(rest.partition(b"\n")[0]))) if found else None
    except ValueError:
        return None


async def _metrics(endpoint: str, context: ssl.SSLContext | None) -> bytes:
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    if context is not None:
        context.set_alpn_protocols(["http/1.1"])
    name = host if context is not None else None
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)
    try:
        # By the older version the page is answered in one piece, and its end is that of the connection.
        writer.write(f"GET /metrics HTTP/1.0\r\nHost: {endpoint}\r\n\r\n".encode())
        page = bytearray()
        while len(page) < _METRICS_BYTES_MAX and (piece := await reader.read(64 << 10)):
            page += piece
        return bytes(page)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
