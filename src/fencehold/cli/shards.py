"""`fencehold shards show`: the shards, their leaders, and how much each has."""

import contextlib

from fencehold.cli.options import URL, Json, Url
from fencehold.cli.output import clean, say_json, say_rows
from fencehold.cli.slot_moves import MOVES
from fencehold.cli.wire import connect, facts, map_of
from fencehold.errors import FenceholdError
from fencehold.placement.map import SlotRange

_HEADERS = ("SHARD:", "SLOTS", "LEADER…", "EPOCH:", "POSITION:", "SESSIONS:", "HELD:", "WAITING:")


def show(url: Url = URL, as_json: Json = False) -> None:
    """Show each shard: its slots, its leader, and how much it holds."""
    with contextlib.closing(connect(url, patience_s=0)) as wire:
        told = wire.call("SHARD.MAP")
        is_sharded = map_of(wire) is not None
    ranges = [SlotRange(*each) for each in told["ranges"]]
    shards = []
    for shard in range(told["shards"]):
        own = [(each.first, each.last) for each in ranges if each.shard == shard]
        leader = {"leader": told["nodes"][shard] or None, "address": told["leaders"][shard] or None}
        shards.append({"shard": shard, "slots": own, **leader, **_counts(url, shard if is_sharded else None)})
    if as_json:
        say_json({"version": told["version"], "shards": shards})
        return
    say_rows(_HEADERS, [_row(each) for each in shards], empty="")


def _counts(url: str, shard: int | None) -> dict[str, object]:
    """The counts of a shard's leader; empty, if there is none."""
    keys = ("epoch", "position", "sessions", "names_held", "waiters")
    with contextlib.suppress(FenceholdError), contextlib.closing(connect(url, patience_s=0, shard=shard)) as wire:
        if wire.leads:
            found = facts(wire)
            return {key: found[key] for key in keys}
    return dict.fromkeys(keys)


def _row(shard: dict[str, object]) -> tuple[str, ...]:
    slots = ", ".join(f"{first}-{last}" for first, last in shard["slots"])  # type: ignore[attr-defined]
    leader = clean(shard["leader"] or shard["address"] or "") if shard["epoch"] is not None else "none leads"
    counts = ("epoch", "position", "sessions", "names_held", "waiters")
    return str(shard["shard"]), slots, leader, *("" if shard[key] is None else str(shard[key]) for key in counts)


SHARDS = {"show": show, **MOVES}
"""The commands of the group."""
