"""`fencehold shards move|split|merge|rebalance|moves|resume`: other shards for slots of a running service.

1. The plan is shown first, and confirmed. Then the service gets the next map, in one step, and continues by
   itself: from there on this command only watches, and may be interrupted.
2. A command is idempotent: run again, it finds its slots moved, or moving, and watches.
3. `--force` breaks the holds that keep slots from leaving; without it they are waited for.
"""

import contextlib
import sys
import time
from typing import Annotated, Any

import typer

from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Json, Url
from fencehold.cli.output import clean, note, say, say_json, say_rows
from fencehold.cli.wire import connect, map_of
from fencehold.errors import Unavailable, UsageError
from fencehold.placement import plans
from fencehold.placement.map import ShardMap

_LOOK_S = 0.1
_TELL_EVERY_S = 2.0
_AWAY_S = 30.0
"""How long no node may answer while slots are moving, before this command gives up watching."""
_RANGES_SHOWN = 60
_CHANGES_BYTES_MAX = 60_000
"""The limit of one command of the protocol."""

Slots = Annotated[str, typer.Argument(metavar="SLOTS", help="Slots and ranges of them: 0-4095,5000.")]
Shard = Annotated[int, typer.Argument(metavar="SHARD", help="A shard, by its number.")]
To = Annotated[int, typer.Option("--to", metavar="SHARD", help="The shard that gets them.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Force = Annotated[bool, typer.Option("--force", help="Break holds that keep slots from leaving.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until all slots have arrived.")]


def move(
    slots: Slots,
    to: To,
    yes: Yes = False,
    force: Force = False,
    no_wait: NoWait = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Move slots to another shard, while the service runs."""
    before = _placed(url)
    _carry_out(url, before, before.moved(plans.slots_in(slots), to), yes, force, no_wait, as_json)


def split(
    shard: Shard,
    to: To,
    yes: Yes = False,
    force: Force = False,
    no_wait: NoWait = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Move the upper half of a shard's slots to another shard."""
    before = _placed(url)
    _carry_out(url, before, plans.split(before, shard, to), yes, force, no_wait, as_json)


def merge(
    shard: Shard,
    to: To,
    yes: Yes = False,
    force: Force = False,
    no_wait: NoWait = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Move all slots of a shard to another shard."""
    before = _placed(url)
    _carry_out(url, before, plans.merge(before, shard, to), yes, force, no_wait, as_json)


def rebalance(
    yes: Yes = False, force: Force = False, no_wait: NoWait = False, url: Url = URL, as_json: Json = False
) -> None:
    """Give all shards as many slots as one another, moving as few as possible."""
    before = _placed(url)
    _carry_out(url, before, plans.rebalanced(before), yes, force, no_wait, as_json)


def moves(url: Url = URL, as_json: Json = False) -> None:
    """Show which slots are moving, and what blocks them."""
    told = _progress(url)
    if as_json:
        say_json({**told, "settled": bool(told["settled"])})
        return
    headers = ("SHARD:", "VERSION:", "LEAVING:", "ARRIVING:", "IN USE:", "SOME OF THEM…")
    keys = ("shard", "version", "leaving", "arriving", "names")
    rows = [(*(str(each[key]) for key in keys), clean(", ".join(each["some"]))) for each in told["shards"]]
    say_rows(headers, rows, empty="")


def resume(force: Force = False, url: Url = URL, as_json: Json = False) -> None:
    """Wait until moving slots have arrived; they continue by themselves."""
    told = _watch(url, force, as_json)
    if as_json:
        say_json({"version": told["version"], "settled": True})
    else:
        say(f"all slots are where version {told['version']} of the map says")


def _placed(url: str) -> ShardMap:
    with contextlib.closing(connect(url, shard=0)) as wire:
        placed = map_of(wire)
    if placed is None:
        raise UsageError("this service has one shard, and no slot can move: see docs/how-to/shards.md")
    return placed


def _carry_out(
    url: str, before: ShardMap, after: ShardMap, yes: bool, force: bool, no_wait: bool, as_json: bool
) -> None:
    """Show what is to move, ask, have it moved, and watch."""
    planned = plans.shifts(before, after)
    if planned:
        if not as_json:
            _show(planned)
        if not yes:
            _ask(planned, force, as_json)
        _tell(url, after.version, planned)
    elif not as_json:
        note("all these slots are already there, or moving")
    told = _progress(url) if no_wait else _watch(url, force, as_json)
    count = sum(len(each.slots) for each in planned)
    if as_json:
        steps = [{"from": each.source, "to": each.to, "slots": plans.shown(each.slots)} for each in planned]
        say_json({"version": told["version"], "slots": count, "moves": steps, "settled": bool(told["settled"])})
    elif told["settled"]:
        say(f"done: {count} slots moved, by version {told['version']} of the map")
    else:
        say(f"{count} slots are moving: see `fencehold shards moves`")


def _show(planned: list[plans.Shift]) -> None:
    rows = []
    for each in planned:
        ranges = plans.shown(each.slots)
        short = ranges if len(ranges) <= _RANGES_SHOWN else ranges[:_RANGES_SHOWN] + "…"
        rows.append((str(each.source), str(each.to), str(len(each.slots)), short))
    say_rows(("FROM:", "TO:", "COUNT:", "SLOTS…"), rows, empty="")


def _ask(planned: list[plans.Shift], force: bool, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise fail(
            Exit.USAGE,
            "cannot ask: stdin is not a terminal, or --json was given",
            "add --yes to move them without asking",
        )
    count = sum(len(each.slots) for each in planned)
    note("\nNames of these slots that are held stay with their holders; others wait until those have released.")
    if force:
        note("--force breaks such holds: their holders may be in the middle of their work.")
    if not typer.confirm(f"Move {count} slots?", err=True):
        raise fail(Exit.NO, "nothing was changed")


def _tell(url: str, version: int, planned: list[plans.Shift]) -> None:
    changes = [word for each in planned for word in (each.to, plans.shown(each.slots))]
    if sum(len(str(word)) + 16 for word in changes) > _CHANGES_BYTES_MAX:
        raise UsageError("these are too many single slots for one step: move them in several")
    with contextlib.closing(connect(url, shard=0)) as wire:
        wire.call("SHARD.PLACE", version, *changes)


def _progress(url: str) -> dict[str, Any]:
    with contextlib.closing(connect(url, shard=0)) as wire:
        told: dict[str, Any] = wire.call("SHARD.MOVES")
    return told


def _watch(url: str, force: bool, as_json: bool) -> dict[str, Any]:
    """Wait until all slots have arrived, and report progress periodically."""
    heard_at, tell_at, before = time.monotonic(), time.monotonic() + _TELL_EVERY_S, ""
    try:
        while True:
            try:
                told = _progress(url)
                heard_at = time.monotonic()
                if told["settled"]:
                    return told
                if force:
                    _force(url, told)
                if not as_json and time.monotonic() >= tell_at:
                    tell_at = time.monotonic() + _TELL_EVERY_S
                    now = _standing(told)
                    if now != before:
                        note(now)
                    before = now
            except Unavailable:
                # A failover, perhaps: slots keep moving when there is a leader again.
                if time.monotonic() - heard_at > _AWAY_S:
                    raise
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        note("\nThe slots keep moving: `fencehold shards moves` shows their progress.")
        raise


def _force(url: str, told: dict[str, Any]) -> None:
    for each in told["shards"]:
        if each["leaving"]:
            with contextlib.suppress(Unavailable), contextlib.closing(connect(url, shard=each["shard"])) as wire:
                wire.call("SHARD.FORCE", each["shard"])


def _standing(told: dict[str, Any]) -> str:
    leaving = sum(each["leaving"] for each in told["shards"])
    names = sum(each["names"] for each in told["shards"])
    some = clean(", ".join(name for each in told["shards"] for name in each["some"][:3]))
    if not leaving:
        return "slots are about to arrive"
    return f"{leaving} slots wait for {names} names that are in use: {some} (--force breaks their holds)"


MOVES = {
    "move": move,
    "split": split,
    "merge": merge,
    "rebalance": rebalance,
    "moves": moves,
    "resume": resume,
}
"""The commands of the group."""
