"""Holders and waiters of a name, since when, in words; `shapes` has the same in JSON."""

from typing import Any

from fencehold.cli.output import ago, clean, clock_time, field_of_time, time_of_day
from fencehold.cli.shapes import age_ms, said_by
from fencehold.locks.views import party, time_of


def who(seen: dict[str, Any]) -> str:
    """Who holds or waits, in a few words: the client name, user, host and process."""
    return clean(party(seen["session"], "", said_by(seen)).described())


def called(seen: dict[str, Any]) -> str:
    """The same in a word or two: the user, or the client name."""
    known = party(seen["session"], "", said_by(seen))
    whose = f"{known.user}@{known.host}" if known.host else known.user
    return clean(whose if known.user else known.client or f"session {known.session}")


def owner(seen: dict[str, Any]) -> str:
    """The session, and who in it: a task, a thread."""
    return f"{seen['session']}/{clean(seen['owner'])}" if seen["owner"] else str(seen["session"])


def began(seen: dict[str, Any], counted: str) -> tuple[str, str]:
    """Since when, and for how long that is: two fields of a line."""
    return field_of_time(time_of(seen.get("since_unix_ms"))), ago(age_ms(seen, counted))


def holder(seen: dict[str, Any] | None, count: int) -> str:
    """The oldest of this many holders, and how many more there are."""
    if seen is None:
        return ""
    return who(seen) + (f" +{count - 1}" if count > 1 else "")


def holding(view: dict[str, Any]) -> str:
    """Who holds a name, since when and with which fence, and how many wait: one clause, from LOCK.INFO."""
    waiting = f"; {_waiting(view['waiter_count'])}"
    if not view["holds"]:
        return unheld(view) + (waiting if view["waiter_count"] else "")
    first = view["holds"][0]
    more = f" and {view['hold_count'] - 1} more" if view["hold_count"] > 1 else ""
    since, age = time_of_day(time_of(first.get("since_unix_ms"))), ago(age_ms(first, "held_ms"))
    ends = "" if first["left_ms"] < 0 else f", until {clock_time(first['left_ms'])}"
    return f"held by {who(first)}{more} since {since} ({age}){ends}, fence {first['fence']}{waiting}"


def unheld(view: dict[str, Any]) -> str:
    """A free name may still be ungrantable: kept, or in its lock-delay."""
    for kept in view["kept"]:
        return f"kept for {who(kept)} until {clock_time(kept['left_ms'])}, its least time"
    return f"free in {ago(view['delayed_ms'])} (lock-delay)" if view["delayed_ms"] else "free"


def _waiting(count: int) -> str:
    return "no waiters" if not count else "1 waits" if count == 1 else f"{count} wait"
