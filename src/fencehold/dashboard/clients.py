"""Clients: the sessions of one client in several shards, joined.

A client of the SDK has a session in each shard that it uses, with the same description in each. Sessions with the
same description, of one principal, are one client's, if there is at most one of them in each shard. Where there
are two in one shard, as of a process with two clients of one name, it is unknown which belong together: they stay
apart, so that no false circle of waits is shown.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fencehold.locks.views import Party

SessionRow = dict[str, Any]


def joined(rows: Iterable[SessionRow], parties: Mapping[int, Party]) -> dict[int, int]:
    """For each session the first of its client."""
    alike: dict[str, list[SessionRow]] = {}
    for row in rows:
        if (known := parties.get(row["session"])) is not None and known.details:
            said = json.dumps(known.details, sort_keys=True, default=str)
            alike.setdefault(f"{row['principal']} {said}", []).append(row)
    found: dict[int, int] = {}
    for same in alike.values():
        if len({row["shard"] for row in same}) == len(same):
            first = min(row["session"] for row in same)
            found |= {row["session"]: first for row in same}
    return found


def client_rows(rows: Iterable[SessionRow], first_of: Mapping[int, int]) -> list[SessionRow]:
    """A row for each client: of those with several sessions, all of these together."""
    clients: dict[int, list[SessionRow]] = {}
    for row in rows:
        clients.setdefault(first_of.get(row["session"], row["session"]), []).append(row)
    return [_together(same) for same in clients.values()]


def _together(rows: list[SessionRow]) -> SessionRow:
    """Trusted until the first of them ends; gone if one is."""
    first = min(rows, key=lambda row: row["session"])
    soonest = min(rows, key=lambda row: row["expires_ms"])
    return {
        **first,
        "shards": sorted(row["shard"] for row in rows),
        "connected": all(row["connected"] for row in rows),
        "since_ms": min(row["since_ms"] for row in rows),
        "kept_alive_ms": min(row["kept_alive_ms"] for row in rows),
        "expires_ms": soonest["expires_ms"],
        "ttl_ms": soonest["ttl_ms"],
        "holds": sum(row["holds"] for row in rows),
        "waits": sum(row["waits"] for row in rows),
    }


def session_row(
    row: Mapping[bytes, Any], number: int, shard: int, known: Party, before: Mapping[str, Any], now_ms: int
) -> SessionRow:
    """A session from SESSION.LIST, under a number that no other has."""
    details = known.details
    runs = [("fencehold", details.get("version")), ("Python", details.get("python"))]
    library = details.get("library") or ", ".join(f"{name} {version}" for name, version in runs if version)
    left_ms = row[b"expires_in_ms"]
    ttl_ms = row.get(b"ttl_ms") or max(left_ms, before.get("ttl_ms", 0))
    return {
        "session": number,
        "shard": shard,
        "client": known.client,
        "host": known.host,
        "pid": known.pid,
        "user": known.user,
        "peer": str(details.get("peer", "")),
        "library": str(library),
        "via": str(details.get("via", "")),
        "principal": row[b"principal"].decode(),
        "connected": bool(row[b"connected"]),
        "since_ms": row.get(b"since_unix_ms") or now_ms - row[b"opened_ms_ago"],
        "expires_ms": now_ms + left_ms,
        "ttl_ms": ttl_ms,
        "kept_alive_ms": now_ms - (ttl_ms - left_ms),
        "holds": row[b"holds"],
        "waits": row[b"waits"],
    }
