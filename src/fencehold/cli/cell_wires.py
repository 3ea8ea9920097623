"""Connections to all cells of a map, and how steps of a procedure (`placement.home_procedures`) are carried out.

A cell with several shards is asked shard by shard: it is closed when all are, and above the greatest of their
fences. Any failure ends the procedure; run again, it continues where it stopped.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from fencehold.cli.shard_wires import ShardWires
from fencehold.drivers.address import endpoint, with_endpoints
from fencehold.errors import FenceholdError, Unavailable, UsageError
from fencehold.placement.cells import CellMap
from fencehold.placement.home_procedures import (
    CLOSED,
    CLOSING,
    OPEN,
    Apply,
    CellStatus,
    Close,
    HomeStatus,
    Look,
    Open,
    Procedure,
    Reply,
    Seal,
    Step,
    Wait,
)

_STAGES = (OPEN, CLOSING, CLOSED)
"""A cell is as far as its slowest shard."""
_SHARDS_AT_ONCE = 16
_LOOK_S = 3.0
"""How long to look for the leader of a cell."""
_decode = msgspec.json.Decoder(CellMap).decode


class CellWires:
    """Connections to cells, made when they are first asked."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._wires: dict[str, ShardWires] = {}

    def know(self, placed: CellMap) -> None:
        """Note where cells are."""
        self._addresses |= {cell.name: cell.addresses for cell in placed.cells}

    def carry_out(self, procedure: Procedure, on_progress: Callable[[str], None]) -> CellMap:
        """Carry out all steps of a procedure; returns the map that it ends with.

        Raises: the error of a cell, or that it was not reached, with how to continue.
        """
        reply: Reply | FenceholdError = None
        while True:
            try:
                step = procedure.throw(reply) if isinstance(reply, FenceholdError) else procedure.send(reply)
            except StopIteration as end:
                placed: CellMap = end.value
                return placed
            if isinstance(step.ask, Wait):
                on_progress(step.ask.why)
                time.sleep(step.ask.seconds)
                reply = None
                continue
            try:
                reply = self.ask(step)
            except FenceholdError as error:
                self._drop(step.cell)
                reply = error

    def ask(self, step: Step) -> Reply:
        """Ask one cell, in all its shards."""
        match step.ask:
            case Look():
                return _status(self._call(step.cell, "CELL.MAP"))
            case Apply(placed):
                self.know(placed)
                self._call(step.cell, "CELL.APPLY", step.cell, msgspec.json.encode(placed).decode())
                return None
            case Close(prefix, to, version):
                return _home(self._call(step.cell, "CELL.CLOSE", prefix, to, version))
            case Seal(prefix, version, force):
                more = ("FORCE",) if force else ()
                return _home(self._call(step.cell, "CELL.SEAL", prefix, version, *more))
            case Open(prefix, fence, version, map_version):
                return _home(self._call(step.cell, "CELL.OPEN", prefix, fence, version, map_version))
            case _:
                raise UsageError(f"unknown step {step.ask!r}")

    def _call(self, cell: str, *words: str | int) -> list[dict[str, Any]]:
        """Ask all shards of a cell at once: they may be far away, and there may be many."""
        wires = self._of(cell).all
        if len(wires) == 1:
            return [wires[0].call(*words)]
        with ThreadPoolExecutor(_SHARDS_AT_ONCE) as pool:
            return list(pool.map(lambda wire: wire.call(*words), wires))

    def spans(self, cell: str) -> str:
        """How a cell's engine is spread, as it reports."""
        return str(self._of(cell).all[0].call("CELL.MAP")["spans"])

    def close(self) -> None:
        for cell in tuple(self._wires):
            self._drop(cell)

    def _of(self, cell: str) -> ShardWires:
        wires = self._wires.get(cell)
        if wires is None:
            url = with_endpoints(self._url, map(endpoint, self._addresses[cell]))
            try:
                wires = self._wires[cell] = ShardWires(url, patience_s=_LOOK_S)
            except Unavailable as error:
                raise Unavailable(f"cell {cell}: {error}") from error
        return wires

    def _drop(self, cell: str) -> None:
        wires = self._wires.pop(cell, None)
        if wires is not None:
            wires.close()


def map_in(told: dict[str, Any]) -> CellMap | None:
    """The map in a reply of CELL.MAP; None if there is none."""
    return _decode(told["map"]) if told["map"] else None


def _status(told: list[dict[str, Any]]) -> CellStatus:
    maps = [map_in(each) for each in told]
    known = [each for each in maps if each is not None]
    oldest = min(known, key=lambda each: each.version) if len(known) == len(maps) else None
    homes: dict[str, list[dict[str, Any]]] = {}
    for each in told:
        for prefix, stage, version, to, fence, _ in each["homes"]:
            home = {"stage": stage, "version": version, "to": to, "fence": fence, "names": 0, "map_version": 0}
            homes.setdefault(prefix, []).append(home)
    statuses = {prefix: _home(found) for prefix, found in homes.items()}
    return CellStatus(oldest, statuses, max(int(each["fence"]) for each in told))


def _home(told: list[dict[str, Any]]) -> HomeStatus:
    """The state of a prefix in all shards of a cell, combined."""
    newest = max(told, key=lambda each: int(each["version"]))
    return HomeStatus(
        min((each["stage"] for each in told), key=_STAGES.index),
        newest["version"],
        newest["to"],
        max(each["fence"] for each in told),
        sum(each["names"] for each in told),
        max(each["map_version"] for each in told),
    )
