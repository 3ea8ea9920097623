"""How full the members of an etcd are, and how full each may get.

1. A member says how large its database is and, from etcd 3.6 on, its quota. Before that the quota is only in its
   metrics, which it serves at the address of its clients unless somebody has put them elsewhere. They are long,
   and a quota changes only with a restart: they are asked for seldom.
2. What a member does not say is None. To say it harms nothing: it is asked without a vote or a leader.
"""

import asyncio
import contextlib
import ssl
from typing import Any, NamedTuple

from fencehold.drivers.address import TlsFiles
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.member import Member, context_of

_METRIC = b"\netcd_server_quota_backend_bytes "
_METRICS_BYTES_MAX = 4 << 20


class Storage(NamedTuple):
    """One member's database."""

    endpoint: str
    size_bytes: int
    """Of the file, as far as it was ever filled. This is what the quota is held against, and it never shrinks by
    itself; but pages in it that are free are filled first."""
    in_use_bytes: int
    quota_bytes: int | None
    """None if it is not known; 0 if there is none."""
    has_alarm: bool
    """The database was full once: until somebody disarms the alarm, no member takes a write."""


async def storage_of(member: Member, timeout_s: float, metadata: Any) -> Storage | None:
    """What a member says of its database; None if it does not answer."""
    try:
        status = await member.status(timeout_s, metadata)
    except CallFailed:
        return None
    has_alarm = any("NOSPACE" in error for error in status.errors)
    quota_bytes = int(status.dbSizeQuota) or None
    return Storage(member.endpoint, int(status.dbSize), int(status.dbSizeInUse), quota_bytes, has_alarm)


async def quota_of(endpoint: str, files: TlsFiles | None, within_s: float) -> int | None:
    """A member's quota, by its metrics: 0 if it has none, None if it does not say."""
    try:
        async with asyncio.timeout(within_s):
            return quota_in(await _metrics(endpoint, context_of(files)))
    except (TimeoutError, OSError):
        return None


def quota_in(page: bytes) -> int | None:
    """The quota that a page of metrics tells."""
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
