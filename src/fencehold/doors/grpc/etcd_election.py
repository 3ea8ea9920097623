"""etcd's own elections: `v3electionpb.Election`, on the locks of Fencehold.

1. To lead is to hold the name; the revision of the leader's key is the fence of the hold, and so the epoch of its
   term.
2. The value a leader campaigns with is in the metadata of its hold. What it proclaims later is in that of a second
   name beside it, held by the same session: so it is in the journal, survives a failover, and is seen by every
   listener. It is valid for the term it was proclaimed in.
3. A leader elected through the SDK, or another interface, is a leader here as well, without a value.
4. Errors have etcd's words.
"""

import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple

from fencehold import Event, Holder, aio
from fencehold.doors.grpc.calls import Call
from fencehold.doors.grpc.etcd_service import Keys, Leases, Locked, key_of, text_of
from fencehold.doors.grpc.statuses import Uncoded
from fencehold.errors import LimitExceeded
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.holds import Held
from fencehold.gateway.questions import Questions
from fencehold.gateway.served_client import SHARED, Ask
from fencehold.gateway.upstream import Upstream
from fencehold.gateway.watch import ShardAway
from fencehold.types import CORRECTNESS
from fencehold.wire import etcd_messages as e

ELECTION = "v3electionpb.Election"
VALUE_BYTES_MAX = 512
PROCLAIMED = "/proclaimed"
"""The suffix of the name that carries the proclaimed value."""
_NO_LEADER, _NOT_LEADER = "election: no leader", "election: not leader"
_NO_KEY = '"leader" field must be provided'
_LOOK_MAX = 16
_LOOKS_MAX = 8
"""How many times the leader is looked up again, if it is another one each time."""


class _Leader(NamedTuple):
    """The leader, as etcd describes its key."""

    key: bytes
    lease: int
    term: int
    revision: int
    version: int
    value: bytes


class EtcdElectionServicer:
    """Called by gRPC with etcd's messages."""

    def __init__(self, leases: Leases, keys: Keys, upstream: Upstream, questions: Questions) -> None:
        self._leases = leases
        self._keys = keys
        self._upstream = upstream
        self._questions = questions

    async def campaign(self, request: Any, call: Call) -> Any:
        credentials, said = call.credentials(), _said(request.value)
        locked = await self._keys.acquire(request.name, request.lease, call, said)
        term = locked.held.fence
        seen = await self._seen(text_of(request.name), credentials)
        # A second campaign with the same lease: it leads already, and may have a new value.
        if seen is not None and seen.term == term and seen.value != request.value:
            await self._proclaim(locked, said, seen.version)
        leader = e.LeaderKey(name=request.name, key=locked.key, rev=term, lease=locked.lease)
        return e.CampaignResponse(header=self._leases.header(term), leader=leader)

    async def proclaim(self, request: Any, call: Call) -> Any:
        credentials, said = call.credentials(), _said(request.value)
        locked = self._leading(request, credentials)
        seen = await self._seen(text_of(request.leader.name), credentials)
        if locked is None or seen is None or seen.term != locked.held.fence:
            raise Uncoded(_NOT_LEADER)
        revision = await self._proclaim(locked, said, seen.version)
        return e.ProclaimResponse(header=self._leases.header(revision))

    async def leader(self, request: Any, call: Call) -> Any:
        seen = await self._seen(text_of(request.name), call.credentials())
        if seen is None:
            raise Uncoded(_NO_LEADER)
        return self._told(seen)

    async def observe(self, request: Any, call: Call) -> AsyncIterator[Any]:
        name, credentials = text_of(request.name), call.credentials()
        names = {name, name + PROCLAIMED}
        told: _Leader | None = None
        events = self._questions.events(credentials, CORRECTNESS, name)
        async with aclosing(events) as happened:
            async for event in happened:
                # Else it has only begun, or a shard was away, or there is a gap: something may have happened.
                if isinstance(event, Event) and event.kind != "gap" and names.isdisjoint(event.names):
                    continue
                if isinstance(event, ShardAway) and event.why:
                    continue
                seen = await self._seen(name, credentials)
                if seen is not None and seen != told:
                    told = seen
                    yield self._told(seen)

    async def resign(self, request: Any, call: Call) -> Any:
        locked = self._leading(request, call.credentials())
        if locked is not None:
            await self._keys.release(locked)
            for said in _proclaimed_by(locked):
                await locked.client.withdraw(said.request_id)
        return e.ResignResponse(header=self._leases.header())

    def _leading(self, request: Any, credentials: Credentials) -> Locked | None:
        if not request.HasField("leader"):
            raise Uncoded(_NO_KEY)
        locked = self._keys.find(request.leader.key, credentials)
        return locked if locked is not None and locked.held.fence == request.leader.rev else None

    async def _proclaim(self, locked: Locked, said: dict[str, str], version: int) -> int:
        """Hold the second name again, with the new value; returns the fence of that hold."""
        before = _proclaimed_by(locked)
        ask = Ask(
            (locked.held.names[0] + PROCLAIMED,),
            # Shared: so the new value is there before the old one is gone.
            mode=SHARED,
            wait_ms=0,
            ttl_ms=locked.held.ttl_ms,
            request_id=f"{_prefix(locked)}{version + 1}",
            meta={**said, "term": str(locked.held.fence), "version": str(version + 1)},
        )
        held = await locked.client.acquire(ask)
        if held is None:
            raise Uncoded(_NOT_LEADER)
        for old in before:
            await locked.client.withdraw(old.request_id)
        return held.fence

    async def _seen(self, name: str, credentials: Credentials) -> _Leader | None:
        client = (await self._upstream.shared(credentials)).client
        holder = await _holder_of(client, name)
        for _ in range(_LOOKS_MAX):
            if holder is None:
                return None
            seen, before = await _leader_of(client, name, holder), holder
            if seen.revision > seen.term:
                return seen
            # Nothing was proclaimed, or it was withdrawn as a term has ended: then the next look finds out.
            holder = await _holder_of(client, name)
            if holder is not None and holder.fence == before.fence:
                return seen
        return None

    def _told(self, seen: _Leader) -> Any:
        self._leases.revision = max(self._leases.revision, seen.revision)
        return e.LeaderResponse(
            header=self._leases.header(),
            kv=e.KeyValue(
                key=seen.key,
                create_revision=seen.term,
                mod_revision=seen.revision,
                version=seen.version,
                value=seen.value,
                lease=seen.lease,
            ),
        )


async def _holder_of(client: aio.Client, name: str) -> Holder | None:
    (holder,) = (await client.explain(name, limit=1)).holders[:1] or (None,)
    return holder


async def _leader_of(client: aio.Client, name: str, holder: Holder) -> _Leader:
    lease = _number(holder, "lease", 16) or holder.party.session
    proclaimed = (await client.explain(name + PROCLAIMED, limit=_LOOK_MAX)).holders
    newest = max(
        (
            each
            for each in proclaimed
            if _number(each, "term") == holder.fence and each.party.session == holder.party.session
        ),
        key=lambda each: each.fence,
        default=holder,
    )
    version = _number(newest, "version") or 1
    return _Leader(key_of(name, lease), lease, holder.fence, newest.fence, version, _value(newest))


def _prefix(locked: Locked) -> str:
    """How the request ids begin that a term proclaims with."""
    return f"say:{locked.lease:x}:{locked.held.fence}:"


def _proclaimed_by(locked: Locked) -> list[Held]:
    prefix = _prefix(locked)
    return [held for held in locked.client.holds.live() if held.request_id.startswith(prefix)]


def _said(value: bytes) -> dict[str, str]:
    if len(value) > VALUE_BYTES_MAX:
        raise LimitExceeded(f"a value has at most {VALUE_BYTES_MAX} bytes: keep it elsewhere, and say where")
    return {"value": base64.b64encode(value).decode()} if value else {}


def _value(holder: Holder) -> bytes:
    said = holder.meta.get("value", "") if isinstance(holder.meta, dict) else ""
    try:
        return base64.b64decode(str(said), validate=True)
    except binascii.Error:
        return b""


def _number(holder: Holder, key: str, base: int = 10) -> int:
    said = holder.meta.get(key, "") if isinstance(holder.meta, dict) else ""
    try:
        return int(str(said), base)
    except ValueError:
        return 0
