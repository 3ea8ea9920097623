"""`fencehold home`: make another cell the home of a prefix; by moving it, or by promotion when it is lost."""

from typing import Annotated

import typer

from fencehold.cli.cells import Force, cell_wires, current, progress
from fencehold.cli.options import URL, Json, Url, duration
from fencehold.cli.output import say, say_json
from fencehold.placement.cells import CellMap
from fencehold.placement.home_procedures import Choice, Loss, Procedure
from fencehold.placement.home_procedures import move as moving
from fencehold.placement.home_procedures import promote as promoting
from fencehold.runtime.calendar import now_us

HOLD_TTL_S = 30.0
"""How long a client's session lives without a keep-alive, by default."""

HomePrefix = Annotated[str, typer.Argument(metavar="PREFIX", help="What the names begin with; '' is all others.")]
To = Annotated[str, typer.Option("--to", metavar="CELL", help="The cell that is to be its home.")]
Without = Annotated[
    list[str],
    typer.Option("--without", metavar="CELL", help="A cell that you know is lost or switched off."),
]
SwitchedOff = Annotated[
    bool,
    typer.Option("--switched-off", help="The lost home certainly grants nothing: its lease is not waited out."),
]
HoldTtl = Annotated[
    float,
    typer.Option(
        "--hold-ttl",
        parser=duration,
        metavar="DURATION",
        help="How long clients of the lost home may trust what they hold; 0 leaves that to guards.",
        show_default="30s",
    ),
]
FenceAbove = Annotated[
    int,
    typer.Option(
        "--fence-above", metavar="N", help="A number above every fence granted so far.", show_default=False
    ),
]


def move(
    prefix: HomePrefix,
    to: To,
    force: Force = False,
    without: Without = [],  # noqa: B006 - typer reads it
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Move the home of a prefix to another cell: holds are waited for, and fences keep growing.

    Run again, it continues where it stopped.
    """
    placed = current(url)
    _carry_out(url, placed, moving(placed, prefix, to, Choice(force, frozenset(without))), prefix, to, as_json)


def promote(
    prefix: HomePrefix,
    to: To,
    switched_off: SwitchedOff = False,
    hold_ttl: HoldTtl = HOLD_TTL_S,
    without: Without = [],  # noqa: B006 - typer reads it
    fence_above: FenceAbove = 0,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make another cell the home of a prefix whose home is lost. Its fences jump, as after a restore.

    The lease of the lost home is waited out, or you confirm that it is switched off. When it comes back, it learns
    of this, and grants nothing of the prefix.
    """
    placed = current(url)
    loss = Loss(now_us(), hold_ttl, switched_off, frozenset(without), fence_above)
    _carry_out(url, placed, promoting(placed, prefix, to, loss), prefix, to, as_json)


def _carry_out(url: str, placed: CellMap, procedure: Procedure, prefix: str, to: str, as_json: bool) -> None:
    with cell_wires(url) as wires:
        wires.know(placed)
        done = wires.carry_out(procedure, progress())
    if as_json:
        say_json({"prefix": prefix, "cell": to, "version": done.version})
    else:
        say(f"names with {prefix!r} are at home in cell {to}; the map has version {done.version}")


HOME = {"move": move, "promote": promote}
"""The commands of the group."""
