"""`fencehold watch`: events as they happen."""

from typing import Annotated, Any

import typer

from fencehold.cli.options import URL, Json, Prefix, Url
from fencehold.cli.output import clean, console, note, say, say_json, to_person
from fencehold.cli.wire import Wire, wired

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
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Show what happens to names, as it happens, until ctrl-c."""
    with wired(url) as wire:
        wire.call("LOCK.WATCH", prefix, *(() if since is None else ("FROM", since)))
        if to_person() and not as_json:
            note(
                f"watching {'names that begin with ' + clean(prefix) if prefix else 'everything'}; ctrl-c ends it"
            )
        _follow(wire, count, as_json)


def _follow(wire: Wire, count: int, as_json: bool) -> None:
    seen = 0
    while not count or seen < count:
        push = wire.push(None)
        if push and push[0] == "event":
            seen += 1
            if as_json:
                say_json(push[1])
            else:
                _show(push[1])


def _show(event: dict[str, Any]) -> None:
    kind = event["kind"]
    if kind == "gap":
        fields = [
            f"{event['position']:>8}",
            f"{kind:<13}",
            "events up to here are missing: we read too slowly",
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
