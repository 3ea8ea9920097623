"""`fencehold top`: live view of the names with most waiters, those held longest, and the rates.

Fences only grow, so the smallest are of the oldest holds: no list of all holds is needed to find those.
"""

import contextlib
import time
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fencehold.cli import shapes
from fencehold.cli.inspection import HEADERS, every_name, row
from fencehold.cli.options import URL, Json, Prefix, Tier, Url, lasting
from fencehold.cli.output import clean, say_json, say_rows, table, to_person
from fencehold.cli.screen import show_until_quit
from fencehold.cli.shard_wires import ShardWires, wired_all
from fencehold.errors import FenceholdError

if TYPE_CHECKING:
    from rich.console import RenderableType


class Frame(NamedTuple):
    """One sample of the server."""

    at: float
    server: dict[str, str | int]
    awaited: list[dict[str, Any]]
    oldest: list[dict[str, Any]]


def top(
    prefix: Prefix = "",
    interval: Annotated[
        float, typer.Option(parser=lasting, metavar="DURATION", help="How often to refresh.", show_default="1s")
    ] = 1.0,
    rows: Annotated[int, typer.Option(min=1, max=200, help="How many names to show in each list.")] = 8,
    once: Annotated[bool, typer.Option("--once", help="Print once, as in a pipe.")] = False,
    tier: Tier = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Watch the most contended and the longest held names, live; q or ctrl-c ends it."""
    if to_person() and not once and not as_json:
        with contextlib.closing(Live(url, prefix, rows, tier)) as live:
            show_until_quit(live.draw, interval)
        return
    with wired_all(url, tier=tier) as wires:
        frame = look(wires, prefix, rows)
    if as_json:
        _say_json(frame)
    else:
        say_rows(HEADERS, [row(name) for name in frame.awaited or frame.oldest], empty="nothing is held")


def look(wires: ShardWires, prefix: str, rows: int) -> Frame:
    """What there is to see now."""
    awaited: list[dict[str, Any]] = []
    oldest: list[dict[str, Any]] = []
    for names in _by_thousands(every_name(wires, prefix, with_hold=False)):
        # Kept are the first of each list so far, and not all of half a million names.
        awaited += (name for name in names if name["waiters"])
        oldest += (name for name in names if name["holders"])
        awaited = nsmallest(rows, awaited, key=lambda name: (-name["waiters"], name["name"]))
        oldest = nsmallest(rows, oldest, key=lambda name: (name["fence"], name["name"]))
    for name in (*awaited, *oldest):
        # Only for these few: the holders of half a million names would be unreadable.
        view = wires.of(name["name"]).call("LOCK.INFO", name["name"], "COUNT", 1, "STALE")
        name["hold"] = view["holds"][0] if view["holds"] else None
        name["kept"] = view["kept"]
    return Frame(time.monotonic(), wires.facts(), awaited, oldest)


def _by_thousands(names: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while some := list(islice(names, 1_000)):
        yield some


def _say_json(frame: Frame) -> None:
    names = {"awaited": frame.awaited, "oldest": frame.oldest}
    lists = {key: [shapes.listed(name) for name in some] for key, some in names.items()}
    say_json({"server": shapes.server(frame.server), **lists})


class Live:
    """Samples, one after the other, from the node that leads."""

    def __init__(self, url: str, prefix: str, rows: int, tier: str = "") -> None:
        self._url, self._prefix, self._rows, self._tier = url, prefix, rows, tier
        self._wires: ShardWires | None = None
        self._before: Frame | None = None

    def draw(self) -> "RenderableType":
        """The next sample; while there is none, the last one, and why."""
        try:
            if self._wires is None:
                # Connect again each time: after a failover another node leads.
                self._wires = ShardWires(self._url, patience_s=0, tier=self._tier)
            now = look(self._wires, self._prefix, self._rows)
        except FenceholdError as failure:
            self.close()
            if self._before is None:
                raise
            return _drawn(self._before, self._before, trouble=str(failure))
        before, self._before = self._before or now, now
        return _drawn(before, now)

    def close(self) -> None:
        if self._wires is not None:
            self._wires.close()
        self._wires = None


def _drawn(before: Frame, now: Frame, trouble: str = "") -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    told = (clean(trouble), "yellow") if trouble else _summary(before, now)
    head = Text.assemble(("fencehold top", "bold"), ("   q quits\n", "dim"), told)
    awaited = table(HEADERS, [row(name) for name in now.awaited], title="\nmost waited for")
    oldest = table(HEADERS, [row(name) for name in now.oldest], title="\nheld longest")
    return Group(head, awaited if now.awaited else Text("\nno waiters", "dim"), oldest)


def _summary(before: Frame, now: Frame) -> str:
    """Two lines of figures; rates are the differences between two samples."""
    seconds = max(now.at - before.at, 1e-9)
    server = now.server
    # Not below zero: a new leader counts from its own start.
    grants, appends = (max(0, int(server[key]) - int(before.server[key])) for key in ("fence", "appends"))
    who = f"node {clean(server['node'])}, " if server["node"] else ""
    return (
        f"{who}{server['role']}, epoch {server['epoch']}, "
        f"position {server['position']}   "
        f"{grants / seconds:,.0f} grants/s in {appends / seconds:,.0f} appends/s\n"
        f"{server['names_held']} held, {server['waiters']} waiting, {server['sessions']} sessions, "
        f"{server['connected_clients']} connections"
    )
