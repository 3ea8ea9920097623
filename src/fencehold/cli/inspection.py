"""`ls`, `info`, `sessions`, `status`, `ping`: what is held, its holders and waiters."""

import time
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import typer

from fencehold.cli import shapes
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.holders import began, holder, owner, unheld, who
from fencehold.cli.options import URL, Json, Name, Prefix, Tier, Url
from fencehold.cli.output import (
    ago,
    clean,
    clock_time,
    columns,
    console,
    left,
    note,
    say_facts,
    say_json,
    say_rows,
    tell,
    to_person,
)
from fencehold.cli.shard_wires import ShardWires, wired_all
from fencehold.cli.tables import cells_of, shortened
from fencehold.cli.wire import Wire, wired

HEADERS = ("NAME…", "MODE", "HELD BY…", "FOR:", "WAITING:", "FENCE:")
"""The columns of a list of names, as `row` fills them."""
_PAGE, _PAGE_WITH_HOLDS = 1_000, 250
_OF_A_SHARD = ("epoch", "position", "logical_s", "fence")
"""What a server with several shards has for each: sums make no sense."""
ROWS = 100
"""How many holders, and how many waiters, of a name are shown by default."""


def ls(prefix: Prefix = "", tier: Tier = "", url: Url = URL, as_json: Json = False) -> None:
    """List the names that are held or waited for: by whom, for how long, how many wait."""
    with wired_all(url, tier=tier) as wires:
        names = every_name(wires, prefix, with_hold=True)
        if as_json:
            for name in names:
                say_json(shapes.listed(name))
            return
        found = list(names) if wires.map is None else sorted(names, key=lambda name: str(name["name"]))
        rows = [row(name) for name in found]
    say_rows(HEADERS, rows, empty="nothing is held")


def row(name: dict[str, Any]) -> tuple[str, ...]:
    """A name in a list, with its oldest holder; or the client it is kept for, if no one holds it."""
    oldest = name["hold"]
    held_for = ago(shapes.age_ms(oldest, "held_ms")) if oldest else ""
    by = holder(oldest, name["holders"])
    mode = shapes.MODES.get(name["mode"], "free")
    for kept in name["kept"] if not oldest else ():
        mode, by, held_for = "kept", who(kept), ago(shapes.age_ms(kept, "kept_ms"))
    return clean(name["name"]), mode, by, held_for, str(name["waiters"]), str(name["fence"] or "")


def every_name(wires: ShardWires, prefix: str = "", *, with_hold: bool) -> Iterator[dict[str, Any]]:
    """The names in use of all shards, one shard after the other."""
    return chain.from_iterable(all_names(wire, prefix, with_hold=with_hold) for wire in wires.all)


def all_names(wire: Wire, prefix: str = "", *, with_hold: bool) -> Iterator[dict[str, Any]]:
    """Every name in use with that prefix, page by page; and its oldest hold, if wanted."""
    cursor = ""
    more = ("COUNT", _PAGE_WITH_HOLDS, "HOLD") if with_hold else ("COUNT", _PAGE)
    while True:
        cursor, page = wire.call("LOCK.LIST", "PREFIX", prefix, "CURSOR", cursor, *more)
        for name in page:
            yield name | _shard_of(wire)
        if not cursor:
            return


def info(
    name: Name,
    rows: Annotated[int, typer.Option(min=1, help="How many holders, and how many waiters, to show.")] = ROWS,
    show_all: Annotated[bool, typer.Option("--all", help="Show all of them.")] = False,
    tier: Tier = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Show who holds a name, since when, and who waits for it. Exits 1 if it is not held."""
    with wired(url, tier=tier, name=name) as wire:
        view = view_of(wire, name, None if show_all else rows)
    if as_json:
        say_json(shapes.lock(view))
    else:
        show(view)
    if not view["holds"]:
        raise fail(Exit.NO, f"{clean(name)} is not held")


def view_of(wire: Wire, name: str, rows: int | None = ROWS) -> dict[str, Any]:
    """LOCK.INFO of a name, page by page: up to this many holds and waiters; with None, all of them."""
    view: dict[str, Any] = wire.call("LOCK.INFO", name, "COUNT", min(rows or _PAGE, _PAGE)) | _shard_of(wire)
    for items, count in (("holds", "hold_count"), ("waiters", "waiter_count")):
        # Not more than there were at first: with new waiters arriving, the loop might never end.
        wanted = view[count] if rows is None else min(rows, view[count])
        cursor = view[f"{items}_cursor"]
        while cursor and len(view[items]) < wanted:
            page = wire.call("LOCK.INFO", name, items.upper(), cursor, "COUNT", min(wanted, _PAGE))
            view[items] += page[items]
            cursor = page[f"{items}_cursor"]
        del view[items][wanted:]
    return view


def _shard_of(wire: Wire) -> dict[str, Any]:
    """In which shard something is, where there are several: sessions are numbered in each."""
    return {"shard": wire.hello["shard"]} if int(wire.hello.get("shards", 1)) > 1 else {}


def show(view: dict[str, Any]) -> None:
    """The holders of a name and its queue, for people, and how many more there are."""
    _show_listed(view)
    for items, count, what in (("holds", "hold_count", "hold it"), ("waiters", "waiter_count", "wait for it")):
        if more := view[count] - len(view[items]):
            note(f"… and {more} more {what}: --all shows them")


def _show_listed(view: dict[str, Any]) -> None:
    holds = [(hold["fence"], *_party(hold), *began(hold, "held_ms"), _end(hold)) for hold in view["holds"]]
    waiters = [
        (place, *_party(waiter), *began(waiter, "waited_ms"), _patience(waiter))
        for place, waiter in ((waiter["ahead"] + 1, waiter) for waiter in view["waiters"])
    ]
    if not to_person():
        say_rows((), [("hold", *row) for row in holds] + [("waiter", *row) for row in waiters], empty="")
        return
    out = console()
    # All that hold a name hold it in one mode.
    state = f"held, {shapes.MODES[view['holds'][0]['mode']]}" if holds else unheld(view)
    state += f", in shard {view['shard']}" if "shard" in view else ""
    # As one line, even for a long name: the user typed it.
    out.print(shortened(clean(view["name"]), max(20, columns() - cells_of(state) - 2)), style="bold", end="")
    out.print(f"  {state}", style="green" if holds else "dim")
    if holds:
        rows = [(fence, *rest) for fence, _, *rest in holds]
        say_rows(("FENCE:", "HELD BY…", "OWNER…", "SINCE", "FOR:", "ENDS "), rows, empty="")
    if waiters:
        out.print(f"\n{view['waiter_count']} waiting", style="bold")
        say_rows(("#:", "MODE", "WHO…", "OWNER…", "SINCE", "FOR:", "GIVES UP"), waiters, empty="")


def _end(hold: dict[str, Any]) -> str:
    """When a hold expires: for a person also as a time of day."""
    ms = hold["left_ms"]
    return f"{clock_time(ms)}, in {ago(ms)}" if ms >= 0 and to_person() else left(ms)


def _party(one: dict[str, Any]) -> tuple[str, str, str]:
    return shapes.MODES[one["mode"]], who(one), owner(one)


def _patience(waiter: dict[str, Any]) -> str:
    return "never" if waiter["left_ms"] < 0 else f"in {ago(waiter['left_ms'])}"


def sessions(tier: Tier = "", url: Url = URL, as_json: Json = False) -> None:
    """List the sessions: the client of each, how much it holds and waits for."""
    with wired_all(url, tier=tier) as wires:
        every = (
            one if wires.map is None else {**one, "shard": shard}
            for shard, wire in enumerate(wires.all)
            for one in _all_sessions(wire)
        )
        if as_json:
            for one in every:
                say_json(shapes.session(one))
            return
        found = list(every)
        is_sharded = wires.map is not None
    rows = [
        (
            who(one),
            *((one["shard"],) if is_sharded else ()),
            one["session"],
            "yes" if one["connected"] else "no",
            *began(one, "opened_ms_ago"),
            ago(max(0, one["expires_in_ms"])),
            one["holds"],
            one["waits"],
        )
        for one in found
    ]
    shard = ("SHARD:",) if is_sharded else ()
    headers = ("WHO…", *shard, "SESSION:", "ONLINE", "SINCE", "FOR:", "ENDS IN:", "HOLDS:", "WAITS:")
    say_rows(headers, rows, empty="no sessions")


def _all_sessions(wire: Wire) -> Iterator[dict[str, Any]]:
    """Every session, page by page."""
    cursor = 0
    while True:
        cursor, page = wire.call("SESSION.LIST", "CURSOR", cursor, "COUNT", _PAGE)
        yield from page
        if not cursor:
            return


def status(tier: Tier = "", url: Url = URL, as_json: Json = False) -> None:
    """Show the state of the leader: its version, role, position, counts. Of several shards, counts are added."""
    with wired_all(url, patience_s=0, tier=tier) as wires:
        found = {"url": wires.all[0].url, **shapes.server(wires.facts())}
        is_several = wires.map is not None
    if is_several:
        found |= dict.fromkeys(_OF_A_SHARD)
    if as_json:
        say_json(found)
        return
    say_facts({key: value for key, value in found.items() if not (is_several and key in _OF_A_SHARD)})
    if is_several and to_person():
        note("epoch, position and fence are each shard's own: fencehold shards show")


def ping(
    any_role: Annotated[
        bool, typer.Option("--any", help="Succeed if a node answers, whether it leads or not.")
    ] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Ask whether a server is there and leads. Exits 1 if it does not lead, 69 if none answers.

    Only the nodes that the URL names are asked: of several, the one that leads, or the first that answers.
    """
    with wired(url, patience_s=0, named_only=True) as wire:
        started_at = time.perf_counter()
        wire.call("PING")
        round_trip_us = round((time.perf_counter() - started_at) * 1e6)
        role, version = wire.hello["role"], wire.hello["version"]
        leader = "" if wire.leads else ", ".join(map(str, wire.leader()))
    if as_json:
        url = wire.url
        say_json({"url": url, "role": role, "version": version, "round_trip_s": round_trip_us / 1e6})
    else:
        tell(f"{wire.endpoint} answers in {round_trip_us} µs: fencehold {version}, {role}")
    if role != "leader" and not any_role:
        raise fail(Exit.NO, f"{wire.endpoint} does not lead" + (f"; {leader} does" if leader else ""))
