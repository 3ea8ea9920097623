"""Deadlines: what is due, in an order any replica comes to."""

import random

from fencehold.core.deadlines import Deadlines


def test_what_is_due_comes_by_instant_then_by_key() -> None:
    """The order of adding does not matter."""
    deadlines: Deadlines[int] = Deadlines()
    for at, key in ((20, 2), (10, 9), (20, 1), (30, 0), (10, 3)):
        deadlines.add(at, key)
    assert deadlines.due(9) == []
    assert deadlines.due(20) == [3, 9, 1, 2]
    assert deadlines.due(20) == []
    assert len(deadlines) == 1


def test_what_is_dropped_is_never_due() -> None:
    """Also when it is added again at the same instant."""
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add(5, "a")
    deadlines.drop(5, "a")
    assert deadlines.due(5) == []
    deadlines.add(6, "a")
    deadlines.drop(6, "a")
    deadlines.add(6, "a")
    assert deadlines.due(6) == ["a"]


def test_dropping_leaves_nothing_behind_for_long() -> None:
    """A million holds taken and given back do not fill the memory."""
    deadlines: Deadlines[int] = Deadlines()
    for at in range(100_000):
        deadlines.add(at, at)
        deadlines.drop(at, at)
    assert len(deadlines) == 0
    assert len(deadlines.heap) < 5_000


def test_what_is_coming_is_what_will_be_due() -> None:
    """Looked at as often as one likes, whatever was dropped, or added twice at one instant."""
    chance = random.Random(7)
    deadlines: Deadlines[int] = Deadlines()
    entered = {key: chance.randrange(50) for key in range(500)}
    for key, at in entered.items():
        deadlines.add(at, key)
    for key in chance.sample(range(500), 300):
        deadlines.drop(entered.pop(key), key)
    for key in range(500, 600):
        entered[key] = chance.randrange(50)
        deadlines.add(entered[key], key)
    for until_at in (0, 7, 7, 30, 60):
        coming = deadlines.coming(until_at)
        assert sorted(coming) == sorted(key for key, at in entered.items() if at <= until_at)
    assert sorted(deadlines.coming(30)) == sorted(deadlines.due(30))
    assert deadlines.coming(30) == []
