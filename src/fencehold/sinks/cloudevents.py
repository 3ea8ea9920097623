"""CloudEvents 1.0: the format of events for other systems.

The id, the source and the sequence are made of the place of the event and nothing else, so that a consumer can
detect duplicates. What is unknown is left out, as the specification requires.
"""

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from fencehold.locks.views import WHOLE, Event
from fencehold.sinks.port import Record

SPEC = "1.0"
CONTENT_TYPE = "application/cloudevents+json"
TYPES = {
    "acquired": "io.fencehold.lock.acquired.v1",
    "queued": "io.fencehold.lock.queued.v1",
    "busy": "io.fencehold.lock.busy.v1",
    "refused": "io.fencehold.lock.refused.v1",
    "extended": "io.fencehold.lock.extended.v1",
    "released": "io.fencehold.lock.released.v1",
    "expired": "io.fencehold.lock.expired.v1",
    "broken": "io.fencehold.lock.broken.v1",
    "revoked": "io.fencehold.lock.revoked.v1",
    "fence_raised": "io.fencehold.lock.fence-raised.v1",
    "timed_out": "io.fencehold.lock.timed-out.v1",
    "cancelled": "io.fencehold.lock.cancelled.v1",
    "denied": "io.fencehold.lock.denied.v1",
    "turned_away": "io.fencehold.lock.turned-away.v1",
    "deadlock": "io.fencehold.lock.deadlock.v1",
    "opened": "io.fencehold.session.opened.v1",
    "suspended": "io.fencehold.session.suspended.v1",
    "session_ended": "io.fencehold.session.ended.v1",
    "policy_changed": "io.fencehold.service.policy-changed.v1",
    "limits_set": "io.fencehold.service.limits-set.v1",
    "announced": "io.fencehold.service.announced.v1",
    "map_changed": "io.fencehold.placement.map-changed.v1",
    "slots_closed": "io.fencehold.placement.slots-closed.v1",
    "slots_opened": "io.fencehold.placement.slots-opened.v1",
    "slots_forced": "io.fencehold.placement.slots-forced.v1",
    "home_closing": "io.fencehold.placement.home-closing.v1",
    "home_closed": "io.fencehold.placement.home-closed.v1",
    "home_opened": "io.fencehold.placement.home-opened.v1",
    "homes_lapsed": "io.fencehold.placement.homes-lapsed.v1",
    "homes_resumed": "io.fencehold.placement.homes-resumed.v1",
    "gap": "io.fencehold.stream.gap.v1",
}
"""The type of each kind. A kind that this version does not know is `io.fencehold.other.KIND.v1`."""

_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_BY_TIME = frozenset({"expired", "timed_out"})
_BY_SERVICE = frozenset(
    {"limits_set", "announced", "gap", "slots_closed", "slots_opened", "homes_lapsed", "homes_resumed"}
)


def record_of(event: Event, cluster: str) -> Record:
    """An event as it is delivered; a gap comes after all of the position that it ends with."""
    attributes = _attributes(event, cluster)
    data = _json(_data(event))
    # The data are written once: they are the larger part, and this is done for every event.
    body = _json(attributes).removesuffix(b"}") + b',"data":' + data + b"}"
    index = WHOLE if event.kind == "gap" else event.index
    return Record(
        event.shard,
        event.position,
        index,
        attributes["id"],
        attributes["type"],
        attributes["partitionkey"],
        attributes.get("subject", ""),
        body,
        tuple(attributes.items()),
        data,
        event.kind,
    )


def _attributes(event: Event, cluster: str) -> dict[str, str]:
    index = WHOLE if event.kind == "gap" else event.index
    found = {
        "specversion": SPEC,
        "id": f"{cluster}-{event.shard}-{event.position}-{index}",
        "source": f"/fencehold/{cluster}/{event.shard}",
        "type": TYPES.get(event.kind) or f"io.fencehold.other.{event.kind.replace('_', '-')}.v1",
        "sequence": f"{event.position:020}.{index:016}",
        "partitionkey": _key(event),
        "datacontenttype": "application/json",
    }
    if event.names:
        found["subject"] = ",".join(event.names)
    if event.unix_ms is not None and event.time is not None:
        found["time"] = rfc3339(event.unix_ms)
    found |= _auth(event)
    trace = event.meta.get("traceparent") if isinstance(event.meta, dict) else None
    if isinstance(trace, str) and trace.isascii() and len(trace) <= 64:
        found["traceparent"] = trace
    return found


def _key(event: Event) -> str:
    if event.names:
        return event.names[0]
    return f"session-{event.session}" if event.session else "service"


def _auth(event: Event) -> dict[str, str]:
    if event.kind in _BY_SERVICE or (event.kind in _BY_TIME and not event.principal):
        return {"authtype": "system"}
    if event.kind in _BY_TIME:
        return {"authtype": "system", "authid": event.principal}
    if event.principal:
        return {"authtype": "user", "authid": event.principal}
    return {"authtype": "unauthenticated"}


def rfc3339(unix_ms: int) -> str:
    """A wall-clock time, in UTC with milliseconds."""
    return f"{_second(unix_ms // 1000)}.{unix_ms % 1000:03}Z"


@lru_cache(maxsize=64)
def _second(unix_s: int) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%M:%S}"


def _data(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": event.kind, "shard": event.shard, "position": event.position}
    if event.missing is not None:
        missing = {"from": event.missing.first, "from_index": event.missing.after, "to": event.missing.last}
        return {**found, **missing, **({"detail": event.detail} if event.detail else {})}
    party, by = event.party, event.by
    more = {
        "names": list(event.names),
        "fence": event.fence,
        "mode": event.mode,
        "session": event.session,
        "client": event.client,
        "host": "" if party is None else party.host,
        "pid": 0 if party is None else party.pid,
        "principal": event.principal,
        "owner": event.owner,
        "detail": event.detail,
        "meta": event.meta,
        "by": None if by is None else {key: value for key, value in _breaker(by).items() if value},
    }
    found["index"] = event.index
    found |= {key: value for key, value in more.items() if value not in ("", 0, None, [], {})}
    found["at_ms"] = event.at_ms
    if event.unix_ms is not None:
        found["unix_ms"] = event.unix_ms
    return found


def _breaker(by: Any) -> dict[str, Any]:
    return {"client": by.client, "host": by.host, "pid": by.pid, "user": by.user}


def _json(value: Any) -> bytes:
    return _encoded(value).encode("utf-8", "replace")
