"""Translation between messages and the gateway's values. It decides nothing."""

import json
from datetime import datetime
from typing import Any

from fencehold import Event, Explanation, Holder, Party, Waiting
from fencehold.doors.grpc.calls import Call
from fencehold.errors import UsageError
from fencehold.gateway.holds import Held
from fencehold.gateway.served_client import EXCLUSIVE, PERMIT, SHARED, Ask
from fencehold.gateway.watch import Begun, ShardAway, Told
from fencehold.locks.history import History, PastHold, PastWait
from fencehold.locks.places import Place, Places
from fencehold.locks.views import WHOLE
from fencehold.types import CORRECTNESS, EFFICIENCY, Tier
from fencehold.wire import messages as m

_TIERS: dict[int, Tier] = {
    m.TIER_UNSPECIFIED: CORRECTNESS,
    m.TIER_CORRECTNESS: CORRECTNESS,
    m.TIER_EFFICIENCY: EFFICIENCY,
}
_TIER_NUMBERS = {CORRECTNESS: m.TIER_CORRECTNESS, EFFICIENCY: m.TIER_EFFICIENCY}
_MODES: dict[int, str] = {
    m.MODE_UNSPECIFIED: EXCLUSIVE,
    m.MODE_EXCLUSIVE: EXCLUSIVE,
    m.MODE_SHARED: SHARED,
    m.MODE_PERMIT: PERMIT,
}
_MODE_NUMBERS = {EXCLUSIVE: m.MODE_EXCLUSIVE, SHARED: m.MODE_SHARED, PERMIT: m.MODE_PERMIT}
_PAST_MODES = {"exclusive": m.MODE_EXCLUSIVE, "shared": m.MODE_SHARED, "permit": m.MODE_PERMIT}
_META_BYTES_MAX = 1_024


def attempts_before(call: Call) -> int:
    """How many times gRPC's own retry has sent this call before."""
    said = call.metadata("grpc-previous-rpc-attempts")
    return int(said) if said.isascii() and said.isdecimal() else 0


def tier_of(number: int) -> Tier:
    """The tier of a request."""
    if number not in _TIERS:
        raise UsageError(f"unknown tier {number}")
    return _TIERS[number]


def ask_of(request: m.LockRequest | m.MultiLockRequest, call: Call) -> Ask:
    """The acquire that a request asks for."""
    if request.mode not in _MODES:
        raise UsageError(f"unknown mode {request.mode}")
    names = (request.name,) if isinstance(request, m.LockRequest) else tuple(request.names)
    return Ask(
        names,
        tier=tier_of(request.tier),
        mode=_MODES[request.mode],
        permits=request.permits if isinstance(request, m.LockRequest) else 0,
        wait_ms=request.wait_ms if request.HasField("wait_ms") else None,
        ttl_ms=request.ttl_ms,
        delay_ms=request.delay_ms if isinstance(request, m.LockRequest) else 0,
        request_id=request.request_id,
        owner=request.owner,
        meta=_meta(dict(request.meta), call),
        is_several=isinstance(request, m.MultiLockRequest),
    )


def hold(held: Held, at_most_s: float) -> m.Hold:
    """A hold, as it is now."""
    return m.Hold(
        hold_id=held.hold_id,
        names=held.names,
        fence=held.fence,
        tier=_TIER_NUMBERS[held.tier],
        mode=_MODE_NUMBERS[held.mode],
        safe_for_ms=held.safe_for_ms(at_most_s),
        ttl_ms=held.ttl_ms,
        request_id=held.request_id,
    )


def explanation(seen: Explanation) -> m.Explanation:
    """The holders and waiters of a name."""
    return m.Explanation(
        name=seen.name,
        holders=[_holder(one) for one in seen.holders],
        waiters=[_waiter(one) for one in seen.queue],
        holder_count=seen.holder_count,
        waiter_count=seen.waiter_count,
        delayed_ms=int(1000 * seen.delayed),
        sentence=str(seen),
    )


def summary(row: dict[bytes, Any]) -> m.LockSummary:
    """One name of a list."""
    return m.LockSummary(
        name=row[b"name"].decode(),
        mode=_mode(row[b"mode"].decode()),
        holder_count=row[b"holders"],
        waiter_count=row[b"waiters"],
        fence=row[b"fence"],
    )


def places(request: m.WatchRequest, shards: int) -> Places:
    """The places after which a watch begins; none: from now on."""
    if request.from_places and request.from_position:
        raise UsageError("from_places and from_position exclude each other")
    if request.from_position and shards > 1:
        raise UsageError(f"a position is one shard's, and this service has {shards}: use from_places")
    if request.from_position:
        index = request.from_index if request.HasField("from_index") else WHOLE
        return {0: (request.from_position, index)}
    return {each.shard: _place_of(each) for each in request.from_places if each.position}


def _place_of(said: m.ShardPlace) -> Place:
    return said.position, said.index if said.HasField("index") else WHOLE


def _place(shard: int, place: Place) -> m.ShardPlace:
    position, index = place
    return m.ShardPlace(shard=shard, position=position, index=None if index == WHOLE else index)


def told(seen: Told) -> m.WatchResponse:
    """What a watcher receives."""
    match seen:
        case Begun(places, 1):
            return m.WatchResponse(watching=m.Watching(position=places[0][0]))
        case Begun(places, _):
            found = [_place(*each) for each in sorted(places.items())]
            return m.WatchResponse(watching=m.Watching(places=found))
        case ShardAway(shard, why, place):
            where = None if place is None else _place(shard, place)
            away = m.ShardAway(shard=shard, is_away=bool(why), detail=why, place=where)
            return m.WatchResponse(shard_away=away)
        case Event():
            return event(seen)


def event(seen: Event) -> m.WatchResponse:
    """An event, or a gap."""
    if seen.kind == "gap":
        first, _, after = seen.missing or (0, 0, 0)
        gap = m.Gap(
            position=seen.position, detail=seen.detail, from_position=first, from_index=after, shard=seen.shard
        )
        return m.WatchResponse(gap=gap)
    kinds: dict[str, Any] = dict(m.EventKind.items())
    return m.WatchResponse(
        event=m.Event(
            kind=kinds.get(f"EVENT_KIND_{seen.kind.upper()}", m.EVENT_KIND_UNSPECIFIED),
            kind_text=seen.kind,
            position=seen.position,
            index=seen.index,
            names=seen.names,
            fence=seen.fence,
            party=None if seen.party is None else _party(seen.party),
            detail=seen.detail,
            unix_ms=seen.unix_ms or 0,
            shard=seen.shard,
            principal=seen.principal,
            by=None if seen.by is None else _party(seen.by),
        )
    )


def history(seen: History) -> m.HistoryResponse:
    """The past of a name."""
    return m.HistoryResponse(
        holds=[_past_hold(one) for one in seen.holds],
        waits=[_past_wait(one) for one in seen.waits],
        remarks=[m.Remark(kind=one.kind, at_unix_ms=_unix_ms(one.at) or 0, text=one.text) for one in seen.remarks],
        known_since_unix_ms=_unix_ms(seen.known_since) or 0,
    )


def _past_hold(seen: PastHold) -> m.PastHold:
    return m.PastHold(
        fence=seen.fence,
        mode=_PAST_MODES.get(seen.mode or "", m.MODE_UNSPECIFIED),
        party=_past_party(seen),
        principal=seen.principal or "",
        since_unix_ms=_unix_ms(seen.since) or 0,
        until_unix_ms=_unix_ms(seen.until),
        waited_ms=seen.waited_ms,
        ended=seen.ended or "",
        by=seen.by or "",
        shard=seen.shard,
        position=seen.position,
    )


def _past_wait(seen: PastWait) -> m.PastWait:
    return m.PastWait(
        party=_past_party(seen),
        principal=seen.principal or "",
        since_unix_ms=_unix_ms(seen.since) or 0,
        until_unix_ms=_unix_ms(seen.until),
        ended=seen.ended or "",
    )


def _past_party(seen: PastHold | PastWait) -> m.Party:
    owner, client, host = seen.owner or "", seen.client or "", seen.host or ""
    return m.Party(session=seen.session, owner=owner, client=client, host=host, pid=max(0, seen.pid or 0))


def _unix_ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(1000 * moment.timestamp())


def _holder(seen: Holder) -> m.Holder:
    return m.Holder(
        party=_party(seen.party),
        fence=seen.fence,
        mode=_mode(seen.mode),
        permits=seen.limit,
        held_for_ms=int(1000 * seen.held_for),
        left_ms=None if seen.left is None else int(1000 * seen.left),
        meta_json=json.dumps(seen.meta, ensure_ascii=False) if seen.meta not in ("", None) else "",
        since_unix_ms=0 if seen.since is None else int(1000 * seen.since.timestamp()),
    )


def _waiter(seen: Waiting) -> m.Waiter:
    return m.Waiter(
        position=seen.position,
        party=_party(seen.party),
        mode=_mode(seen.mode),
        names=seen.names,
        waited_for_ms=int(1000 * seen.waited_for),
        left_ms=None if seen.left is None else int(1000 * seen.left),
    )


def _party(seen: Party) -> m.Party:
    return m.Party(
        session=seen.session, owner=seen.owner, client=seen.client, host=seen.host, pid=max(0, seen.pid)
    )


def _mode(word: str) -> m.Mode:
    return _MODE_NUMBERS.get(word, m.MODE_UNSPECIFIED)


def _meta(said: dict[str, str], call: Call) -> dict[str, str]:
    trace = call.metadata("traceparent")
    if trace and "traceparent" not in said:
        said["traceparent"] = trace[:64]
    if sum(len(key.encode()) + len(value.encode()) for key, value in said.items()) > _META_BYTES_MAX:
        raise UsageError(f"meta has at most {_META_BYTES_MAX} bytes, keys and values together")
    return said
