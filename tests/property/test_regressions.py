"""What was once found here, each in the shortest conversation that shows it."""

import pytest
from redis.crc import key_slot

from fencehold.core import commands as c
from fencehold.core import outcomes as o
from fencehold.core import snapshot
from fencehold.core.machine import Machine
from fencehold.placement.map import even_map
from tests.property.guarantees import History


def _tell(machine: Machine, *commands: c.Command) -> list[o.Outcome]:
    return machine.apply(machine.position + 1, c.Entry(0, commands)).outcomes


@pytest.mark.guarantee("G12")
def test_closing_a_snapshot_that_has_ended_does_not_disturb_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is of the moment it was begun, though an earlier one is closed meanwhile."""
    monkeypatch.setattr(snapshot, "_SLICE", 1)
    machine = Machine()
    _tell(machine, c.OpenSession(1_000), c.Acquire(1, ("a",)))
    earlier = machine.snapshot()
    at_once = b"".join(earlier)
    later = machine.snapshot()
    earlier.close()
    _tell(machine, c.Release(1, ("a",), 1))
    assert b"".join(later) == at_once


def _settled_and_not_acknowledged() -> Machine:
    """Request 1 of session 2 had waited and was granted; its final answer was settled, and nothing said since."""
    machine = Machine()
    _tell(machine, c.OpenSession(1_000), c.OpenSession(1_000))
    _tell(machine, c.Acquire(1, ("a",), 1), c.Acquire(2, ("a",), 1), c.Release(1, ("a",), 1, 2))
    _tell(machine, c.Settle(2, (1,)))
    return machine


@pytest.mark.guarantee("G9")
def test_a_request_that_was_settled_is_not_acted_upon_again() -> None:
    """A copy of a request that was late on its way does nothing, though the final answer has long arrived."""
    machine = _settled_and_not_acknowledged()
    _tell(machine, c.Release(2, ("a",), 2))
    (told,) = _tell(machine, c.Acquire(2, ("a",), 1))
    assert not machine.state.held, f"told {told}"


@pytest.mark.guarantee("G9")
def test_what_is_told_to_be_cancelled_holds_nothing() -> None:
    """Whoever is told that a request is cancelled can rely on it: it holds nothing."""
    machine = _settled_and_not_acknowledged()
    (told,) = _tell(machine, c.Cancel(2, 1))
    assert not (isinstance(told, o.Cancelled) and machine.state.held)


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize("raised_by", ["slots that open", "holds that are broken"])
def test_the_checker_knows_of_every_raised_fence(raised_by: str) -> None:
    """A release that names a fence nobody was granted, but that was passed over, is told truthfully."""
    machine, history = Machine(), History(lapsed_max=2)
    slot = key_slot(b"b")
    home = even_map(2).shard_of(slot)

    def tell(*commands: c.Command) -> list[o.Outcome]:
        entry = c.Entry(0, commands)
        applied = machine.apply(machine.position + 1, entry)
        history.follow(entry, applied)
        return applied.outcomes

    here = 1 - home if raised_by == "slots that open" else home
    tell(c.FoundShard(here, 2), c.OpenSession(1_000), c.Acquire(1, ("b",)))
    placed = even_map(2).moved([slot], 1 - home)
    tell(c.FollowMap(placed))
    if raised_by == "slots that open":
        tell(c.OpenSlots((slot,), 5, placed.version))
    else:
        tell(c.ForceSlots("ops"))
    (told,) = tell(c.Release(1, ("b",), machine.fence))
    assert isinstance(told, o.Released)
    assert told.reason is o.Reason.ALREADY_RELEASED
