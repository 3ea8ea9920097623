"""`fencehold cells`: a map of prefixes to cells in a file: plan and apply changes; show the current state."""

import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Struct

from fencehold.cli.cell_wires import CellWires, map_in
from fencehold.cli.options import URL, Json, Url
from fencehold.cli.output import clean, note, say, say_json, say_rows
from fencehold.cli.wire import wired
from fencehold.durations import seconds_of
from fencehold.errors import FenceholdError, UsageError
from fencehold.placement.cells import Cell, CellMap, PrefixHome, Reach, in_order
from fencehold.placement.home_procedures import CellStatus, Look, Step, reconcile

_HEADERS = ("PREFIX", "HOME", "GOAL", "LEASED", "IN THE CELLS…")

MapPath = Annotated[Path, typer.Argument(metavar="FILE", help="The map in TOML; it is the whole map.")]
Force = Annotated[
    bool, typer.Option("--force", help="End sessions that hold names of a home that moves, rather than wait.")
]


class FileCell(Struct, frozen=True, forbid_unknown_fields=True):
    """A cell in a file."""

    addresses: tuple[str, ...]
    spans: Reach | None = None
    """None: as the cell reports itself (`fencehold serve --spans`)."""


class FileHome(Struct, frozen=True, forbid_unknown_fields=True):
    """A home with more options than its cell."""

    cell: str
    goal: Reach = Reach.NONE


class MapFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file."""

    cells: dict[str, FileCell]
    homes: dict[str, str | FileHome]
    lease: str | float = 0.0


def read(path: Path) -> MapFile:
    """The map in a file.

    Raises:
        UsageError: it cannot be read, or is not a map.
    """
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), MapFile)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} is not a map of cells: {error}") from None


def target_of(file: MapFile, wires: CellWires) -> CellMap:
    """The map that a file asks for, checked against what the cells are spread over.

    Raises:
        UsageError: it is inconsistent, or a goal cannot be reached.
    """
    cells = tuple(
        Cell(name, each.addresses, each.spans or Reach.NONE) for name, each in sorted(file.cells.items())
    )
    homes = [
        PrefixHome(prefix, home) if isinstance(home, str) else PrefixHome(prefix, home.cell, home.goal)
        for prefix, home in file.homes.items()
    ]
    lease_ms = round(seconds_of("lease", file.lease) * 1000)
    placed = CellMap(1, cells, in_order(homes), lease_ms, lease_ms)
    if problem := placed.problem():
        raise UsageError(problem)
    wires.know(placed)
    declared = tuple(msgspec.structs.replace(cell, spans=_spans(file, cell.name, wires)) for cell in cells)
    placed = msgspec.structs.replace(placed, cells=declared)
    if unmet := placed.unmet():
        raise UsageError("; ".join(unmet))
    return placed


def _spans(file: MapFile, cell: str, wires: CellWires) -> Reach:
    told, said = Reach(wires.spans(cell)), file.cells[cell].spans
    if said is not None and told is not Reach.NONE and said.rank > told.rank:
        raise UsageError(
            f"the map says that the engine of cell {cell!r} is spread over {said.value}s, and its server says "
            f"--spans {told.value}"
        )
    return said or told


@contextlib.contextmanager
def cell_wires(url: str) -> Iterator[CellWires]:
    """Connections to cells, closed at the end."""
    wires = CellWires(url)
    try:
        yield wires
    finally:
        wires.close()


def current(url: str) -> CellMap:
    """The map that the cell at a URL knows.

    Raises:
        UsageError: it knows none.
    """
    with wired(url, patience_s=0) as wire:
        placed = map_in(wire.call("CELL.MAP", "STALE"))
    if placed is None:
        raise UsageError("this service is not a cell yet: write a map and run `fencehold cells apply FILE`")
    return placed


def changes(before: CellMap | None, after: CellMap) -> list[str]:
    """What applying a map changes, in words."""
    if before is None:
        return [f"found {len(after.cells)} cells with {len(after.homes)} prefixes"]
    said = []
    for name in sorted(before.by_name.keys() | after.by_name.keys()):
        old, new = before.by_name.get(name), after.by_name.get(name)
        if old is None or new is None:
            said.append(f"{'add' if old is None else 'remove'} cell {name}")
        elif old != new:
            said.append(f"change cell {name}: {', '.join(new.addresses)}, spans {new.spans.value}")
    for prefix in sorted(before.by_prefix.keys() | after.by_prefix.keys()):
        was, now = before.by_prefix.get(prefix), after.by_prefix.get(prefix)
        if now is None:
            said.append(f"remove prefix {prefix!r}")
            continue
        home = before.home_of(prefix)
        if was is None:
            said.append(f"add prefix {prefix!r}")
        elif was.goal is not now.goal:
            said.append(f"change the goal of {prefix!r}: {was.goal.value} to {now.goal.value}")
        if home.cell != now.cell:
            said.append(f"move the home of {prefix!r}: {home.cell} to {now.cell}")
    if before.lease_ms != after.lease_ms:
        said.append(f"change the lease: {before.lease_ms} ms to {after.lease_ms} ms")
    return said


def plan(file: MapPath, url: Url = URL, as_json: Json = False) -> None:
    """Show what applying a map would change, and whether goals can be reached; nothing is changed."""
    with cell_wires(url) as wires:
        target = target_of(read(file), wires)
        said = changes(_newest(target, wires), target)
    _say_changes(said, as_json, "nothing would change")


def apply(file: MapPath, force: Force = False, url: Url = URL, as_json: Json = False) -> None:
    """Apply a map to all its cells; homes that it has elsewhere are moved. Run again, it continues where it
    stopped."""
    with cell_wires(url) as wires:
        target = target_of(read(file), wires)
        said = changes(_newest(target, wires), target)
        placed = wires.carry_out(reconcile(target, force=force), progress())
    if as_json:
        say_json({"version": placed.version, "changes": said})
    else:
        _say_changes(said, False, "nothing changed")
        say(f"the map has version {placed.version} in all {len(placed.cells)} cells")


def show(url: Url = URL, as_json: Json = False) -> None:
    """Show the cells, and each prefix: its home, its goal, and its state in every cell."""
    placed = current(url)
    with cell_wires(url) as wires:
        wires.know(placed)
        seen = {cell.name: _seen(wires, cell.name) for cell in placed.cells}
    for status in seen.values():
        if isinstance(status, CellStatus) and status.map is not None:
            placed = placed.newest(status.map)
    cells = [_cell_shape(cell, seen[cell.name]) for cell in placed.cells if cell.name in seen]
    homes = [_home_shape(placed, home, seen) for home in placed.homes]
    if as_json:
        say_json({"version": placed.version, "lease_ms": placed.lease_ms, "cells": cells, "homes": homes})
        return
    say_rows(("CELL", "ADDRESSES", "SPANS", "MAP:", "NOTE…"), [_cell_row(each) for each in cells], empty="")
    say("")
    say_rows(_HEADERS, [_home_row(each) for each in homes], empty="")


def _newest(target: CellMap, wires: CellWires) -> CellMap | None:
    found: CellMap | None = None
    for cell in target.cells:
        status = wires.ask(Step(cell.name, Look()))
        if isinstance(status, CellStatus) and status.map is not None:
            found = status.map if found is None else found.newest(status.map)
    return found


def _seen(wires: CellWires, cell: str) -> CellStatus | str:
    """The status of a cell; or why there is none."""
    try:
        status = wires.ask(Step(cell, Look()))
    except FenceholdError as error:
        return str(error)
    assert isinstance(status, CellStatus)
    return status


def _cell_shape(cell: Cell, status: CellStatus | str) -> dict[str, Any]:
    is_there = isinstance(status, CellStatus)
    version = status.map.version if isinstance(status, CellStatus) and status.map is not None else None
    said = "said to be lost" if cell.out else ""
    return {
        "cell": cell.name,
        "addresses": list(cell.addresses),
        "spans": cell.spans.value,
        "map_version": version,
        "out": cell.out,
        "note": said if is_there else str(status),
    }


def _cell_row(shape: dict[str, Any]) -> tuple[str, ...]:
    version = "" if shape["map_version"] is None else str(shape["map_version"])
    return shape["cell"], ",".join(shape["addresses"]), shape["spans"], version, clean(shape["note"])


def _home_shape(placed: CellMap, home: PrefixHome, seen: dict[str, CellStatus | str]) -> dict[str, Any]:
    stages = {
        cell: status.homes[home.prefix].stage if home.prefix in status.homes else None
        for cell, status in seen.items()
        if isinstance(status, CellStatus)
    }
    return {
        "prefix": home.prefix,
        "cell": home.cell,
        "goal": home.goal.value,
        "leased": placed.is_leased(home.prefix),
        "stages": stages,
    }


def _home_row(shape: dict[str, Any]) -> tuple[str, ...]:
    stages = ", ".join(f"{cell} {stage or 'unknown'}" for cell, stage in shape["stages"].items())
    return repr(shape["prefix"]), shape["cell"], shape["goal"], "yes" if shape["leased"] else "no", stages


def _say_changes(said: list[str], as_json: bool, nothing: str) -> None:
    if as_json:
        say_json({"changes": said})
    else:
        for each in said or [nothing]:
            say(clean(each))


class _Progress:
    """Reports on stderr what is waited for, once for each thing."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, why: str) -> None:
        if why != self._said:
            note(f"waiting: {clean(why)}")
        self._said = why


def progress() -> _Progress:
    return _Progress()


CELLS = {"plan": plan, "apply": apply, "show": show}
"""The commands of the group."""
