"""`fencehold break`: an operator ends a hold. It shows whose it is, asks, and cannot hit the next holder."""

import sys
from typing import Annotated

import typer

from fencehold.cli import shapes
from fencehold.cli.caller import in_passing
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.inspection import ROWS, show, view_of
from fencehold.cli.options import URL, Json, Name, Tier, Url
from fencehold.cli.output import clean, note, say, say_json
from fencehold.cli.wire import wired


def break_(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    tier: Tier = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Force-release a name; whoever is next in the queue is granted.

    The old holder is not stopped by this: tell your guards the minimum fence that this prints, and its writes are
    refused. Only holds that were seen are ended: if the name changes hands meanwhile, its new holder keeps it.
    """
    with wired(url, tier=tier) as wire:
        # A program is told of every hold that ends; a person is asked about some.
        view = view_of(wire, name, None if as_json else ROWS)
        if not view["holds"]:
            raise fail(Exit.NO, f"nobody holds {clean(name)}")
        if not yes:
            _ask(view, as_json)
        broken = wire.call("LOCK.BREAK", name, "FENCE", view["fence"], "BY", in_passing("fencehold break"))
    if as_json:
        say_json({**broken, "holds": shapes.lock(view)["holds"]})
    elif broken["ended"]:
        # No guard goes by a fence of the other tier.
        guards = f"; tell your guards: minimum fence {broken['fence']}"
        say("broken" if tier == "EFFICIENCY" else f"broken{guards}")
    if not broken["ended"]:
        raise fail(Exit.NO, f"{clean(name)} has changed hands since: nothing was broken")


def _ask(view: dict[str, object], as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise fail(Exit.USAGE, "nobody is there to be asked", "say --yes if you mean it")
    show(view)
    note("\nIts holder is told that the hold is lost, and may still be in the middle of its work.")
    if not typer.confirm(f"Break {clean(view['name'])}?", err=True):
        raise fail(Exit.NO, "left as it was")
