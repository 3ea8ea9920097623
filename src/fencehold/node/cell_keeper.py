"""The keeper: what a node of one of several cells asks of the others, for as long as it runs.

1. Every node asks, whether it leads or not: one that takes over has its lease already, and knows what moved.
2. It names the homes that are open here, with their versions. A cell that knows of no newer version *confirms*
   them (`core.cells.newer_records`); one that does says so, and the home is closed here, by an entry, at once. One
   confirmation is enough: to promote another, all other cells must first promise not to confirm
   (`home_procedures`).
3. A newer map is taken over by an entry, and so cells learn of moves that they were not told of.
4. What had lapsed is resumed by an entry when it was confirmed. What became leased, and is not confirmed for one
   lease, has its holds ended: from then on another may be promoted.
5. A node that begins to lead and has not heard from any other cell since it was started waits for the first
   answer, a little while: an old home that wakes up learns of a move before it grants.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fencehold.core.commands import ApplyCells, CloseHome, Command, LapseHomes, ResumeHomes
from fencehold.core.state import CellState, HomeRecord
from fencehold.errors import FenceholdError
from fencehold.node.homes_lease import HomesLease
from fencehold.node.node import Node
from fencehold.placement.cells import Cell, CellMap

IDLE_S = 0.5
"""How often to check whether there is a map."""
GOSSIP_S = 3.0
"""How often others are asked where nothing is leased."""
ROUNDS_PER_LEASE = 4
FIRST_S = 2.0
"""How long a leader waits for the first answer of any other cell."""
_ANSWER_S_MAX = 2.0


class Confirmation(NamedTuple):
    """The reply of another cell about the homes it was asked to confirm."""

    newer: tuple[HomeRecord, ...]
    """Those that have moved on; if there are none, all are confirmed."""
    map: CellMap | None
    """Its map, if that is newer than the one of the cell that asks."""


class CellLine(Protocol):
    """A connection to the leaders of other cells."""

    async def confirm(self, cell: Cell, asker: str, homes: Mapping[str, int], map_version: int) -> Confirmation:
        """Have homes confirmed.

        Raises:
            FenceholdError, OSError: it was not reached, does not lead, or refuses.
        """
        ...

    def close(self) -> None: ...


class CellKeeper:
    """Asks the other cells, for all shards of one server."""

    def __init__(
        self, nodes: Sequence[Node], lease: HomesLease, line: CellLine, now_ms: Callable[[], float]
    ) -> None:
        self._nodes = tuple(nodes)
        self._lease = lease
        self._line = line
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._heard = asyncio.Event()
        self._lapsed_at: dict[str, float] = {}
        """Since when homes are lapsed, as seen here."""
        for node in self._nodes:
            node.lease = lease
            node.before_leading = self.first_heard

    @property
    def cells(self) -> CellState | None:
        """What the first shard knows; None: there is no map."""
        return self._nodes[0].replica.machine.state.cells

    def covers_all(self) -> bool:
        """Whether everything that is open here was confirmed to this node itself, and still is."""
        return all(self._lease.covers(prefix, version) for prefix, version in self._homes().items())

    async def first_heard(self) -> None:
        """Wait until another cell has answered once, but not for long."""
        cells = self.cells
        if cells is None or not self._others(cells) or self._heard.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._heard.wait()

    async def run(self) -> None:
        """Ask in a loop."""
        try:
            while True:
                cells = self.cells
                if cells is None or not self._others(cells):
                    await asyncio.sleep(IDLE_S)
                    continue
                period_s = GOSSIP_S
                if cells.map.lease_ms:
                    period_s = min(GOSSIP_S, cells.map.lease_ms / 1000 / ROUNDS_PER_LEASE)
                began_ms = self._now_ms()
                await self.ask_all(cells, period_s)
                left_s = period_s - (self._now_ms() - began_ms) / 1000
                await asyncio.sleep(max(0.05, left_s if not self._is_eager() else min(left_s, IDLE_S)))
        finally:
            self._line.close()

    def _is_eager(self) -> bool:
        """Whether something waits to be confirmed."""
        cells = self.cells
        return bool(cells is not None and cells.lapsed) or not self._heard.is_set()

    def _others(self, cells: CellState) -> list[Cell]:
        return [cell for cell in cells.map.cells if cell.name != cells.cell and not cell.out]

    async def ask_all(self, cells: CellState, period_s: float) -> None:
        """Ask every other cell once, all at the same time."""
        homes, placed, name = self._homes(), cells.map, cells.cell
        answer_s = min(_ANSWER_S_MAX, period_s) if placed.lease_ms else _ANSWER_S_MAX
        asked = [self._ask(cell, name, homes, placed, answer_s) for cell in self._others(cells)]
        await asyncio.gather(*asked)
        self._end_unconfirmed()

    def _homes(self) -> dict[str, int]:
        """What is open in any shard here. Of several versions the oldest: what is newer than that is reported."""
        homes: dict[str, int] = {}
        for node in self._nodes:
            cells = node.replica.machine.state.cells
            for prefix, record in () if cells is None else cells.records.items():
                if cells is not None and cells.is_open(prefix):
                    homes[prefix] = min(homes.get(prefix, record.version), record.version)
        return homes

    async def _ask(
        self, cell: Cell, asker: str, homes: Mapping[str, int], placed: CellMap, answer_s: float
    ) -> None:
        sent_ms = self._now_ms()
        try:
            async with asyncio.timeout(answer_s):
                told = await self._line.confirm(cell, asker, homes, placed.version)
        except (FenceholdError, OSError, TimeoutError):
            return
        if told.map is not None and asker in told.map.by_name:
            self._submit(ApplyCells(told.map, asker))
        for record in told.newer:
            self._submit(CloseHome(record.prefix, record.to, record.version))
        if not told.newer:
            self._lease.confirm(homes, sent_ms, placed.lease_ms)
            self._resume(homes)
        self._heard.set()

    def _resume(self, homes: Mapping[str, int]) -> None:
        for node in self._nodes:
            cells = node.replica.machine.state.cells
            lapsed = () if cells is None else sorted(cells.lapsed & homes.keys())
            if lapsed and node.leads:
                node.submit(ResumeHomes(tuple((prefix, homes[prefix]) for prefix in lapsed)), _ignore)

    def _end_unconfirmed(self) -> None:
        """End what is held of homes that have been lapsed for a lease."""
        now_ms, cells = self._now_ms(), self.cells
        lapsed = set() if cells is None else cells.lapsed & cells.open_leased()
        self._lapsed_at = {prefix: self._lapsed_at.get(prefix, now_ms) for prefix in lapsed}
        lease_ms = 0 if cells is None else cells.map.lease_ms
        over = tuple(sorted(each for each, since_ms in self._lapsed_at.items() if now_ms - since_ms > lease_ms))
        if over and any(_has_holds(node, over) for node in self._nodes if node.leads):
            self._submit(LapseHomes(over))

    def _submit(self, command: Command) -> None:
        for node in self._nodes:
            if node.leads:
                node.submit(command, _ignore)


def _has_holds(node: Node, prefixes: Sequence[str]) -> bool:
    state = node.replica.machine.state
    cells = state.cells
    if cells is None:
        return False
    return any(cells.prefix_of(name) in prefixes for table in (state.held, state.crowds) for name in table)


def _ignore(*_: object) -> None:
    """No caller waits for the answer."""
