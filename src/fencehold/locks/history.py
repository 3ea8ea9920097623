"""The past of a name: who held it, when, how that ended, and who waited, as the service remembers it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from fencehold.durations import parsed
from fencehold.errors import UsageError

LIMIT = 100
LIMIT_MAX = 1_000


class PastHold(NamedTuple):
    """A hold, perhaps a current one. What is not known, or does not apply, is None."""

    fence: int
    mode: str | None
    """`exclusive`, `shared` or `permit`."""
    session: int
    client: str | None
    host: str | None
    pid: int | None
    principal: str | None
    owner: str | None
    since: datetime | None
    until: datetime | None
    held_ms: int | None
    waited_ms: int | None
    """How long its holder had waited for it."""
    ended: str | None
    """`released`, `expired`, `broken`, `revoked`; `unknown`: its end was not recorded; None: current."""
    by: str | None
    """Who force-released it."""
    shard: int
    position: int
    """Where in the journal it began."""


class PastWait(NamedTuple):
    """A wait, perhaps a current one."""

    session: int
    client: str | None
    principal: str | None
    owner: str | None
    since: datetime | None
    until: datetime | None
    waited_ms: int | None
    ended: str | None
    """`acquired`, `timed_out`, `cancelled`, `denied`, `turned_away`, `deadlock`, `unknown`; None: current."""
    host: str | None = None
    pid: int | None = None


class Remark(NamedTuple):
    """Something worth looking into."""

    kind: str
    """`overlap`, `late_release`, `break` or `gap`."""
    at: datetime | None
    text: str


class History(NamedTuple):
    """What is known of a name, the newest first."""

    name: str
    holds: tuple[PastHold, ...]
    waits: tuple[PastWait, ...]
    remarks: tuple[Remark, ...]
    known_since: datetime | None
    """Nothing is known from before this."""


When = datetime | timedelta | float | str
"""A time of day (a `datetime`, seconds since 1970, or ISO 8601 text); or how long ago: a `timedelta`, or "1h"."""


def words_of(
    name: str, at: When | None, since: When | None, until: When | None, limit: int, now: float
) -> list[str | int]:
    """The command that asks for it.

    Args:
        now: the time of day, in seconds since 1970.

    Raises:
        UsageError: what was asked for makes no sense.
    """
    if at is not None and (since is not None or until is not None):
        raise UsageError("history(): at= is one instant, since= and until= are a span: give one or the other")
    if not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit is a whole number from 1 to {LIMIT_MAX}, not {limit!r}")
    words: list[str | int] = ["LOCK.HISTORY", name]
    for word, when in (("AT", at), ("SINCE", since), ("UNTIL", until)):
        words += [] if when is None else [word, unix_ms_of(when, now)]
    return [*words, "COUNT", limit]


def unix_ms_of(when: When, now: float) -> int:
    """A time of day, in Unix milliseconds."""
    if isinstance(when, timedelta):
        return max(0, round((now - when.total_seconds()) * 1000))
    if isinstance(when, datetime):
        # One without a time zone is local time, as everywhere in Python.
        return max(0, round(when.timestamp() * 1000))
    if isinstance(when, str):
        return _read(when, now)
    if isinstance(when, bool) or not isinstance(when, int | float) or not 0 <= when < 1e11:
        raise UsageError(f"a time is a datetime, a text such as 2026-11-18T02:41 or '1h', not {when!r}")
    return round(when * 1000)


def _read(text: str, now: float) -> int:
    ago = parsed(text)
    if ago is not None:
        return max(0, round((now - ago) * 1000))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{text[:40]!r} is not a time: write 2026-11-18T02:41:00Z, or how long ago: 90s, 5m, 1h"
        ) from None
    return max(0, round(moment.timestamp() * 1000))


def history_of(reply: bytes | str) -> History:
    """Read the answer to LOCK.HISTORY."""
    found = json.loads(reply)
    return History(
        found["name"],
        tuple(PastHold(**_dated(hold)) for hold in found["holds"]),
        tuple(PastWait(**_dated(wait)) for wait in found["waits"]),
        tuple(Remark(**_dated(remark)) for remark in found["remarks"]),
        _moment(found["known_since"]),
    )


def _dated(seen: dict[str, Any]) -> dict[str, Any]:
    return {key: _moment(value) if key in ("since", "until", "at") else value for key, value in seen.items()}


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
