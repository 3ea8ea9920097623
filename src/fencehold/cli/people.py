"""People: who holds a name or waits for it, since when, in words; what `shapes` says in JSON."""

from typing import Any

from fencehold.cli.output import ago, clean, clock_time
from fencehold.cli.shapes import said_by


def who(seen: dict[str, Any]) -> str:
    """Who holds or waits, in a few words: what the client is called, whose it is, on which host, which process."""
    known = said_by(seen)
    if not isinstance(known, dict):
        return clean(known or f"session {seen['session']}")
    words = [str(known[key]) for key in ("client", "app", "name") if known.get(key)][:1]
    words += [f"({known['user']})"] if known.get("user") else []
    words += [f"on {known['host']}"] if known.get("host") else []
    words += [f"pid {known['pid']}"] if known.get("pid") else []
    words += [f"from {known['peer']}"] if known.get("peer") else []
    return clean(" ".join(words)) or f"session {seen['session']}"


def holder(seen: dict[str, Any] | None, count: int) -> str:
    """The oldest of so many holders, and how many more there are."""
    if seen is None:
        return ""
    return who(seen) + (f" +{count - 1}" if count > 1 else "")


def holding(view: dict[str, Any]) -> str:
    """Who has a name, since when and with which fence, and how many wait: one clause, of what LOCK.INFO tells."""
    waiting = f"; {_waiting(len(view['waiters']))}"
    if not view["holds"]:
        return unheld(view) + (waiting if view["waiters"] else "")
    first = view["holds"][0]
    more = f" and {len(view['holds']) - 1} more" if len(view["holds"]) > 1 else ""
    began = f"since {clock_time(-first['held_ms'])} ({ago(first['held_ms'])})"
    ends = "" if first["left_ms"] < 0 else f", until {clock_time(first['left_ms'])}"
    return f"held by {who(first)}{more} {began}{ends}, fence {first['fence']}{waiting}"


def unheld(view: dict[str, Any]) -> str:
    """A name that nobody holds may still not be granted."""
    for kept in view["kept"]:
        return f"kept for {who(kept)} until {clock_time(kept['left_ms'])}, its least time"
    return f"free in {ago(view['delayed_ms'])} (lock-delay)" if view["delayed_ms"] else "free"


def _waiting(count: int) -> str:
    return "nobody waits" if not count else "1 waits" if count == 1 else f"{count} wait"
