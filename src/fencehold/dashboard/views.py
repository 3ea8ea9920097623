"""The data of each page of the dashboard, as JSON, made of a picture. Lists are bounded; times are in ms."""

import time
from collections import Counter
from typing import Any

from fencehold import __version__
from fencehold.dashboard.clients import client_rows
from fencehold.dashboard.picture import Picture, ms_of
from fencehold.dashboard.roll import Row, Wanted
from fencehold.dashboard.shard_views import nodes_of_shards, shards
from fencehold.locks.views import Event, Explanation, Holder, Kept, Party, Waiting

MODES = {"X": "exclusive", "S": "shared", "P": "permit"}
A_FEW = 8
EVENTS_SHOWN = 100
_HOT_S = 60
_SINK_LAG_S = 10
_SPAN_S_MAX = 900
_JEOPARDY = 0.34
"""The share of its ttl: a session that has less left has missed a keep-alive."""

Shown = dict[str, Any]


def now_ms() -> int:
    return round(time.time() * 1000)


def status(picture: Picture) -> Shown:
    """How far the picture can be trusted: on every page."""
    facts = picture.facts
    return {
        "position": picture.position,
        "stale_s": round(picture.stale_s(), 1),
        "trouble": picture.trouble,
        "gap": picture.gap,
        "is_loaded": picture.is_loaded,
        "loaded": len(picture.roll),
        "is_sampled": picture.is_sampled,
        "listed_ms": picture.listed_ms,
        "is_cut": picture.roll.is_cut,
        "names": int(facts.get("names_held", "0") or 0),
        "node": facts.get("leader") or facts.get("node", ""),
        "epoch": int(facts.get("epoch", "0") or 0),
        "shards": picture.shards,
        "away": [
            {"shard": shard, "why": why, "for_s": round(picture.away_s(shard), 1)}
            for shard, (why, _) in sorted(picture.away.items())
        ],
    }


def overview(picture: Picture, span_s: int) -> Shown:
    """Figures, charts, nodes, and what needs attention."""
    facts, now = picture.facts, int(time.time())
    numbers = ("names_held", "names_awaited", "waiters", "sessions", "connected_clients", "throttled_clients")
    return {
        "status": status(picture),
        "figures": {key: int(facts.get(key, "0") or 0) for key in numbers}
        | {"grants_per_s": round(picture.rates.grants_per_s, 1)},
        "server": {
            "version": facts.get("fencehold_version", __version__),
            "engine": facts.get("engine", ""),
            "durable": facts.get("durable") == "1",
            "tls": facts.get("tls") == "1",
            "auth": facts.get("auth", ""),
            "busiest": facts.get("busiest_client", ""),
            "room": facts.get("room", ""),
        },
        "chart": picture.rates.chart(now, min(span_s, _SPAN_S_MAX)),
        "nodes": nodes(picture),
        "shards": shards(picture) if picture.shards > 1 else None,
        "health": picture.health,
        "sinks": picture.sinks,
        "longest_waits": _longest_waits(picture),
        "longest_holds": [row_shown(picture, row) for row in picture.roll.oldest(A_FEW)],
        "hottest": _hottest(picture),
        "jeopardy": _jeopardy(picture),
        "remarks": _remarks(picture),
        "events": [event_shown(*each) for each in picture.events_of("", 12)],
    }


def nodes(picture: Picture) -> list[Shown] | None:
    """The leader, then its followers; None: that is for administrators."""
    seen = picture.nodes
    if seen is None:
        return None
    if picture.by_shard is not None:
        return nodes_of_shards(picture.by_shard)
    leader = {
        "node": seen["node"],
        "address": seen["address"],
        "role": seen["role"],
        "position": seen["position"],
        "lag": 0,
        "heard_ms_ago": 0,
        "note": seen["note"],
        "epoch": seen["epoch"],
        "engine": seen["engine"],
    }
    return [leader, *({**one, "role": "standby", "note": ""} for one in seen["standbys"])]


def _longest_waits(picture: Picture) -> list[Shown]:
    waits = ((seen, waiting) for seen in picture.looks.values() for waiting in seen.queue)
    oldest = sorted(waits, key=lambda each: -each[1].age)[:A_FEW]
    return [
        {
            "name": seen.name,
            "client": party_shown(waiting.party),
            "since_ms": ms_of(waiting.since),
            "place": waiting.position + 1,
            "holder": party_shown(seen.holders[0].party) if seen.holders else None,
        }
        for seen, waiting in oldest
    ]


def _hottest(picture: Picture) -> list[Shown]:
    since_s = time.time() - _HOT_S
    counts: Counter[str] = Counter()
    for _, seen in reversed(picture.events):
        if seen.time is not None and seen.time.timestamp() < since_s:
            break
        counts.update(seen.names)
    queues = {row.name: row.waiters for row in picture.roll.longest_queues(A_FEW)}
    names = {*queues, *(name for name, _ in counts.most_common(A_FEW))}
    hot = sorted(names, key=lambda name: (-queues.get(name, 0), -counts[name], name))[:A_FEW]
    return [{"name": name, "waiters": queues.get(name, 0), "events_per_min": counts[name]} for name in hot]


def _jeopardy(picture: Picture) -> list[Shown]:
    now = now_ms()
    found = []
    for row in picture.sessions.values():
        left_ms = row["expires_ms"] - now
        in_doubt = not row["connected"] or left_ms < _JEOPARDY * row["ttl_ms"]
        if in_doubt and (row["holds"] or row["waits"]):
            found.append(row)
    return sorted(found, key=lambda row: row["expires_ms"])[:A_FEW]


def _remarks(picture: Picture) -> list[Shown]:
    """Warnings about the service itself, worst first."""
    remarks: list[Shown] = []
    facts, health = picture.facts, picture.health or {}

    def remark(level: str, text: str) -> None:
        remarks.append({"level": level, "text": text})

    if facts.get("room", "") not in ("ample", ""):
        remark("bad", f"the journal is running out of space ({facts['room']}): {health.get('room_note', '')}")
    down = [one for one in health.get("members", ()) if not one["up"]]
    for one in down:
        remark("bad", f"{health.get('engine')} member {one['address']} is down: {one['note']}")
    for one in nodes(picture) or ():
        if one["note"]:
            remark("warn", f"node {one['node']}: {one['note']}")
        if one["lag"] > 1_000:
            remark("warn", f"standby {one['node']} is {one['lag']} entries behind")
    for sink in picture.sinks:
        if not sink.get("up"):
            remark("warn", f"sink {sink['name']} delivers nothing: see `fencehold sink status` on this machine")
        elif sink.get("lag_seconds", 0) > _SINK_LAG_S:
            remark("warn", f"sink {sink['name']} is {sink['lag_seconds']:.0f} s behind")
    if facts.get("busiest_client"):
        remark("warn", f"most commands come from {facts['busiest_client']} a second")
    for shard, (why, _) in sorted(picture.away.items()):
        remark("bad", f"shard {shard} is away: {why}")
    if int(facts.get("throttled_clients", "0") or 0):
        remark("warn", f"{facts['throttled_clients']} clients send more than their share, and are throttled")
    return remarks


def names(picture: Picture, wanted: Wanted, offset: int, count: int) -> Shown:
    """A page of names."""
    page = picture.roll.page(wanted, offset, count)
    return {
        "status": status(picture),
        "rows": [row_shown(picture, row) for row in page.rows],
        "offset": offset,
        "total": page.total,
        "held": picture.roll.held,
        "awaited": picture.roll.awaited,
        "templates": picture.roll.templates(12) if not offset else [],
    }


def row_shown(picture: Picture, row: Row) -> Shown:
    known, session = picture.party_of(row.session), picture.sessions.get(row.session, {})
    return {
        "name": row.name,
        "mode": MODES.get(row.mode, ""),
        "holders": row.holders,
        "waiters": row.waiters,
        "fence": row.fence,
        "since_ms": row.since_ms,
        "until_ms": row.until_ms or session.get("expires_ms", 0),
        "is_leased": bool(row.until_ms),
        "client": party_shown(known._replace(owner=row.owner)) if known is not None else None,
        "session": row.session,
        "shard": row.shard,
        "principal": session.get("principal", ""),
    }


def name(picture: Picture, seen: Explanation, shard: int) -> Shown:
    """The holders and waiters of a name, and its latest events."""
    return {
        "status": status(picture),
        "shard": shard if picture.shards > 1 else None,
        "name": seen.name,
        "sentence": str(seen),
        "is_taken": seen.is_taken,
        "delayed_s": seen.delayed,
        "holders": [_holder(picture, each) for each in seen.holders],
        "holder_count": seen.holder_count,
        "waiters": [_waiter(picture, each) for each in seen.queue],
        "waiter_count": seen.waiter_count,
        "kept": None if seen.kept is None else _kept(seen.kept),
        "events": [event_shown(*each) for each in picture.events_of(seen.name, EVENTS_SHOWN)],
    }


def _holder(picture: Picture, seen: Holder) -> Shown:
    session = picture.sessions.get(seen.party.session, {})
    return {
        "client": party_shown(seen.party),
        "principal": session.get("principal", ""),
        "connected": session.get("connected"),
        "expires_ms": session.get("expires_ms", 0),
        "ttl_ms": session.get("ttl_ms", 0),
        "fence": seen.fence,
        "mode": MODES.get(seen.mode, ""),
        "limit": seen.limit,
        "since_ms": ms_of(seen.since),
        "age_s": seen.age,
        "until_ms": 0 if seen.left is None else now_ms() + round(1000 * seen.left),
        "meta": seen.meta if isinstance(seen.meta, dict | str) else None,
        "trace": trace_id(seen.trace),
    }


def trace_id(said: str) -> str:
    """The id in a `traceparent`, or the id itself."""
    parts = said.split("-")
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else said[:128]


def _waiter(picture: Picture, seen: Waiting) -> Shown:
    return {
        "client": party_shown(seen.party),
        "principal": picture.sessions.get(seen.party.session, {}).get("principal", ""),
        "place": seen.position + 1,
        "mode": MODES.get(seen.mode, ""),
        "names": seen.names,
        "since_ms": ms_of(seen.since),
        "age_s": seen.age,
        "until_ms": 0 if seen.left is None else now_ms() + round(1000 * seen.left),
    }


def _kept(seen: Kept) -> Shown:
    return {
        "client": party_shown(seen.party),
        "fence": seen.fence,
        "since_ms": ms_of(seen.since),
        "until_ms": now_ms() + round(1000 * seen.left),
    }


def sessions(picture: Picture, search: str, sort: str, offset: int, count: int) -> Shown:
    """A page of sessions."""
    keys = ("client", "host", "principal", "user", "peer", "library")
    known = picture.sessions.values()
    all_rows = client_rows(known, picture.first_of) if picture.shards > 1 else list(known)
    rows = [row for row in all_rows if not search or any(search in str(row[key]) for key in keys)]
    match sort:
        case "holds" | "waits":
            rows.sort(key=lambda row: -row[sort])
        case "expires":
            rows.sort(key=lambda row: row["expires_ms"])
        case "client":
            rows.sort(key=lambda row: (row["client"], row["host"], row["pid"]))
        case _:
            rows.sort(key=lambda row: row["since_ms"])
    return {
        "status": status(picture),
        "rows": rows[offset : offset + count],
        "offset": offset,
        "total": len(rows),
        "connected": sum(row["connected"] for row in all_rows),
    }


def session(picture: Picture, number: int) -> Shown:
    """One session, or all of a client in several shards: what it holds, and what it waits for."""
    numbers = picture.sessions_of(number)
    held = picture.roll.page(Wanted(sessions=numbers), 0, 500)
    rows = [row for each in sorted(numbers) if (row := picture.sessions.get(each)) is not None]
    waits = [
        {"name": seen.name, **_waiter(picture, waiting), "holder": _first_holder(seen)}
        for seen in picture.looks.values()
        for waiting in seen.queue
        if waiting.party.session in numbers
    ]
    known = picture.party_of(number)
    return {
        "status": status(picture),
        "session": client_rows(rows, picture.first_of)[0] if len(rows) > 1 else rows[0] if rows else None,
        "sessions": rows if picture.shards > 1 else [],
        "client": party_shown(known) if known is not None else None,
        "details": {str(key): str(value) for key, value in known.details.items()} if known is not None else {},
        "holds": [row_shown(picture, row) for row in held.rows],
        "hold_count": held.total,
        "waits": waits,
        "events": [event_shown(*each) for each in picture.events_in_order() if each[1].session in numbers][-50:][
            ::-1
        ],
    }


def _first_holder(seen: Explanation) -> Shown | None:
    return party_shown(seen.holders[0].party) if seen.holders else None


def party_shown(seen: Party) -> Shown:
    """A client, and the owner inside it."""
    return {
        "session": seen.session,
        "name": seen.client,
        "host": seen.host,
        "pid": seen.pid,
        "owner": seen.owner,
        "user": seen.user,
        "peer": str(seen.details.get("peer", "")),
    }


def event_shown(index: int, seen: Event) -> Shown:
    return {
        "kind": seen.kind,
        "shard": seen.shard,
        "position": seen.position,
        "index": index,
        "names": seen.names[:20],
        "more": max(0, len(seen.names) - 20),
        "fence": seen.fence,
        "detail": seen.detail,
        "time_ms": ms_of(seen.time),
        "client": party_shown(seen.party._replace(owner=seen.owner)) if seen.party is not None else None,
        "by": party_shown(seen.by) if seen.by is not None else None,
        "missing": None if seen.missing is None else [seen.missing.first, seen.missing.last],
    }
