"""Checks of the server's load: does one client flood it, and does it accept new work?

The server reports that in INFO and NODE.HEALTH; an older one does not, and then there are no findings.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fencehold.cli.findings import Finding

_FULL = 0.8
"""The share of the journal's room that may be used before the check mentions it."""
_MIB = 1 << 20
_HELD_BACK = "holds can still be released and renewed; make room, or reduce the load"
_FLOODED = "others are still served round robin: find out why it sends so much"


def clients(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Which client floods the server, from INFO."""
    if "throttled_clients" not in facts:
        return
    throttled, busiest = int(facts["throttled_clients"] or 0), _busiest(str(facts.get("busiest_client", "")))
    if not throttled:
        yield Finding(
            "clients", "ok", "no client floods the server" + (f"; the busiest: {busiest}" if busiest else "")
        )
    elif not busiest:
        yield Finding("clients", "warn", f"{_count(throttled)} throttled", _FLOODED)
    else:
        more = f"; {_count(throttled - 1)}, too" if throttled > 1 else ""
        yield Finding("clients", "warn", f"{busiest} and is throttled{more}", _FLOODED)


def work(health: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether new work is accepted, and how much room is left for it, from NODE.HEALTH."""
    if held_back := health.get("held_back"):
        yield Finding("new work", "warn", f"new work is held back: {held_back}", _HELD_BACK)
    used, allowed = health.get("room_used_bytes"), health.get("room_allowed_bytes")
    if used is None or not allowed:
        return
    said = f"{used / _MIB:.0f} of {allowed / _MIB:.0f} MiB used"
    if used >= _FULL * allowed:
        yield Finding("quota", "warn", said, "new work is refused before it is full: raise it, or make room")
    else:
        yield Finding("quota", "ok", said)


def _busiest(said: str) -> str:
    """`NAME PEER RATE` in words; the name may have spaces. Other text is returned as it is; empty: no client."""
    name, _, rest = said.rpartition(" ")
    name, _, peer = name.rpartition(" ")
    if not name or not rest.isdecimal():
        return said
    rate = f"{int(rest):,}".replace(",", " ")
    return f"{name} at {peer} sends {rate} commands/s"


def _count(clients: int) -> str:
    return f"{clients} client is" if clients == 1 else f"{clients} clients are"
