"""Checks of the journal's storage: its disk, and how many servers of its engine are up.

All of it is as the server sees it (NODE.HEALTH): this command may run on another machine, with another disk.
"""

from collections.abc import Iterator
from typing import Any

from fencehold.cli.findings import Finding

_VOLATILE = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "fuse.sshfs", "virtiofs"})
_ROOM_WANTED_BYTES = 1 << 30
_SLOW_MS, _TOO_FAST_MS = 20.0, 0.02
_GIB = 1 << 30


def engine(health: dict[str, Any]) -> Iterator[Finding]:
    """Findings from what a server reports about its journal's storage."""
    if health["note"]:
        yield Finding("engine", "warn", health["note"], "see the server's log, and its engine's")
    if health["data"] is not None:
        yield file_system(health["file_system"], health["data"])
        yield room(health["disk_free_bytes"], health["disk_total_bytes"], health["data"])
    # An older server does not report this; for a disk with enough room, the disk check says all.
    if health.get("room_what") and (health["data"] is None or health["room"] != "ample"):
        yield journal_room(health)
    if health["members"]:
        yield members(health)
    if health["appends"] and health["engine"] != "memory":
        p50_ms, worst_ms = health["append_p50_us"] / 1000, health["append_max_us"] / 1000
        yield syncing("append", p50_ms, worst_ms, health["appends"], is_disk=health["engine"] == "file")


def file_system(kind: str, place: str) -> Finding:
    """Is what is written there durable?"""
    said = f"{kind or 'unknown'} at {place}"
    if kind in _VOLATILE:
        return Finding("file system", "warn", said, "gone at the next reboot: put --data on a disk")
    if kind in _REMOTE:
        advice = "locks and syncs over a network are not reliable: use a local disk"
        return Finding("file system", "warn", said, advice)
    return Finding("file system", "ok", said)


def room(free_bytes: int, total_bytes: int, place: str) -> Finding:
    """Is there room for more?"""
    said = f"{free_bytes / _GIB:.1f} GiB free of {total_bytes / _GIB:.1f} in {place}"
    if free_bytes < _ROOM_WANTED_BYTES:
        return Finding("room", "warn", said, "make room: a full disk stops the server from granting")
    return Finding("room", "ok", said)


def journal_room(health: dict[str, Any]) -> Finding:
    """Has the journal's storage room for more, or does the server hold back new work because it has not?"""
    used, allowed, note = health["room_used_bytes"], health["room_allowed_bytes"], health["room_note"]
    known = used is not None and allowed is not None
    said = f"{health['room_what']}: {used >> 20} of {allowed >> 20} MiB in use" if known else health["room_what"]
    if health["held_back_s"] is not None:
        said += f"; new work is held back for {health['held_back_s']} s"
        return Finding("journal room", "fail", said, note or "release what is not needed, or give it more room")
    if health["room"] != "ample":
        return Finding("journal room", "warn", said, note or "soon new work will be held back: give it more room")
    return Finding("journal room", "ok", f"{said} ({note})" if note else said)


def syncing(check: str, p50_ms: float, worst_ms: float, count: int, *, is_disk: bool = True) -> Finding:
    """How long does an append take, and is that plausible?"""
    said = f"p50 {p50_ms:.2f} ms, worst of {count}: {worst_ms:.2f} ms"
    if p50_ms > _SLOW_MS:
        what = "use a faster disk" if is_disk else "check the engine's disks, and the network to it"
        return Finding(check, "warn", said, f"every grant waits for one: {what}")
    if p50_ms < _TOO_FAST_MS and is_disk:
        return Finding(check, "warn", said, "too fast for a disk: something only pretends to sync")
    return Finding(check, "ok", said)


def members(health: dict[str, Any]) -> Finding:
    """Are the engine's servers there, and would it survive the loss of one more?"""
    up, total, quorum = health["members_up"], health["members_total"], health["quorum"]
    leads = [one["address"] for one in health["members"] if one["role"] in ("leader", "primary", "standalone")]
    said = f"{up} of {total} up" + (f"; {', '.join(leads)} leads" if leads else "")
    away = "; ".join(f"{one['address']}: {one['note'] or 'away'}" for one in health["members"] if not one["up"])
    if quorum and up < quorum:
        return Finding("members", "fail", said, f"{quorum} are needed, nothing can be granted: {away}")
    if away:
        need = f"; {quorum} are needed" if quorum else ""
        return Finding("members", "warn", said + need, f"start what is down: {away}")
    if quorum and total < 3:
        return Finding("members", "warn", said, "it does not survive the loss of one: run three, or five")
    return Finding("members", "ok", said)
