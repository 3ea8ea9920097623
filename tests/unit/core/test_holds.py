"""The table of names that are held: it is one mapping, in parts that grow one by one."""

import sys

import pytest

from fencehold.core.commands import Acquire, CloseSession, Entry, Extend, OpenSession, Release
from fencehold.core.holds import FRESH_MAX, PARTS
from fencehold.core.machine import Machine

NAMES = [f"name:{number}" for number in range(5_000)]


def machine_with(names: list[str]) -> Machine:
    machine = Machine()
    machine.apply(1, Entry(0, (OpenSession(30_000),)))
    machine.apply(2, Entry(0, tuple(Acquire(1, (name,)) for name in names)))
    return machine


def test_it_is_a_mapping_of_all_names_whatever_part_they_are_in() -> None:
    """What is held is found, listed and counted; what is free is not."""
    held = machine_with(NAMES).state.held
    assert sorted(held) == sorted(NAMES) == sorted(held.keys())
    assert len(held) == len(NAMES)
    assert {name: hold.name for name, hold in held.items()} == {name: name for name in NAMES}
    assert held["name:7"] is held.get("name:7")
    assert "free" not in held
    assert held.get("free") is None


def test_no_part_has_more_than_a_few_times_its_share() -> None:
    """So the largest that is made anew at once is a small part of the whole, at any size."""
    held = machine_with(NAMES).state.held
    largest = max(sys.getsizeof(part) for part in held.parts)
    assert max(map(len, held.parts)) < 4 * len(NAMES) / PARTS
    assert largest < sys.getsizeof(dict.fromkeys(NAMES)) / 32


def test_what_is_released_leaves_no_trace() -> None:
    """A free name costs nothing (G11)."""
    machine = machine_with(NAMES)
    releases = tuple(Release(1, (name,), number) for number, name in enumerate(NAMES, 1))
    machine.apply(3, Entry(0, releases))
    assert not machine.state.held
    assert not any(machine.state.held.parts)


def test_the_short_way_of_a_release_leaves_what_it_must_count_to_the_long_one() -> None:
    """Holds with metadata are counted, and no longer when they are released."""
    machine = Machine()
    machine.apply(1, Entry(0, (OpenSession(30_000),)))
    machine.apply(2, Entry(0, (Acquire(1, ("a",), meta="why"), Acquire(1, ("b",)))))
    assert machine.state.noted == 1
    machine.apply(3, Entry(0, (Release(1, ("a",), 1), Release(1, ("b",), 2))))
    assert (machine.state.noted, list(machine.state.held)) == (0, [])


def test_tables_keep_the_hashes_of_names_with_them() -> None:
    """So that no text is read of a name that only stands in the way; also after names came and went."""
    machine = machine_with(NAMES)
    machine.apply(3, Entry(0, tuple(Release(1, (name,), fence) for fence, name in enumerate(NAMES, 1))))
    machine.apply(4, Entry(0, tuple(Acquire(1, (name,)) for name in NAMES)))
    tables = [machine.state.sessions[1].settled, *machine.state.held.parts]
    for table in tables:
        without = dict.fromkeys([*table])
        assert sys.getsizeof(table) / sys.getsizeof(without) > 1.2


def test_a_release_by_another_fence_changes_nothing() -> None:
    """A hold is taken out as it is found; one that is not meant is back in its place."""
    machine = machine_with(NAMES[:3])
    before = dict(machine.state.held)
    machine.apply(3, Entry(0, (Release(1, ("name:1",), 1), Release(1, ("name:1",), 99))))
    assert dict(machine.state.held) == before == machine.state.sessions[1].fresh


def test_a_session_has_each_hold_in_one_of_two_tables_and_the_small_one_stays_small() -> None:
    """The newest holds are in the small one, at every size; together they are all that the session holds."""
    machine = machine_with([])
    session = machine.state.sessions[1]
    for position, name in enumerate(NAMES[: 3 * FRESH_MAX], 3):
        machine.apply(position, Entry(0, (Acquire(1, (name,)),)))
        assert name in session.fresh
        assert len(session.fresh) <= FRESH_MAX
        assert not session.fresh.keys() & session.settled.keys()
        assert {**session.fresh, **session.settled} == dict(machine.state.held)


@pytest.mark.parametrize("how", ["plain", "several", "extended"])
def test_a_hold_ends_in_whichever_table_it_is(how: str) -> None:
    """Released, extended or counted, old and new holds are alike."""
    machine = machine_with([])
    for position, name in enumerate(NAMES[: 2 * FRESH_MAX], 3):
        machine.apply(position, Entry(0, (Acquire(1, (name,)),)))
    session = machine.state.sessions[1]
    old, new = next(iter(session.settled)), next(iter(session.fresh))
    fences = {name: machine.state.held[name].fence for name in (old, new)}
    if how == "extended":
        extended = tuple(Extend(1, (name,), fence, ttl_ms=5_000) for name, fence in fences.items())
        machine.apply(machine.position + 1, Entry(0, extended))
        assert session.settled[old].until_at == session.fresh[new].until_at == 5_000
        assert machine.state.held[old] is session.settled[old]
    more = ("free",) if how == "several" else ()
    releases = tuple(Release(1, (name, *more), fence) for name, fence in fences.items())
    machine.apply(machine.position + 1, Entry(0, releases))
    assert not {old, new} & {*session.fresh, *session.settled, *machine.state.held}
    assert session.size() == session.hold_count() == 2 * FRESH_MAX - 2
    machine.apply(machine.position + 1, Entry(0, (CloseSession(1),)))
    assert not machine.state.held
