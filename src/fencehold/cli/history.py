"""`fencehold history`: who held a name, when, with which fence, how it ended, and who waited."""

import json
import re
import time
from datetime import date, datetime
from typing import Annotated, Any

import typer

from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Json, Name, Url
from fencehold.cli.output import ago, clean, console, field_of_time, note, say, say_json, say_rows, to_person
from fencehold.cli.wire import Wire, wired
from fencehold.drivers.resp.wire import Elsewhere
from fencehold.errors import FenceholdError, UsageError
from fencehold.locks.history import LIMIT, LIMIT_MAX, unix_ms_of, words_of

_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")


def moment(text: str) -> float:
    """A time, in seconds since 1970: 2026-11-18T02:41, 02:41 (today), or how long ago: 1h."""
    words = text.strip()
    if _CLOCK.fullmatch(words):
        words = f"{date.today().isoformat()}T{words.zfill(5)}"  # noqa: DTZ011 - people write their own time of day
    try:
        return unix_ms_of(words, time.time()) / 1000
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None


def _when(flag: str, words: str) -> Any:
    return typer.Option(flag, metavar="TIME", parser=moment, help=words, show_default=False)


def history(
    name: Name,
    at: Annotated[
        float | None, _when("--at", "Who held it at this time: 02:41, 2026-11-18T02:41, or 5m ago.")
    ] = None,
    since: Annotated[float | None, _when("--since", "What had not ended by then: a time, or 1h.")] = None,
    until: Annotated[float | None, _when("--until", "What had begun by then.")] = None,
    rows: Annotated[
        int, typer.Option(min=1, max=LIMIT_MAX, help="How many holds, and how many waits, to show.")
    ] = LIMIT,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Show who held a name: when, for how long, with which fence, how it ended, and who waited.

    Points out force-releases, late releases, and times in which two clients believed they held it. Exits 1
    if it was not held then, as far as is known.
    """
    with wired(url) as wire:
        found = json.loads(wire.call(*words_of(name, at, since, until, rows, time.time())))
        elsewhere = "" if found["holds"] else _elsewhere(wire, name)
    if as_json:
        say_json(found)
    else:
        show(found)
    if not found["holds"]:
        raise fail(Exit.NO, f"{clean(name)} was not held{_then(at)}{_as_far_as(found)}", elsewhere)


def _elsewhere(wire: Wire, name: str) -> str:
    """Where a name is at home, if that is another cell: each knows what it granted itself."""
    try:
        wire.call("LOCK.INFO", name)
    except Elsewhere as away:
        return f"a cell knows only what it granted itself: {away}"
    except FenceholdError:
        pass
    return ""


def show(found: dict[str, Any]) -> None:
    """The history of a name, for a terminal; for a pipe a line each."""
    holds = [
        (
            hold["fence"],
            _who(hold),
            _owner(hold),
            *_span(hold, hold["held_ms"]),
            "" if hold["waited_ms"] is None else ago(hold["waited_ms"]),
            _ending(hold),
        )
        for hold in found["holds"]
    ]
    waits = [
        (_who(wait), _owner(wait), *_span(wait, wait["waited_ms"]), wait["ended"] or "waits")
        for wait in found["waits"]
    ]
    if not to_person():
        say_rows((), [("hold", *row) for row in holds] + [("wait", *row) for row in waits], empty="")
        for remark in found["remarks"]:
            say("\t".join(("remark", remark["kind"], field_of_time(_moment(remark["at"])), clean(remark["text"]))))
        return
    if holds:
        say_rows(("FENCE:", "HELD BY…", "OWNER…", "FROM", "UNTIL", "FOR:", "WAITED:", "ENDED "), holds, empty="")
    if waits:
        console().print(f"\n{len(waits)} waited", style="bold")
        say_rows(("WHO…", "OWNER…", "FROM", "UNTIL", "FOR:", "ENDED"), waits, empty="")
    for remark in found["remarks"]:
        at = field_of_time(_moment(remark["at"]))
        console().print(f"\n{remark['kind'].replace('_', ' ')} at {at}: {clean(remark['text'])}", style="yellow")
    if found["holds"]:
        note(f"known since {field_of_time(_moment(found['known_since']))}")


def _who(seen: dict[str, Any]) -> str:
    name = seen["client"] or f"session {seen['session']}"
    where = f" on {seen['host']}" if seen.get("host") else ""
    pid = f" (pid {seen['pid']})" if seen.get("pid") else ""
    return clean(name + where + pid + (f" as {seen['principal']}" if seen["principal"] else ""))


def _owner(seen: dict[str, Any]) -> str:
    return clean(f"{seen['session']}/{seen['owner']}" if seen["owner"] else seen["session"])


def _span(seen: dict[str, Any], lasted_ms: int | None) -> tuple[str, str, str]:
    until = "" if seen["until"] is None else field_of_time(_moment(seen["until"]))
    return field_of_time(_moment(seen["since"])), until, "" if lasted_ms is None else ago(lasted_ms)


def _ending(hold: dict[str, Any]) -> str:
    ended = hold["ended"] or "still held"
    return f"{ended} by {clean(hold['by'])}" if hold["by"] else ended


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _then(at: float | None) -> str:
    return "" if at is None else f" at {field_of_time(datetime.fromtimestamp(at).astimezone())}"


def _as_far_as(found: dict[str, Any]) -> str:
    since = found["known_since"]
    return ", as far as is known" + (f" (since {field_of_time(_moment(since))})" if since else "")
