"""etcd's own lock interface: for clients that lock by it and get a fence as the revision.

1. A lease is a session: it lives by its ttl, and what is locked with it is released when it ends. It lives in the
   listener that granted it.
2. Locking a name again with the same lease gives the same key, as in etcd: the key belongs to the lease.
3. Unlocking takes a key of the same login, and checks no owner, as in etcd; an unknown key is no error.
   A key stands for what was acquired, whether by a lock or by a campaign (`etcd_election.py`).
4. A call that is cancelled waits no longer, and is never granted later: here etcd's own may leave a waiter behind.
5. Without a lease a lock lives for 60 s, as in etcd.
6. A lease whose session the service has ended is reported as lost by the next keep-alive: no client continues
   unprotected.
"""

import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from fencehold.doors.grpc.calls import Call, undo_if_unheard
from fencehold.errors import LimitExceeded, Refused, SessionExpired, UsageError
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.holds import Held
from fencehold.gateway.served_client import Ask, ServedClient
from fencehold.gateway.sessions import Session, Sessions
from fencehold.gateway.upstream import Upstream
from fencehold.wire import etcd_messages as e

LEASE, LOCK = "etcdserverpb.Lease", "v3lockpb.Lock"
UNLEASED_MS = 60_000
KEYS_MAX = 65_536
_NO_LEASE = "etcdserver: requested lease not found"


class Locked(NamedTuple):
    """What has a key."""

    credentials: Credentials
    client: ServedClient
    request_id: str
    held: Held
    key: bytes
    lease: int


class Leases:
    """The leases of a listener, which are sessions under etcd's numbers."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._known: dict[int, Session] = {}
        self.revision = 1
        """The greatest fence sent so far: etcd's clients expect a revision in every answer."""

    def header(self, revision: int = 0) -> Any:
        """The header of an answer; without a revision, with the greatest sent so far."""
        return e.ResponseHeader(cluster_id=1, member_id=1, revision=revision or self.revision, raft_term=1)

    async def grant(self, wanted: int, ttl_s: int, opener: tuple[Credentials, str]) -> int:
        if wanted in self._known and self._is_open(wanted):
            raise Refused("etcdserver: lease already exists")
        session = await self._sessions.open(
            opener, client="etcd client", meta={}, ttl_s=max(1, ttl_s), grace_s=None
        )
        lease = wanted or secrets.randbits(62) + 1
        self._known[lease] = session
        for old in [each for each in self._known if not self._is_open(each)]:
            del self._known[old]
        return lease

    def find(self, lease: int, credentials: Credentials) -> Session:
        """The session of a lease; to name it does not keep it alive, as in etcd.

        Raises:
            SessionExpired: there is none.
        """
        session = self._known.get(lease)
        if session is None or not self._is_open(lease) or session.credentials != credentials:
            raise SessionExpired(_NO_LEASE)
        return session

    def ids(self, credentials: Credentials) -> list[int]:
        return [
            lease
            for lease, session in self._known.items()
            if session.credentials == credentials and self._is_open(lease)
        ]

    def _is_open(self, lease: int) -> bool:
        session = self._known[lease]
        return self._sessions.has(session) and not session.served.has_lost_session


class LeaseServicer:
    """`etcdserverpb.Lease`."""

    def __init__(self, leases: Leases, sessions: Sessions) -> None:
        self._leases = leases
        self._sessions = sessions

    async def lease_grant(self, request: Any, call: Call) -> Any:
        opener = (call.credentials(), call.peer)
        lease = await self._leases.grant(request.ID, request.TTL, opener)
        return e.LeaseGrantResponse(header=self._leases.header(), ID=lease, TTL=max(1, request.TTL))

    async def lease_revoke(self, request: Any, call: Call) -> Any:
        session = self._leases.find(request.ID, call.credentials())
        await self._sessions.end(session, "closed")
        return e.LeaseRevokeResponse(header=self._leases.header())

    async def lease_keep_alive(self, requests: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
        credentials = call.credentials()
        async for request in requests:
            lease, ttl_s = request.ID, 0
            try:
                session = self._leases.find(lease, credentials)
                session.heard()
                ttl_s = round(session.ttl_s)
            except SessionExpired:
                # Reported by a ttl of 0, as etcd does, and the stream continues for other leases.
                pass
            yield e.LeaseKeepAliveResponse(header=self._leases.header(), ID=lease, TTL=ttl_s)

    async def lease_time_to_live(self, request: Any, call: Call) -> Any:
        header = self._leases.header()
        try:
            session = self._leases.find(request.ID, call.credentials())
        except SessionExpired:
            return e.LeaseTimeToLiveResponse(header=header, ID=request.ID, TTL=-1)
        keys = [key_of(name, request.ID) for held in session.served.holds.live() for name in held.names]
        return e.LeaseTimeToLiveResponse(
            header=header,
            ID=request.ID,
            TTL=int(session.left_s()),
            grantedTTL=round(session.ttl_s),
            keys=keys if request.keys else (),
        )

    async def lease_leases(self, _request: Any, call: Call) -> Any:
        ids = self._leases.ids(call.credentials())
        return e.LeaseLeasesResponse(header=self._leases.header(), leases=[e.LeaseStatus(ID=each) for each in ids])


class Keys:
    """What was acquired by etcd's clients, under etcd's keys."""

    def __init__(self, leases: Leases, upstream: Upstream) -> None:
        self._leases = leases
        self._upstream = upstream
        self._locked: dict[bytes, Locked] = {}

    async def acquire(self, raw_name: bytes, lease: int, call: Call, meta: Mapping[str, str]) -> Locked:
        """Acquire a name with a lease, or with one of its own for a minute; if it is held already, the same key.

        It is released again if the call ends before its answer is delivered.

        Raises:
            SessionExpired: there is no such lease.
            FenceholdError: as an acquire of the SDK.
        """
        name, is_leased, credentials = text_of(raw_name), bool(lease), call.credentials()
        if is_leased:
            client, ttl_ms = self._leases.find(lease, credentials).served, 0
        else:
            client, lease, ttl_ms = await self._upstream.shared(credentials), secrets.randbits(62), UNLEASED_MS
        self._make_room()
        # The id by which a second Lock with the same lease joins the first, and gets the same key.
        request_id = f"etcd:{lease:x}:{_digest(name) if is_leased else secrets.token_hex(8)}"
        meta = {"lease": f"{lease:x}", **meta}
        held = await _held(client, Ask((name,), ttl_ms=ttl_ms, request_id=request_id, meta=meta))
        undo_if_unheard(call, client, held)
        key = key_of(name, lease)
        locked = self._locked[key] = Locked(credentials, client, request_id, held, key, lease)
        self._leases.revision = max(self._leases.revision, held.fence)
        return locked

    def find(self, key: bytes, credentials: Credentials) -> Locked | None:
        """What has this key, if it is of this login."""
        locked = self._locked.get(key)
        return locked if locked is not None and locked.credentials == credentials else None

    async def release(self, locked: Locked) -> None:
        """Release what has a key."""
        self._locked.pop(locked.key, None)
        await locked.client.withdraw(locked.request_id)

    def _make_room(self) -> None:
        if len(self._locked) < KEYS_MAX:
            return
        self._locked = {key: locked for key, locked in self._locked.items() if not locked.held.ending}
        if len(self._locked) >= KEYS_MAX:
            raise LimitExceeded(f"this listener keeps at most {KEYS_MAX} keys")


class EtcdLockServicer:
    """`v3lockpb.Lock`."""

    def __init__(self, leases: Leases, keys: Keys) -> None:
        self._leases = leases
        self._keys = keys

    async def lock(self, request: Any, call: Call) -> Any:
        locked = await self._keys.acquire(request.name, request.lease, call, {})
        return e.LockResponse(header=self._leases.header(locked.held.fence), key=locked.key)

    async def unlock(self, request: Any, call: Call) -> Any:
        locked = self._keys.find(request.key, call.credentials())
        if locked is not None:
            await self._keys.release(locked)
        return e.UnlockResponse(header=self._leases.header())


async def _held(client: ServedClient, ask: Ask) -> Held:
    while True:
        held = await client.acquire(ask)
        if held is not None and not held.ending:
            return held
        # The remembered hold has ended since: acquire it again.
        await client.withdraw(ask.request_id)


def text_of(name: bytes) -> str:
    """A name as text, which it is in Fencehold."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise UsageError("a name is UTF-8") from None


def key_of(name: str, lease: int) -> bytes:
    """The key that etcd would make of a name and a lease."""
    return f"{name}/{lease:x}".encode()


def _digest(name: str) -> str:
    """Short, as a request id has a bound, and the same for the same name."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]
