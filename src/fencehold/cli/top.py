"""`fencehold top`: what is hot, live. The names with most waiters, those held longest, and how fast things go.

Fences only grow, so the smallest are of the oldest holds: no list of all holds is needed to find those.
"""

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fencehold.cli.looking import MODES, all_names, who
from fencehold.cli.options import URL, Json, Prefix, Url, lasting
from fencehold.cli.output import ago, clean, console, say_json, say_rows, table, to_person
from fencehold.cli.wire import Wire, facts, wired

if TYPE_CHECKING:
    from rich.console import RenderableType

_HEADERS = ("NAME", "MODE", "WAITERS:", "HELD:", "FENCE:", "BY")


class Frame(NamedTuple):
    """One look at the server."""

    at: float
    server: dict[str, str | int]
    awaited: list[dict[str, Any]]
    oldest: list[dict[str, Any]]


def top(
    prefix: Prefix = "",
    interval: Annotated[
        float, typer.Option(parser=lasting, metavar="DURATION", help="How often to look.", show_default="1s")
    ] = 1.0,
    rows: Annotated[int, typer.Option(min=1, max=200, help="How many names to show in each list.")] = 8,
    once: Annotated[bool, typer.Option("--once", help="Look once; so it is when nobody watches.")] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Watch the most contended and the longest held names, live; q or ctrl-c ends it."""
    with wired(url) as wire:
        if as_json:
            _say_json(look(wire, prefix, rows))
        elif once or not to_person():
            frame = look(wire, prefix, rows)
            say_rows(_HEADERS, [_row(name) for name in frame.awaited or frame.oldest], empty="nothing is held")
        else:
            _live(wire, prefix, rows, interval)


def look(wire: Wire, prefix: str, rows: int) -> Frame:
    """What there is to see now."""
    names = list(all_names(wire, prefix))
    awaited = sorted((n for n in names if n["waiters"]), key=lambda n: (-n["waiters"], n["name"]))[:rows]
    oldest = sorted((n for n in names if n["holders"]), key=lambda n: (n["fence"], n["name"]))[:rows]
    held = {name["name"]: wire.call("LOCK.INFO", name["name"], "STALE") for name in (*awaited, *oldest)}
    awaited, oldest = (
        [{**name, "holds": held[name["name"]]["holds"]} for name in some] for some in (awaited, oldest)
    )
    return Frame(time.monotonic(), facts(wire), awaited, oldest)


def _say_json(frame: Frame) -> None:
    say_json({"server": frame.server, "awaited": frame.awaited, "oldest": frame.oldest})


def _row(name: dict[str, Any]) -> tuple[str, ...]:
    first = name["holds"][0] if name["holds"] else None
    return (
        clean(name["name"]),
        MODES[name["mode"]],
        str(name["waiters"]),
        ago(first["held_ms"]) if first else "",
        str(name["fence"]),
        who(first) if first else "",
    )


def _live(wire: Wire, prefix: str, rows: int, interval: float) -> None:
    from rich.live import Live  # noqa: PLC0415

    before = look(wire, prefix, rows)
    with _keys(), Live(_drawn(before, before), console=console(), screen=True, auto_refresh=False) as live:
        while not _quit_within(interval):
            now = look(wire, prefix, rows)
            live.update(_drawn(before, now), refresh=True)
            before = now


def _drawn(before: Frame, now: Frame) -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    head = Text.assemble(("fencehold top", "bold"), ("   q quits\n", "dim"), _summary(before, now))
    awaited = table(_HEADERS, [_row(name) for name in now.awaited], title="\nmost waited for")
    oldest = table(_HEADERS, [_row(name) for name in now.oldest], title="\nheld longest")
    return Group(head, awaited if now.awaited else Text("\nnobody waits", "dim"), oldest)


def _summary(before: Frame, now: Frame) -> str:
    """One line of figures; rates are what changed between two looks."""
    seconds = max(now.at - before.at, 1e-9)
    server = now.server
    grants, appends = (int(server[key]) - int(before.server[key]) for key in ("fence", "appends"))
    return (
        f"{server['role']}, epoch {server['epoch']}, position {server['position']}   "
        f"{grants / seconds:,.0f} grants/s in {appends / seconds:,.0f} appends/s   "
        f"{server['names_held']} held, {server['waiters']} waiting, {server['sessions']} sessions, "
        f"{server['connected_clients']} connections"
    )


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Get single keys from the terminal, and leave it as it was."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _quit_within(seconds: float) -> bool:
    """Wait that long; says whether q was pressed."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(left)
        elif select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
            return True
    return False
