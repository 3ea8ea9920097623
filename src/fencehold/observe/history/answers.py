"""Answers: the past of a name as it is shown, and what in it deserves a look.

Remarks are made of what is shown:
- *break*: an operator ended a hold.
- *late_release*: a holder wanted to release what it had lost already, so it had worked on without it; or it held
  the name far longer than others do.
- *overlap*: while it did so, another client had the name. A guard refuses its fence; without one, both wrote.
- *gap*: something is not known.
"""

from datetime import UTC, datetime
from statistics import median
from typing import Any

from fencehold.durations import shown
from fencehold.locks.views import party
from fencehold.observe.history.recorder import read_who
from fencehold.observe.history.span import HOLD, WAIT, Gap, Span
from fencehold.observe.history.store import Store

COUNT_MAX = 1_000
_MODES = {"X": "exclusive", "S": "shared", "P": "permit"}
_USUAL_MIN = 5
"""Of so many holds at least it is said what is usual."""
_FAR_LONGER = 10
_LONG_MS_MIN = 1_000
_REMARKS_MAX = 100


def history(
    store: Store,
    name: str,
    since: int | None,
    until: int | None,
    count: int,
    held: list[int] | None = None,
    now: int = 0,
    shard: int = 0,
) -> dict[str, Any]:
    """What is known of a name between two times (the same one twice: at that instant), the newest first.

    `held`: the fences that hold it now, where that is known. `shard`: where it is at home; before a move it was at
    home elsewhere, and what happened there is told, too.
    """
    count = max(1, min(count, COUNT_MAX))
    holds = [_settled(store, span, held, now) for span in store.spans(HOLD, name, since, until, count)]
    waits = store.spans(WAIT, name, since, until, count)
    shards = {shard, *(span.shard for span in (*holds, *waits))}
    gaps = store.gaps(since, until, sorted(shards))
    return {
        "name": name,
        "holds": [_hold(span) for span in holds],
        "waits": [_wait(span) for span in waits],
        "remarks": _remarks(holds, gaps),
        "known_since": instant(store.known_since or None),
    }


def instant(unix_ms: int | None) -> str | None:
    """A time of day as RFC 3339 has it, in UTC; None: not known."""
    if not unix_ms or not 0 < unix_ms < 253_370_764_800_000:
        return None
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{unix_ms % 1000:03d}Z"


def _settled(store: Store, span: Span, held: list[int] | None, now: int) -> Span:
    """A hold that has not ended as far as was recorded, of a name that has no such holder: it ended in a gap."""
    if (
        span.until is not None
        or held is None
        or span.fence in held
        or not store.has_gap_after(span.position, span.shard)
    ):
        return span
    return span._replace(until=now or None, ended="unknown")


def _hold(span: Span) -> dict[str, Any]:
    return {
        "fence": span.fence,
        "mode": _MODES.get(span.mode, span.mode) or None,
        **_party(span),
        "since": instant(span.since),
        "until": instant(span.until),
        "held_ms": None if span.until is None or not span.since else span.until - span.since,
        "waited_ms": span.waited,
        "ended": span.ended,
        "by": _by(span),
        "shard": span.shard,
        "position": span.position,
    }


def _wait(span: Span) -> dict[str, Any]:
    return {
        **_party(span),
        "since": instant(span.since),
        "until": instant(span.until),
        "waited_ms": None if span.until is None or not span.since else span.until - span.since,
        "ended": span.ended,
    }


def _party(span: Span) -> dict[str, Any]:
    client, host, pid, principal = read_who(span.who)
    return {
        "session": span.session,
        "client": client or None,
        "host": host or None,
        "pid": pid,
        "principal": principal or None,
        "owner": span.owner or None,
    }


def _by(span: Span) -> str | None:
    return party(0, "", span.by).described() if span.by else None


def _who(span: Span) -> str:
    client, host, pid, principal = read_who(span.who)
    name = client or f"session {span.session}"
    where = f" on {host}" if host else ""
    return name + where + (f" (pid {pid})" if pid else "") + (f" as {principal}" if principal else "")


def _lasting(ms: int) -> str:
    return shown(round(ms / 1000, 3 if ms < 10_000 else 0))


def _remarks(holds: list[Span], gaps: list[Gap]) -> list[dict[str, Any]]:
    found = [*_breaks(holds), *_lost_and_released(holds), *_long_ones(holds), *(_gap(gap) for gap in gaps)]
    found.sort(key=lambda remark: remark[1], reverse=True)
    return [{"kind": kind, "at": instant(at), "text": text} for kind, at, text in found[:_REMARKS_MAX]]


Remark = tuple[str, int, str]


def _breaks(holds: list[Span]) -> list[Remark]:
    return [
        (
            "break",
            span.until,
            f"fence {span.fence}, held by {_who(span)} for {_lasting(span.until - span.since)}, was "
            f"force-released by {_by(span) or 'an operator'}",
        )
        for span in holds
        if span.ended == "broken" and span.until is not None
    ]


def _lost_and_released(holds: list[Span]) -> list[Remark]:
    found: list[Remark] = []
    for span in holds:
        if span.late is None or span.until is None:
            continue
        late = span.late - span.until
        found.append(
            (
                "late_release",
                span.late,
                f"{_who(span)} released fence {span.fence} {_lasting(late)} after it had {_ended(span)}: it went "
                "on without the lock meanwhile",
            )
        )
        after = [other for other in holds if span.until <= other.since < span.late and other.fence > span.fence]
        if after:
            first = min(after, key=lambda other: other.since)
            found.append(
                (
                    "overlap",
                    first.since,
                    f"{_who(span)} with fence {span.fence} and {_who(first)} with fence {first.fence} both took "
                    f"themselves for the holder for {_lasting(span.late - first.since)}; a guard refuses fence "
                    f"{span.fence} from then on",
                )
            )
    return found


def _ended(span: Span) -> str:
    return {"broken": "been force-released", "revoked": "been revoked"}.get(span.ended or "", "expired")


def _long_ones(holds: list[Span]) -> list[Remark]:
    lengths = [span.until - span.since for span in holds if span.until is not None and span.since]
    if len(lengths) < _USUAL_MIN:
        return []
    usual = median(lengths)
    return [
        (
            "late_release",
            span.until,
            f"{_who(span)} held fence {span.fence} for {_lasting(span.until - span.since)}, where "
            f"{_lasting(round(usual))} is usual",
        )
        for span in holds
        if span.until is not None
        and span.since
        and span.ended == "released"
        and span.until - span.since > max(_FAR_LONGER * usual, _LONG_MS_MIN)
    ]


def _gap(gap: Gap) -> Remark:
    many = gap.last - gap.first + 1
    where = f"{gap.first} to {gap.last}" + (f" of shard {gap.shard}" if gap.shard else "")
    return (
        "gap",
        gap.until,
        f"{many} journal {'entry' if many == 1 else 'entries'} (positions {where}) were not "
        "recorded: the recorder was not running, or could not keep up",
    )
