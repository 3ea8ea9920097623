"""`fencehold watch`: events as they happen."""

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer

from fencehold.cli import shapes
from fencehold.cli.holders import called, owner, who
from fencehold.cli.options import URL, Json, Prefix, Tier, Url
from fencehold.cli.output import clean, columns, console, field_of_time, hanging, note, say, say_json, to_person
from fencehold.cli.shard_events import ShardEvents
from fencehold.cli.tables import cells_of, shares, shortened
from fencehold.cli.wire import CannotConnect, Wire, connect
from fencehold.errors import Unavailable, UsageError
from fencehold.locks.places import Place, read_places
from fencehold.locks.views import WHOLE, time_of

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
    "refused": "red",
    "suspended": "yellow",
    "gap": "bold red",
}


def place_of(said: str) -> Place:
    """A position, or one event of it: `1841`, `1841.2`."""
    position, dot, index = said.partition(".")
    if not position.isdecimal() or (dot and not index.isdecimal()) or len(said) > 40:
        raise typer.BadParameter(f"{said} is not a place of an event: write POSITION or POSITION.INDEX, as 1841.2")
    return int(position), int(index) if dot else WHOLE


def places_of(said: str | None, shards: int) -> dict[int, Place]:
    """Where each of this many shards is to begin."""
    if said is None:
        return {}
    if shards == 1 and "," not in said and "-" not in said:
        return {0: place_of(said)}
    if shards > 1 and "," not in said:
        raise UsageError(
            f"--after {said} is a place in one shard, and this service has {shards}: give one for each"
        )
    return dict(read_places(said.replace(".", "-"), shards))


def watch(
    prefix: Prefix = "",
    after: Annotated[
        str | None,
        typer.Option(
            "--after",
            "--from",
            metavar="PLACE",
            help="Start after this event, as the first column has it, or after all of a position. With several "
            "shards (2/1841.2 is in shard 2): after a place in each, 17-0,9-2,,40, as printed at the end. A place "
            "that has not happened yet is refused.",
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

    def make(shard: int | None, place: Place | None) -> Events:
        return Events(url, prefix, place, tier, shard)

    events = ShardEvents(url, tier, partial(places_of, after), make)
    can_go_on = events.shards > 1
    try:
        for event in islice(events.follow(), count or None):
            if as_json:
                say_json(shapes.event(event))
            else:
                _show(event, f"{event['shard']}/" if events.shards > 1 else "")
    except UsageError:
        # The place itself was refused.
        can_go_on = False
        raise
    finally:
        if can_go_on:
            # No single event has it: each has the place in its own shard.
            note(f"to continue from here: --after {events.places}")


class Events:
    """Events as they arrive. After a failover, they continue at the new leader from the same place."""

    def __init__(
        self, url: str, prefix: str, after: Place | None, tier: str = "", shard: int | None = None
    ) -> None:
        self._url = url
        self._shard = shard
        self._tier = tier
        self._prefix = prefix
        self._place = after
        """Of the last event that came, or after which they begin."""
        self.begun = after

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
        since = () if self._place is None else ("FROM", self._place[0], "INDEX", self._place[1])
        begun = wire.call("LOCK.WATCH", self._prefix, *since)
        self._place = self._place or (begun["position"], begun["index"])
        self.begun = self.begun or self._place
        while True:
            push = wire.push(None)
            if not push or push[0] != "event":
                continue
            event = push[1]
            place = event["position"], WHOLE if event["kind"] == "gap" else event["index"]
            if place > self._place:
                self._place = place
                yield event


def _show(event: dict[str, Any], shard: str = "") -> None:
    """One event; `shard` is shown before its place, where there are several."""
    kind = event["kind"]
    if kind == "gap":
        missing = (
            f"positions {event['from']} to {event['to']} are missing: the service does not know them any more"
        )
        place = f"{shard}{event['position']}".rjust(10)
        _write(kind, [place, f"{kind:<14}", hanging(missing, 28) if to_person() else missing])
        return
    session = f"session {owner(event)}" if event["session"] else ""
    whom = f"{who(event)}, {session}" if event.get("session_meta") else session or event["principal"]
    when = field_of_time(time_of(event.get("unix_ms")))
    breaker = {"session": 0, "session_meta": event["by"]} if event.get("by") else None
    names = clean(", ".join(event["names"]))
    # What a user may copy is whole; the others are shortened to fit the terminal: sessions and processes are
    # left out before names are shortened.
    ways = [[whom, names, f"by {who(breaker)}" if breaker else ""]]
    if event["session"]:
        shortest = [called(event), names, f"by {called(breaker)}" if breaker else ""]
        ways += [[who(event), names, ways[0][2]], shortest]
    whole = [f"{shard}{event['position']}.{event['index']}".rjust(10), f"{when:<8}", f"{kind:<14}"]
    rest = [f"fence {event['fence']}" if event["fence"] else ""]
    detail = f"({clean(event['detail'])})" if event["detail"] else ""
    rest += [detail]
    whom, names, by = _fitting(ways, [*whole, *rest]) if to_person() else ways[0]
    told = [*whole, *filter(None, [whom, names, *rest, by])]
    if to_person() and detail and sum(cells_of(field) + len(_GAP) for field in told) > columns() + len(_GAP):
        # The detail is dropped before a line is broken; `--json` has it.
        told.remove(detail)
    _write(kind, told)


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
