"""The lease on the homes of a cell: until when this node may answer for those that another cell must confirm.

1. It counts from when a confirmation was *asked for*, by this node's own clock: a clock that also counts while the
   machine sleeps, where there is one. No clock of another machine is read. A node that has just started, or taken
   over, has no lease but what it was confirmed itself.
2. It is for the homes that were named when it was asked for, each with its version, and no others: one that was
   opened since is not covered by it.
3. A leader checks twice (`leader`). Before an entry, what is not covered for a while yet lapses, by a command in
   that entry. After the entry is durable nothing of it is answered if what it relied on has run out meanwhile: so
   a node that slept between the two reports no grant, nor answers a keep-alive.
"""

from collections.abc import Callable, Mapping

from fencehold.core.state import CellState

_MARGIN = 0.1
"""The part of a lease that is left unused: an entry that is begun within a lease is to be durable within it."""


class HomesLease:
    """What was confirmed, and until when."""

    __slots__ = ("_confirmed", "_now_ms")

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._confirmed: dict[str, tuple[int, float]] = {}

    def confirm(self, homes: Mapping[str, int], sent_ms: float, lease_ms: float) -> None:
        """Another cell has confirmed these homes, with these versions; it was asked at `sent_ms`."""
        until_ms = sent_ms + lease_ms
        for prefix, version in homes.items():
            known, known_ms = self._confirmed.get(prefix, (0, 0.0))
            if known != version or until_ms > known_ms:
                self._confirmed[prefix] = (version, until_ms)

    def forget(self) -> None:
        """Rely on nothing that was confirmed so far."""
        self._confirmed.clear()

    def uncovered(self, cells: CellState) -> tuple[str, ...]:
        """Homes that grant and are not confirmed for a while yet."""
        if not cells.map.lease_ms:
            return ()
        return self._unsure(cells, self._now_ms() + _MARGIN * cells.map.lease_ms)

    def has_run_out(self, cells: CellState) -> bool:
        """Whether a home grants that is not confirmed at this moment."""
        return bool(cells.map.lease_ms and self._unsure(cells, self._now_ms()))

    def covers(self, prefix: str, version: int) -> bool:
        """Whether a home is confirmed at this moment, with this version."""
        known, until_ms = self._confirmed.get(prefix, (0, 0.0))
        return known == version and self._now_ms() < until_ms

    def _unsure(self, cells: CellState, now_ms: float) -> tuple[str, ...]:
        known = self._confirmed
        return tuple(
            prefix
            for prefix, version in cells.granting_leased().items()
            if prefix not in known or known[prefix][0] != version or known[prefix][1] <= now_ms
        )
