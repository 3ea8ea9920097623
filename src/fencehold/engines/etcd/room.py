"""Room in etcd: how much of the members' quota is in use.

1. The fullest member counts, and the smallest quota: one member that is full makes all of them refuse.
2. A database that was full refuses until an operator disarms its alarm, and its file never shrinks by itself. So
   part of the quota is never used: pages that are free lie scattered, and what is large may not fit between the
   others.
3. The bound is the quota as members report it, or else etcd's default; and `room_bytes=` of the URL if that is
   less.
"""

import asyncio

from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.client import EtcdClient
from fencehold.drivers.etcd.survey import MemberStorage, quota_of
from fencehold.journal.room import Room

DEFAULT_QUOTA_BYTES = 2 << 30
"""What etcd takes unless it is configured otherwise."""
_WASTE_SHARE = 4
"""One part in so many of a quota is left to pages that are free and cannot be used."""
_BRINK_BYTES = 2 << 20
"""A file that is so close to the quota may be over it with the next request."""
_QUOTA_EVERY_S = 60.0
"""How often members are asked for the quota that they did not report with the size."""

_DISARM = (
    "etcd's database was full, and it takes nothing more: compact and defragment it, or raise "
    "--quota-backend-bytes, then run `etcdctl alarm disarm`"
)
_DEFRAGMENT = "etcd's file has grown close to its quota: run `etcdctl defrag`, one member at a time"


class Gauge:
    """Measures the databases of one etcd, at each call."""

    def __init__(self, cluster: EtcdClient, address: EtcdAddress) -> None:
        self._cluster = cluster
        self._address = address
        self._quotas: dict[str, int] = {}
        self._quotas_at: float | None = None

    async def read(self, within_s: float) -> Room:
        """As the port says."""
        found, _ = await asyncio.gather(self._cluster.storage(within_s), self._ask_quotas(within_s))
        if not found:
            return Room("etcd's database", note="no member says how large its database is")
        return room_of([self._completed(one) for one in found], self._address.room_bytes)

    def _completed(self, storage: MemberStorage) -> MemberStorage:
        known = storage.quota_bytes
        return storage if known is not None else storage._replace(quota_bytes=self._quotas.get(storage.endpoint))

    async def _ask_quotas(self, within_s: float) -> None:
        now = asyncio.get_running_loop().time()
        if self._quotas_at is not None and now - self._quotas_at < _QUOTA_EVERY_S:
            return
        self._quotas_at = now
        endpoints = self._address.endpoints
        asked = (quota_of(endpoint, self._address.tls, within_s) for endpoint in endpoints)
        found = zip(endpoints, await asyncio.gather(*asked), strict=True)
        self._quotas |= {endpoint: quota for endpoint, quota in found if quota is not None}


def room_of(found: list[MemberStorage], room_bytes: int | None) -> Room:
    """What the sizes of the members' databases come to."""
    used_bytes = max(one.in_use_bytes for one in found)
    quota_bytes, note = _quota(found)
    what = "etcd's database"
    if any(one.has_alarm for one in found):
        return Room(what, used_bytes, _allowed(quota_bytes, room_bytes), is_full=True, note=_DISARM)
    is_full = bool(quota_bytes) and max(one.size_bytes for one in found) > quota_bytes - _BRINK_BYTES
    return Room(what, used_bytes, _allowed(quota_bytes, room_bytes), is_full, _DEFRAGMENT if is_full else note)


def _quota(found: list[MemberStorage]) -> tuple[int, str]:
    """The smallest quota, 0 if there is none; and a note if it is not known."""
    known = [one.quota_bytes for one in found if one.quota_bytes is not None]
    if not known:
        return DEFAULT_QUOTA_BYTES, "its quota is not known, and taken for etcd's default: see room_bytes="
    return min((quota for quota in known if quota), default=0), ""


def _allowed(quota_bytes: int, room_bytes: int | None) -> int | None:
    usable = [quota_bytes - quota_bytes // _WASTE_SHARE] if quota_bytes else []
    return min((*usable, *([room_bytes] if room_bytes else ())), default=None)
