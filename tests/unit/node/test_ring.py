"""The event ring: bounded by how much it keeps, and honest about what fell out of it."""

import random
import sys
from enum import Enum

import pytest

from fencehold.core.commands import (
    Acquire,
    Break,
    CloseSession,
    Command,
    Entry,
    Extend,
    OpenSession,
    Release,
    Renew,
    Settle,
)
from fencehold.core.events import Kind, Who
from fencehold.core.machine import Machine
from fencehold.journal.codec import decode, encode
from fencehold.node.ring import Ring
from tests.unit.node.test_replica import entry_at


def _fill(ring: Ring, count: int, size_bytes: int = 0) -> None:
    machine = Machine()
    for position in range(1, count + 1):
        entry = entry_at(position)
        ring.add(entry, machine.apply(position, entry), size_bytes)


def test_what_happened_since_a_position_comes_in_order() -> None:
    """All events after a position, and none before it, come in the order they happened in."""
    ring = Ring()
    _fill(ring, 6)
    positions = [event.position for event in ring.since(4)]
    assert positions == sorted(positions)
    assert set(positions) == {5, 6}
    assert [event.kind for event in ring.since(5)] == [Kind.ACQUIRED, Kind.QUEUED, Kind.RELEASED]
    assert list(ring.since(6)) == list(ring.since(1_000)) == []
    assert ring.lost_up_to == 0


def test_the_oldest_goes_first_and_is_said_to_be_gone() -> None:
    """Beyond so many things the oldest entries fall out whole, and the ring says up to where."""
    ring = Ring(things_max=10)
    _fill(ring, 8)
    assert ring.lost_up_to == 5
    assert {event.position for event in ring.since(0)} == {6, 7, 8}


def test_large_entries_are_bounded_by_their_bytes() -> None:
    """A few entries of many bytes push out as much as many small ones."""
    ring = Ring(bytes_max=100_000)
    _fill(ring, 8, size_bytes=40_000)
    assert ring.lost_up_to == 6
    assert {event.position for event in ring.since(0)} == {7, 8}


def test_the_newest_entry_stays_however_large_it_is() -> None:
    """An entry larger than the ring is kept until the next one comes."""
    ring = Ring(things_max=2, bytes_max=10)
    _fill(ring, 4, size_bytes=100)
    assert {event.position for event in ring.since(0)} == {4}


def test_ticks_take_no_room() -> None:
    """An entry in which nothing happened pushes nothing out."""
    ring = Ring(things_max=1)
    machine = Machine()
    ring.add(Entry(0, (Break("a"),)), machine.apply(1, Entry(0, (Break("a"),))))
    for position in range(2, 10):
        ring.add(Entry(1), machine.apply(position, Entry(1)))
    assert ring.lost_up_to == 0


def test_a_ring_that_forgot_says_up_to_where() -> None:
    """After starting anew at a position, what came before counts as lost, and what cannot stay is not added."""
    ring = Ring(things_max=40)
    _fill(ring, 3)
    anew = ring.anew(2, 3)
    _fill(anew, 3)
    ring.take(anew)
    assert ({event.position for event in ring.since(0)}, ring.lost_up_to) == ({3}, 2)
    assert ring.anew(2, 100).lost_up_to == 60


def test_who_ended_is_known_as_long_as_anything_of_it() -> None:
    """What a client said of itself stays until the end of its session falls out of the ring."""
    ring, machine = Ring(things_max=5), Machine()
    one, two = OpenSession(1_000, meta="one"), OpenSession(1_000, meta="two")
    commands: list[Command] = [one, CloseSession(1), two, CloseSession(2)]
    for position, command in enumerate(commands, 1):
        ring.add(Entry(0, (command,)), machine.apply(position, Entry(0, (command,))))
    assert ring.lost_up_to == 1
    assert ring.ended == {1: Who("one"), 2: Who("two")}
    machine.apply(5, Entry(0, (Break("a"),)))
    ring.add(Entry(0, (Break("a"),)), machine.apply(6, Entry(0, (Break("a"),))))
    assert ring.lost_up_to == 2
    assert ring.ended == {2: Who("two")}
    ring.take(ring.anew(6, 6))
    assert ring.ended == {}


def test_what_clients_said_of_themselves_counts_as_bytes() -> None:
    """A thousand sessions that end with much to say push out as much as large entries do."""
    ring, machine = Ring(bytes_max=5_000), Machine()
    for session in range(1, 4):
        opened = Entry(0, (OpenSession(1_000, meta=600 * "x"),))
        machine.apply(2 * session - 1, opened)
        closed = Entry(0, (CloseSession(session),))
        ring.add(closed, machine.apply(2 * session, closed))
    assert list(ring.ended) == [3]


def test_the_next_entry_after_any_position_is_found() -> None:
    """Positions need not follow one another: ticks are not kept."""
    ring, machine = Ring(), Machine()
    kept = []
    for position in range(1, 60):
        entry = Entry(0, (Break("a"),)) if position % 7 in (0, 1, 5) else Entry(1)
        ring.add(entry, machine.apply(position, entry))
        kept += [position] if entry.commands else []
        for asked in range(position + 2):
            found = ring.after(asked)
            expected = next((one for one in kept if one > asked), None)
            assert (found.applied.position if found else None) == expected


def _in_memory(thing: object, seen: set[int]) -> int:
    """How many bytes something takes with all it refers to, each part once."""
    if thing is None or isinstance(thing, Enum) or id(thing) in seen:
        return 0
    seen.add(id(thing))
    parts: list[object] = list(thing) if isinstance(thing, tuple | list) else []
    parts += [getattr(thing, field) for field in getattr(thing, "__struct_fields__", ())]
    return sys.getsizeof(thing) + sum(_in_memory(part, seen) for part in parts)


@pytest.mark.parametrize("letter", ["x", "é", "漢", "😀"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_counted_is_what_is_kept_and_not_much_more(letter: str, seed: int) -> None:
    """Whatever was done, the ring takes no more memory than it counts, and no less than a fifth of that."""
    chance = random.Random(seed)
    ring, machine = Ring(), Machine()
    entries: list[object] = []
    for position in range(1, 200):
        entry = decode(encode(Entry(chance.choice((0, 0, 400)), tuple(_some_commands(chance, letter)))))
        applied = machine.apply(position, entry)
        ring.add(entry, applied, len(encode(entry)))
        if entry.commands or applied.notices:
            entries.append((entry, applied))
    kept_bytes = _in_memory(entries, set())
    assert kept_bytes <= ring.size_bytes <= 5 * kept_bytes


def _some_commands(chance: random.Random, letter: str) -> list[Command]:
    commands: list[Command] = []
    for _ in range(chance.choice((0, 1, 1, 3, 40))):
        session, count = chance.randrange(1, 40), chance.choice((1, 1, 5, 40))
        names = tuple(f"{letter}{chance.randrange(60)}{chance.choice((3, 60)) * 'n'}" for _ in range(count))
        names = tuple(dict.fromkeys(names))
        owner = letter + chance.choice("tu")
        commands.append(
            chance.choice(
                (
                    OpenSession(chance.choice((900, 5_000)), meta=chance.choice((1, 200)) * "m" + letter),
                    Acquire(session, names, 0, 0, owner, meta=letter + chance.choice((1, 200)) * "m"),
                    Acquire(session, names, chance.randrange(500), 0, owner, wait_ms=300, ttl_ms=500),
                    Release(session, names, chance.randrange(200)),
                    Extend(session, names, chance.randrange(200), 500),
                    Break(names[0], by=letter),
                    Renew(tuple(range(1_000, 1_000 + count))),
                    Settle(session, tuple(range(1_000, 1_000 + count))),
                    CloseSession(session),
                )
            )
        )
    return commands
