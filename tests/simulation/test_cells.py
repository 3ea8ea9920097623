"""Cells in the simulation: homes that move and are promoted, with cells cut off; and planted bugs, each found."""

from collections.abc import Callable, Generator

import pytest

from fencehold.core import acquire, home_moves
from fencehold.core import outcomes as o
from fencehold.core.state import CellState
from fencehold.node.homes_lease import HomesLease
from fencehold.placement import home_procedures as p
from tests.depth import deep
from tests.simulation.cells import Broken, Host, Operator, World, played

SEEDS = int(deep("25", "2000"))
SEARCHED = 300
"""Seeds that a planted bug is looked for in; those in which it was found before come first."""


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G2")
@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G14")
def test_over_moves_promotions_and_cells_that_are_cut_off_a_name_has_one_holder_and_its_fences_grow() -> None:
    """No seed shows a name that two clients trust at once, nor a fence that is not new."""
    runs = [played(seed) for seed in range(SEEDS)]
    done = {what: sum(run.done[what] for run in runs) for what in runs[0].done}
    assert done["grants"] > 20 * SEEDS
    assert done["moves"] > SEEDS
    assert done["promotions"] > SEEDS // 10
    assert done["lapses"] > SEEDS
    assert done["unsaid"] > SEEDS // 10


class _SureLease(HomesLease):
    """Bug: it believes itself to be confirmed."""

    def uncovered(self, cells: CellState) -> tuple[str, ...]:
        return ()

    def has_run_out(self, cells: CellState) -> bool:
        return False


class _OldHome(Host):
    def made_lease(self) -> HomesLease:
        return _SureLease(lambda: self.world.now * self.rate)


class OldHomeWakesUp(World):
    """Bug: a home that was cut off goes on when it is back, and while it is not."""

    def made_host(self, name: str) -> Host:
        return _OldHome(self, name)


class _Hasty(Operator):
    def wait(self, wait: p.Wait) -> None:
        super().wait(p.Wait(min(wait.seconds, 0.05), wait.why))


class PromotesTooEarly(World):
    """Bug: the lease of the lost home is not waited out."""

    def made_operator(self) -> Operator:
        return _Hasty(self)


@pytest.mark.parametrize(("bug", "seed"), [(OldHomeWakesUp, 26), (PromotesTooEarly, 108)])
def test_a_cell_or_an_operator_that_is_wrong_is_found(bug: Callable[[int], World], seed: int) -> None:
    """What leases and waits are for: without them, some seed shows two holders, or a fence that goes back."""
    assert any(_breaks(each, bug) for each in (seed, *range(SEARCHED)))


def _by_the_map(cells: CellState, names: tuple[str, ...]) -> o.Refused | None:
    strays = [name for name in names if cells.map.home_of(name).cell != cells.cell]
    return o.Refused(o.Code.ELSEWHERE, f"{cells.map.home_of(strays[0]).cell} x:1") if strays else None


@pytest.mark.parametrize(
    ("module", "name", "planted", "seed"),
    [
        (home_moves, "_is_old", lambda *_: False, 11),
        (home_moves, "_left", lambda *_: 0, 15),
        (acquire, "refuse_away", _by_the_map, 0),
        (p, "_sealed", None, 0),
    ],
    ids=["believes what comes late", "seals what is held", "grants by its map", "opens before closed"],
)
def test_a_machine_or_a_procedure_that_is_wrong_is_found(
    module: object, name: str, planted: Callable[..., object] | None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late command is believed; a home is sealed while held; a map out of order decides; F is too old."""
    monkeypatch.setattr(module, name, planted or _unsealed)
    assert any(_breaks(each, World) for each in (seed, *range(SEARCHED)))


def _unsealed(
    prefix: str, others: dict[str, p.HomeStatus], *, force: bool
) -> Generator[p.Step, p.Reply, dict[str, p.HomeStatus]]:
    """It goes on with the fences that were told when the move began."""
    yield from ()
    return others


def _breaks(seed: int, kind: Callable[[int], World]) -> bool:
    try:
        played(seed, kind)
    except Broken:
        return True
    return False
