"""`fencehold break`: an operator force-releases a hold. It asks first, and cannot hit the next holder."""

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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    tier: Tier = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Force-release a name; the next waiter in the queue is granted.

    This does not stop the old holder: tell your guards the minimum fence that this prints, and they refuse its
    writes. Only holds that were shown are ended: if the name has a new holder by then, that one keeps it.
    """
    with wired(url, tier=tier, name=name) as wire:
        # A program gets every hold that ends; a person sees the first rows.
        view = view_of(wire, name, None if as_json else ROWS)
        if not view["holds"]:
            raise fail(Exit.NO, f"{clean(name)} is not held")
        if not yes:
            _ask(view, as_json)
        broken = wire.call("LOCK.BREAK", name, "FENCE", view["fence"], "BY", in_passing("fencehold break"))
    if as_json:
        say_json({**broken, "holds": shapes.lock(view)["holds"]})
    elif broken["ended"]:
        # Guards do not use fences of the tier EFFICIENCY.
        guards = f"; tell your guards: minimum fence {broken['fence']}"
        say("broken" if tier == "EFFICIENCY" else f"broken{guards}")
    if not broken["ended"]:
        raise fail(Exit.NO, f"{clean(name)} has another holder by now: nothing was broken")


def _ask(view: dict[str, object], as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise fail(
            Exit.USAGE,
            "cannot ask: stdin is not a terminal, or --json was given",
            "add --yes to break it without asking",
        )
    show(view)
    note("\nIts holder is notified that the hold is lost, and may still be in the middle of its work.")
    if not typer.confirm(f"Break {clean(view['name'])}?", err=True):
        raise fail(Exit.NO, "nothing was changed")
