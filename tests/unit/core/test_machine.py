"""The machine as its callers meet it: order, invariants, and memory that follows what is held."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from fencehold.core import acquire as acquiring
from fencehold.core.commands import (
    Acquire,
    AcquireAtLeast,
    CloseSession,
    Entry,
    Extend,
    Mode,
    OpenSession,
    Release,
)
from fencehold.core.events import Kind, events_of
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Code, Granted, Queued, Refused
from fencehold.core.state import Hold
from fencehold.core.views import holding_of, holds_after, names_in_use
from fencehold.errors import InvariantViolated


def test_entries_come_in_order_without_gaps() -> None:
    """An entry out of place ends the work, rather than be applied or skipped."""
    machine = Machine()
    with pytest.raises(InvariantViolated, match="without gaps"):
        machine.apply(2, Entry(0))
    machine.apply(1, Entry(5))
    with pytest.raises(InvariantViolated, match="without gaps"):
        machine.apply(1, Entry(5))
    assert (machine.position, machine.now_at, machine.fence) == (1, 5, 0)


@pytest.mark.guarantee("G2")
def test_a_second_exclusive_hold_ends_the_process() -> None:
    """Should the machine itself be wrong, it stops before anybody is told of a grant."""
    machine = Machine()
    machine.apply(1, Entry(0, (OpenSession(1_000), Acquire(1, ("a",)))))
    session = machine.state.sessions[1]
    with pytest.raises(InvariantViolated, match="one hold"):
        machine.state.put_in(session, Hold("a", 1, "", 9, 0))


@pytest.mark.guarantee("G11")
def test_names_that_were_used_leave_nothing_behind() -> None:
    """After a hundred thousand names, as many tables are empty as before the first."""
    machine = Machine(Limits(names_per_request_max=100))
    machine.apply(1, Entry(0, (OpenSession(30_000),)))
    for position in range(2, 1_002):
        names = tuple(f"order:{position}:{i}" for i in range(100))
        request = 2 * position
        applied = machine.apply(
            position,
            Entry(
                1,
                (
                    Acquire(1, names, request, request - 1, ttl_ms=60_000),
                    Release(1, names, position - 1, request + 1, request),
                ),
            ),
        )
        assert isinstance(applied.outcomes[0], Granted)
    assert names_in_use(machine.state) == []
    assert len(machine.state.holds_due) == 0
    assert len(machine.state.sessions[1].answers) == 1


def test_names_in_use_are_listed_by_prefix() -> None:
    """Held, awaited and delayed names, sorted."""
    machine = Machine()
    commands = (OpenSession(1_000), Acquire(1, ("b:1",)), Acquire(1, ("b:1", "b:0")), Acquire(1, ("a",)))
    machine.apply(1, Entry(0, commands))
    assert names_in_use(machine.state) == ["a", "b:0", "b:1"]
    assert names_in_use(machine.state, "b:") == ["b:0", "b:1"]


@pytest.mark.guarantee("G6")
def test_a_session_with_thousands_of_holds_ends_in_one_entry() -> None:
    """Its holds are free, and told of, all at once and in the order of their fences."""
    machine = Machine()
    machine.apply(1, Entry(0, (OpenSession(1_000), *(Acquire(1, (f"n{i}",)) for i in range(5_000)))))
    entry = Entry(0, (CloseSession(1),))
    events = list(events_of(entry, machine.apply(2, entry)))
    assert [event.kind for event in events] == [Kind.SESSION_ENDED] + [Kind.RELEASED] * 5_000
    assert [event.fence for event in events[1:]] == list(range(1, 5_001))
    assert names_in_use(machine.state) == []


@pytest.mark.guarantee("G11")
def test_no_more_names_are_kept_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are kept are nobody's, so they have a bound of their own; later there is room."""
    monkeypatch.setattr(acquiring, "KEPT_MAX", 2)
    machine = Machine()
    asks = [AcquireAtLeast(1, (name,), at_least_ms=1_000) for name in "abc"]
    applied = machine.apply(1, Entry(0, (OpenSession(30_000), *asks, CloseSession(1), OpenSession(30_000))))
    assert applied.outcomes[3] == Refused(Code.LIMIT, "2 names are kept by at_least, of 2 at the most")
    assert names_in_use(machine.state) == ["a", "b"]
    assert machine.state.next_due_at() == 1_000
    machine.apply(2, Entry(1_000))
    assert names_in_use(machine.state) == []
    assert not machine.state.kept_due
    assert isinstance(machine.apply(3, Entry(0, (replace(asks[0], session=2),))).outcomes[0], Granted)


class _Looked(dict[int, Hold]):
    """Holds that count how many of them were looked at."""

    count = 0

    def __iter__(self) -> Iterator[int]:
        return map(self._counted, super().__iter__())

    def values(self) -> Any:
        return map(self._counted, super().values())

    def _counted(self, each: Any) -> Any:
        self.count += 1
        return each


def test_to_wait_for_a_large_semaphore_costs_no_look_at_each_permit() -> None:
    """Any of them may come back first, so none of them is waited for."""
    machine = Machine()
    asks = [Acquire(1, ("pool",), owner=f"t{number}", mode=Mode.PERMIT, limit=1_000) for number in range(1_001)]
    machine.apply(1, Entry(0, (OpenSession(30_000), *asks[:-1])))
    crowd = machine.state.crowds["pool"]
    looked = _Looked(crowd.holds)
    machine.state.crowds["pool"] = replace(crowd, holds=looked)
    applied = machine.apply(2, Entry(0, (asks[-1],)))
    assert isinstance(applied.outcomes[0], Queued)
    assert looked.count == 0


def test_holders_that_share_a_name_stand_in_the_order_of_their_fences() -> None:
    """Also after one of them was given more time, and in a machine that was restored."""
    machine = Machine()
    shares = tuple(Acquire(1 + turn % 2, ("a",), mode=Mode.SHARED, ttl_ms=5_000) for turn in range(6))
    machine.apply(1, Entry(0, (OpenSession(30_000), OpenSession(30_000), *shares)))
    machine.apply(2, Entry(0, (Extend(1, ("a",), 1, 9_000), Extend(2, ("a",), 4, 0), Release(1, ("a",), 3))))
    for each in (machine, Machine.restore(b"".join(machine.snapshot()))):
        assert [(hold.fence, hold.until_at) for hold in each.state.holders("a")] == [
            (1, 9_000),
            (2, 5_000),
            (4, 0),
            (5, 5_000),
            (6, 5_000),
        ]
        holding = holding_of(each.state, "a")
        assert holding is not None
        assert (holding.count, holding.oldest.fence, holding.newest.fence) == (5, 1, 6)
        page = holds_after(each.state, "a", 2, 2)
        assert ([hold.fence for hold in page.items], page.ahead, page.total) == ([4, 5], 2, 5)
        assert each.apply(3, Entry(5_000 - 4_000, ())).notices == []
