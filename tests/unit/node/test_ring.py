"""The event ring: bounded by how much it keeps, and honest about what fell out of it."""

from fencehold.core.commands import Break, CloseSession, Command, Entry, OpenSession
from fencehold.core.events import Kind
from fencehold.core.machine import Machine
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
    ring = Ring(bytes_max=1_000)
    _fill(ring, 8, size_bytes=400)
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
    """After starting anew at a position, what came before counts as lost."""
    ring = Ring()
    _fill(ring, 3)
    ring.forget(3)
    assert (list(ring.since(0)), ring.lost_up_to) == ([], 3)


def test_who_ended_is_known_as_long_as_anything_of_it() -> None:
    """What a client said of itself stays until the end of its session falls out of the ring."""
    ring, machine = Ring(things_max=5), Machine()
    one, two = OpenSession(1_000, meta="one"), OpenSession(1_000, meta="two")
    commands: list[Command] = [one, CloseSession(1), two, CloseSession(2)]
    for position, command in enumerate(commands, 1):
        ring.add(Entry(0, (command,)), machine.apply(position, Entry(0, (command,))))
    assert ring.lost_up_to == 1
    assert ring.ended == {1: "one", 2: "two"}
    machine.apply(5, Entry(0, (Break("a"),)))
    ring.add(Entry(0, (Break("a"),)), machine.apply(6, Entry(0, (Break("a"),))))
    assert ring.lost_up_to == 2
    assert ring.ended == {2: "two"}
    ring.forget(6)
    assert ring.ended == {}


def test_what_clients_said_of_themselves_counts_as_bytes() -> None:
    """A thousand sessions that end with much to say push out as much as large entries do."""
    ring, machine = Ring(bytes_max=1_000), Machine()
    for session in range(1, 4):
        opened = Entry(0, (OpenSession(1_000, meta=200 * "x"),))
        machine.apply(2 * session - 1, opened)
        closed = Entry(0, (CloseSession(session),))
        ring.add(closed, machine.apply(2 * session, closed))
    assert list(ring.ended) == [3]
