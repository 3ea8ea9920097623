"""`fencehold watch`: events as they happen."""

import contextlib
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from fencehold.cli import shapes
from fencehold.cli.options import URL, Json, Prefix, Tier, Url
from fencehold.cli.output import clean, columns, console, field_of_time, hanging, note, say, say_json, to_person
from fencehold.cli.people import called, owner, who
from fencehold.cli.shard_events import followed
from fencehold.cli.tables import cells_of, shares, shortened
from fencehold.cli.wire import CannotConnect, Wire, connect
from fencehold.errors import Unavailable
from fencehold.locks.views import time_of

_AGAIN_S = 0.2
_GAP = "  "
_LEAST = 10
"""Columns reserved for the client, even on a narrow terminal."""
_STYLES = {
    "acquired": "green",
    "queued": "yellow",
    "expired": "red",
    "broken": "red",
    "deadlock": "bold red",
    "timed_out": "red",
    "gap": "bold red",
}


def watch(
    prefix: Prefix = "",
    since: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="POSITION", min=0, help="Start after this position, if its events are still kept."
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=0, help="End after this many events; 0: never.")] = 0,
    tier: Tier = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Show what happens to names, as it happens, until ctrl-c."""
    if to_person() and not as_json:
        note(f"watching {'names that begin with ' + clean(prefix) if prefix else 'everything'}; ctrl-c ends it")

    def follow(shard: int | None) -> Iterator[dict[str, Any]]:
        return Events(url, prefix, since, tier, shard).follow()

    for event in islice(followed(url, since, tier, follow), count or None):
        if as_json:
            say_json(shapes.event(event))
        else:
            _show(event)


class Events:
    """Events as they arrive. After a failover, they continue at the new leader from the same position."""

    def __init__(self, url: str, prefix: str, since: int | None, tier: str = "", shard: int | None = None) -> None:
        self._url = url
        self._shard = shard
        self._tier = tier
        self._prefix = prefix
        self._position = since
        """Of the last event that came, or after which they begin."""
        self._came = 0
        """How many came of that position: one entry has several, and they may not all have come."""

    def follow(self) -> Iterator[dict[str, Any]]:
        """One after the other, until no node can be reached."""
        while True:
            try:
                with contextlib.closing(connect(self._url, tier=self._tier, shard=self._shard)) as wire:
                    yield from self._of(wire)
            except CannotConnect:
                raise
            except Unavailable as lost:
                note(f"fencehold: {lost}; looking for the node that leads")
                time.sleep(_AGAIN_S)

    def _of(self, wire: Wire) -> Iterator[dict[str, Any]]:
        to_skip, since = self._came, self._position
        if since is not None and to_skip:
            since -= 1
        begun = wire.call("LOCK.WATCH", self._prefix, *(() if since is None else ("FROM", since)))
        self._position = begun["position"] if self._position is None else self._position
        while True:
            push = wire.push(None)
            if not push or push[0] != "event":
                continue
            event = push[1]
            if event["position"] == self._position and to_skip:
                to_skip -= 1
                continue
            self._count(event)
            yield event

    def _count(self, event: dict[str, Any]) -> None:
        if event["kind"] == "gap":
            self._position, self._came = event["position"], 0
        elif event["position"] == self._position:
            self._came += 1
        else:
            self._position, self._came = event["position"], 1


def _show(event: dict[str, Any]) -> None:
    kind = event["kind"]
    if kind == "gap":
        missing = "events up to here are missing: too many at once, or a node that did not see them"
        _write(kind, [f"{event['position']:>8}", f"{kind:<13}", hanging(missing, 25) if to_person() else missing])
        return
    session = f"session {owner(event)}"
    whom = f"{who(event)}, {session}" if event.get("session_meta") else session
    when = field_of_time(time_of(event.get("unix_ms")))
    breaker = {"session": 0, "session_meta": event["by"]} if event.get("by") else None
    names = clean(", ".join(event["names"]))
    # What one must copy is whole; the others are as short as the terminal is narrow: sessions and processes are
    # left out before names are shortened.
    ways = [[whom, names, f"by {who(breaker)}" if breaker else ""]]
    ways += [[who(event), names, ways[0][2]], [called(event), names, f"by {called(breaker)}" if breaker else ""]]
    whole = [f"{event['position']:>8}", f"{when:<8}", f"{kind:<13}"]
    rest = [f"fence {event['fence']}" if event["fence"] else ""]
    rest += [f"({clean(event['detail'])})" if event["detail"] else ""]
    whom, names, by = _fitting(ways, [*whole, *rest]) if to_person() else ways[0]
    _write(kind, [*whole, *filter(None, [whom, names, *rest, by])])


def _fitting(ways: list[list[str]], beside: list[str]) -> list[str]:
    """Who, what and by whom, in the first way that fits a terminal beside the others; or the last, shortened."""
    room = columns() + len(_GAP) - sum(cells_of(field) + len(_GAP) for field in beside if field)
    for free in ways:
        widths = [cells_of(text) + len(_GAP) if text else 0 for text in free]
        if sum(widths) <= room:
            return free
    least = [min(width, _LEAST) for width in widths]
    # The names last: they are what one watches.
    fitting = shares(shares(widths, room, [least[0], widths[1], least[2]]), room, least)
    return [text and shortened(text, width - len(_GAP)) for text, width in zip(free, fitting, strict=True)]


def _write(kind: str, fields: list[str]) -> None:
    if to_person():
        console().print(_GAP.join(fields), style=_STYLES.get(kind, ""))
    else:
        say("\t".join(field.strip() for field in fields))
