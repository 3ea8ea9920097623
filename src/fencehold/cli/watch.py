"""`fencehold watch`: events as they happen."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from fencehold.cli.options import URL, Json, Prefix, Tier, Url
from fencehold.cli.output import clean, console, note, say, say_json, to_person
from fencehold.cli.wire import CannotConnect, Wire, wired
from fencehold.errors import Unavailable

_AGAIN_S = 0.2
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
        typer.Option("--from", metavar="POSITION", min=0, help="Begin after this position, if it is still known."),
    ] = None,
    count: Annotated[int, typer.Option(min=0, help="End after so many events; 0: never.")] = 0,
    tier: Tier = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Show what happens to names, as it happens, until ctrl-c."""
    if to_person() and not as_json:
        note(f"watching {'names that begin with ' + clean(prefix) if prefix else 'everything'}; ctrl-c ends it")
    for event in islice(Events(url, prefix, since, tier).follow(), count or None):
        if as_json:
            say_json(event)
        else:
            _show(event)


class Events:
    """Events as they come. When a node ends, they go on where they were at the one that leads next."""

    def __init__(self, url: str, prefix: str, since: int | None, tier: str = "") -> None:
        self._url = url
        self._tier = tier
        self._prefix = prefix
        self._position = since
        """Of the last event that came, or after which they begin."""
        self._came = 0
        """How many came of that position: one entry has several, and they may not all have come."""

    def follow(self) -> Iterator[dict[str, Any]]:
        """One after the other, until none can be had any more."""
        while True:
            try:
                with wired(self._url, tier=self._tier) as wire:
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
        fields = [
            f"{event['position']:>8}",
            f"{kind:<13}",
            "events up to here are missing: too many at once, or a node that did not see them",
        ]
    else:
        who = f"{event['session']}/{event['owner']}" if event["owner"] else str(event["session"])
        fields = [f"{event['position']:>8}", f"{kind:<13}", f"session {clean(who):<10}"]
        fields += [clean(", ".join(event["names"]))] if event["names"] else []
        fields += [f"fence {event['fence']}"] if event["fence"] else []
        fields += [f"({clean(event['detail'])})"] if event["detail"] else []
    if to_person():
        console().print("  ".join(fields), style=_STYLES.get(kind, ""))
    else:
        say("\t".join(field.strip() for field in fields))
