"""Shapes: what `--json` writes. One thing has the same shape in every command.

1. Instants are ISO 8601 in UTC: `since` and `time` by the clock of the node that led then, `until` by the clock
   here. Durations are seconds: `for_s`, `left_s`.
2. A missing value is null: the `until` of a hold that lives as long as its session, the `pid` of a client
   that named none.
3. Counts end in `_count`; a holder, a waiter or a connected party is a `client`.

The shapes are documented in docs/reference/cli.md; `holders` says the same in words.
"""

import json
from typing import Any

from fencehold.cli.output import iso
from fencehold.locks.views import time_of
from fencehold.runtime.calendar import unix_ms

Shape = dict[str, Any]

MODES = {"X": "exclusive", "S": "shared", "P": "semaphore"}
_CLIENT_FACTS = ("client", "host", "pid", "user")


def instant(at_unix_ms: int | None) -> str | None:
    """A moment of the calendar; None if it is not known, or lies outside of it."""
    moment = time_of(at_unix_ms)
    return None if moment is None else iso(moment)


def seconds(ms: float) -> float:
    return round(ms / 1000, 3)


def since(seen: Shape, logical: str) -> Shape:
    """When something began, as the server dates it, and how long ago that was."""
    return {"since": instant(seen.get("since_unix_ms")), "for_s": seconds(age_ms(seen, logical))}


def age_ms(seen: Shape, logical: str) -> int:
    """How long ago something began; for a server that does not report it, its own count under this key."""
    ms: int = seen["age_ms"] if "age_ms" in seen else seen[logical]
    return ms


def until(ms: int) -> Shape:
    """Something that ends after this time; below zero: it has no end of its own."""
    if ms < 0:
        return {"until": None, "left_s": None}
    return {"until": instant(unix_ms() + ms), "left_s": seconds(ms)}


def client(seen: Shape) -> Shape:
    """Who holds, waits or is connected: the client name before the session number."""
    said = said_by(seen)
    known = said if isinstance(said, dict) else {}
    return {
        "name": known.get("client") or None,
        "host": known.get("host") or None,
        "pid": known.get("pid") or None,
        "user": known.get("user") or None,
        "session": seen["session"],
        "owner": seen.get("owner") or None,
        "meta": {key: known[key] for key in known if key not in _CLIENT_FACTS} if known else said,
    }


def said_by(seen: Shape) -> Any:
    """What a client reported about itself when it opened its session."""
    return read_meta(str(seen.get("session_meta", seen.get("meta", ""))))


def read_meta(text: str) -> Any:
    """Metadata decoded from JSON, or as plain text; None if there is none."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def hold(name: str, seen: Shape) -> Shape:
    """One hold on a name, from LOCK.INFO."""
    return {
        "name": name,
        "fence": seen["fence"],
        "mode": MODES[seen["mode"]],
        "limit": seen["limit"] or None,
        "client": client(seen),
        **since(seen, "held_ms"),
        **until(seen["left_ms"]),
        "meta": read_meta(seen["meta"]),
    }


def waiter(place: int, seen: Shape) -> Shape:
    """One place in the queue of a name; 1 is next."""
    return {
        "place": place,
        "names": seen["names"],
        "mode": MODES[seen["mode"]],
        "client": client(seen),
        **since(seen, "waited_ms"),
        **until(seen["left_ms"]),
    }


def lock(view: Shape) -> Shape:
    """A name with its holds and its queue, from LOCK.INFO: some of them, and how many there are."""
    return {
        "name": view["name"],
        "holds": [hold(view["name"], seen) for seen in view["holds"]],
        "waiters": [waiter(seen["ahead"] + 1, seen) for seen in view["waiters"]],
        "hold_count": view["hold_count"],
        "waiter_count": view["waiter_count"],
        "delayed_s": seconds(view["delayed_ms"]),
        "kept": next((_kept(seen) for seen in view["kept"]), None),
        **_shard_of(view),
    }


def _kept(seen: Shape) -> Shape:
    """The client for which a name is kept for a least time, whether it is held or not."""
    return {
        "fence": seen["fence"],
        "client": client(seen),
        **since(seen, "kept_ms"),
        **until(seen["left_ms"]),
        "meta": read_meta(seen["meta"]),
    }


def listed(seen: Shape) -> Shape:
    """A name in a list, with its oldest hold, from LOCK.LIST."""
    oldest = seen["hold"]
    return {
        "name": seen["name"],
        "mode": MODES.get(seen["mode"]),
        "fence": seen["fence"] or None,
        "hold_count": seen["holders"],
        "waiter_count": seen["waiters"],
        "hold": hold(seen["name"], oldest) if oldest else None,
        "kept": next((_kept(one) for one in seen["kept"]), None),
        **_shard_of(seen),
    }


def _shard_of(seen: Shape) -> Shape:
    """In which shard it is, where there are several."""
    return {"shard": seen["shard"]} if "shard" in seen else {}


def session(seen: Shape) -> Shape:
    """A session, from SESSION.LIST."""
    return {
        "session": seen["session"],
        "client": client(seen),
        "principal": seen.get("principal") or None,
        "connected": bool(seen["connected"]),
        **since(seen, "opened_ms_ago"),
        **until(max(0, seen["expires_in_ms"])),
        "hold_count": seen["holds"],
        "waiter_count": seen["waits"],
        **_shard_of(seen),
    }


def event(seen: Shape) -> Shape:
    """Something that happened, from LOCK.WATCH."""
    by = seen.get("by")
    return {
        "kind": seen["kind"],
        "shard": seen.get("shard", 0),
        "position": seen["position"],
        "index": seen.get("index"),
        "time": instant(seen.get("unix_ms")),
        "client": client(seen) if seen.get("session") else None,
        "principal": seen.get("principal") or None,
        "names": seen.get("names", []),
        "fence": seen.get("fence") or None,
        "mode": MODES.get(seen.get("mode", "")),
        "meta": read_meta(seen.get("meta", "")),
        "detail": seen.get("detail") or None,
        "by": client({"session": None, "session_meta": by}) if by else None,
        "missing": {key: seen[key] for key in ("from", "from_index", "to")} if "from" in seen else None,
    }


_SERVER_WORDS = {
    "fencehold_version": "version",
    "standbys": "standby_count",
    "sessions": "session_count",
    "names_held": "held_name_count",
    "names_awaited": "awaited_name_count",
    "waiters": "waiter_count",
    "connected_clients": "connection_count",
}


def server(facts: Shape) -> Shape:
    """What a node reports in INFO."""
    known = {
        _SERVER_WORDS.get(key, key): None if value == "" else value
        for key, value in facts.items()
        if key != "logical_time_ms"
    }
    return {**known, "durable": bool(facts["durable"]), "logical_s": seconds(facts["logical_time_ms"])}
