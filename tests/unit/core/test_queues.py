"""Queues are not gone through: not for a place, not for a limit, not for who is next."""

from collections import Counter
from collections.abc import Iterator

import pytest

from fencehold.core.commands import Acquire, Cancel, CloseSession, Command, Entry, Extend, Mode, OpenSession
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Granted, Outcome, Queued, Refused
from fencehold.core.state import Queue


@pytest.fixture
def machine() -> Machine:
    machine = Machine(Limits(waiters_per_name_max=20_000, holds_per_session_max=100_000))
    tell(machine, *[OpenSession(60_000)] * 3)
    return machine


def tell(machine: Machine, *commands: Command) -> list[Outcome]:
    return machine.apply(machine.position + 1, Entry(1, commands)).outcomes


def semaphore(session: int, limit: int, request: int = 0) -> Acquire:
    return Acquire(session, ("a",), request, mode=Mode.PERMIT, limit=limit)


def test_a_request_that_is_repeated_is_told_its_place_without_a_look_along_the_queue(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first that is repeated, whoever joins or leaves."""
    looks: list[Queue] = []
    asks = [Acquire(1, ("a",), request) for request in range(1, 1_001)]
    tell(machine, *asks)
    assert tell(machine, asks[500]) == [Queued(500, 499)]

    def look(queue: Queue) -> Iterator[int]:
        looks.append(queue)
        return dict.__iter__(queue)

    monkeypatch.setattr(Queue, "__iter__", look)
    assert tell(machine, asks[500], asks[999]) == [Queued(500, 499), Queued(999, 998)]
    assert not looks
    tell(machine, Cancel(1, 300), Cancel(1, 700), Acquire(1, ("a",), 1_001))
    looks.clear()
    again = tell(machine, asks[500], asks[999], Acquire(1, ("a",), 1_001))
    assert again == [Queued(500, 498), Queued(999, 996), Queued(1_000, 997)]
    assert not looks


def test_a_limit_is_known_without_a_look_along_the_queue(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many who want the name to themselves may stand before the one that wants a permit."""
    tell(machine, *(Acquire(1, ("a",)) for _ in range(1_000)))

    def look(_queue: Queue) -> None:
        raise AssertionError("somebody goes through the queue")

    monkeypatch.setattr(Queue, "values", look)
    assert isinstance(tell(machine, semaphore(2, 3, 1))[0], Queued)
    assert isinstance(tell(machine, semaphore(2, 4, 2))[0], Refused)
    tell(machine, Cancel(2, 1))
    assert isinstance(tell(machine, semaphore(2, 4, 3))[0], Queued)
    assert isinstance(tell(machine, semaphore(2, 3, 4))[0], Refused)


def test_who_is_first_in_many_queues_is_looked_at_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ends frees 64 names that one stands first for: one look, not one for each."""
    heads: Counter[int] = Counter()

    def look(queue: Queue) -> Iterator[int]:
        heads[next(dict.__iter__(queue))] += 1
        return dict.__iter__(queue)

    names = tuple(f"n-{i}" for i in range(64))
    tell(machine, Acquire(1, names), Acquire(2, names, 1), Acquire(3, names), Acquire(3, names))
    monkeypatch.setattr(Queue, "__iter__", look)
    assert isinstance(tell(machine, CloseSession(1), Acquire(2, names, 1))[1], Granted)
    # Each of the queues is asked once who is its first. Who is next is then asked of all names of the first, which
    # is granted, and of one name of the second: that is held.
    assert heads == {1: 64 + 64, 2: 64 + 1}


def test_a_crowd_is_in_the_order_of_its_fences(machine: Machine) -> None:
    """However its holds were moved, and after a restore: what is told of it is told by every replica."""
    tell(machine, *(Acquire(session, ("a",), mode=Mode.SHARED) for session in (3, 1, 2)))
    tell(machine, Extend(3, ("a",), 1, 5_000))
    restored = Machine.restore(b"".join(machine.snapshot()))
    for state in (machine.state, restored.state):
        assert [(hold.session, hold.until_at) for hold in state.holders("a")] == [(3, 5_003), (1, 0), (2, 0)]
        assert list(state.crowds["a"].holds) == [1, 2, 3]
    assert machine.state_hash() == restored.state_hash()
