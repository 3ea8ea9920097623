"""The roll of names: pages in every order, filters, and what comes and goes."""

import random

import pytest

from fencehold.dashboard.roll import Roll, Row, Wanted
from fencehold.locks.templates import template_of


def held(name: str, fence: int, session: int = 1, waiters: int = 0) -> Row:
    return Row(name, fence, 1, waiters, "X", session, since_ms=fence)


def names(roll: Roll, **wanted: object) -> list[str]:
    return [row.name for row in roll.page(Wanted(**wanted), 0, 1_000).rows]  # type: ignore[arg-type]


@pytest.fixture
def roll() -> Roll:
    """With a clock that stands: what was found is not remembered."""
    made = Roll(lambda: 0.0)
    for row in (held("b", 5), held("a", 7, waiters=3), held("c", 6, session=2)):
        made.put(row)
    made.settle()
    return made


def test_orders(roll: Roll) -> None:
    """By age the oldest grant is first, by queue the longest, and each order can be turned round."""
    assert names(roll) == ["b", "c", "a"]
    assert names(roll, is_reversed=True) == ["a", "c", "b"]
    assert names(roll, sort="name") == ["a", "b", "c"]
    assert names(roll, sort="queue")[0] == "a"
    with pytest.raises(KeyError):
        names(roll, sort="colour")


def test_filters(roll: Roll) -> None:
    """By text, pattern, prefix, session and state."""
    roll.put(held("order:17", 8))
    roll.put(Row("order:18", waiters=1))
    assert names(roll, search="er:1") == ["order:17", "order:18"]
    assert names(roll, search="o*7") == ["order:17"]
    assert names(roll, search="*.*") == []
    assert names(roll, prefix="order:", state="held") == ["order:17"]
    assert names(roll, state="awaited") == ["a", "order:18"]
    assert names(roll, sessions=frozenset({2})) == ["c"]


def test_a_new_grant_goes_to_the_end_and_what_ended_is_gone(roll: Roll) -> None:
    """Without a sort: fences only grow."""
    roll.put(held("b", 9))
    assert names(roll) == ["c", "a", "b"]
    roll.drop("c")
    roll.drop("never there")
    assert names(roll) == ["a", "b"]
    assert (len(roll), roll.held, roll.awaited) == (2, 2, 1)
    assert [row.name for row in roll.oldest(1)] == ["a"]


def test_it_agrees_with_a_plain_list_whatever_comes_and_goes() -> None:
    """Orders are kept by merging: they must be those of a sort."""
    lot, roll = random.Random(5), Roll(lambda: 0.0)
    model: dict[str, int] = {}
    for fence in range(1, 2_000):
        name = f"n{lot.randrange(300)}"
        if lot.random() < 0.4:
            roll.drop(name)
            model.pop(name, None)
        else:
            roll.put(held(name, fence))
            model[name] = fence
        if fence == 100:
            roll.settle()
        if fence % 97 == 0:
            assert names(roll, sort="name") == sorted(model)
            assert names(roll) == sorted(model, key=model.__getitem__)


class Slow:
    """A clock by which a search takes a while, and is remembered for longer."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def test_what_was_found_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that scrolling through many names does not look through all of them each time."""
    monkeypatch.setattr("fencehold.dashboard.roll._FEW", 0)
    clock = Slow()
    roll = Roll(clock)
    roll.put(held("a", 1))
    roll.settle()
    assert names(roll, search="a") == ["a"]
    roll.put(held("aa", 2))
    assert names(roll, search="a") == ["a"]
    clock.now += 1
    assert names(roll, search="a") == ["a", "aa"]


@pytest.mark.parametrize("few", [3, 2_000])
def test_of_few_names_that_were_found_what_comes_and_goes_is_seen_at_once(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is remembered, in every order; with more of them, after a while."""
    monkeypatch.setattr("fencehold.dashboard.roll._FEW", few)
    monkeypatch.setattr("fencehold.dashboard.roll._REST", 1e9 if few > 3 else 1.0)
    lot, clock = random.Random(7), Slow()
    roll = Roll(clock)
    model: dict[str, int] = {}
    roll.settle()
    for fence in range(1, 1_000):
        name = f"n{lot.randrange(40)}"
        if lot.random() < 0.5:
            roll.drop(name)
            model.pop(name, None)
        else:
            roll.put(held(name, fence))
            model[name] = fence
        if few == 3:
            clock.now += 1
        found = {name: fence for name, fence in model.items() if "1" in name}
        by_age = sorted(found, key=found.__getitem__)
        assert names(roll, search="1") == by_age
        assert names(roll, search="1", is_reversed=True) == by_age[::-1]
        assert names(roll, search="1", sort="name") == sorted(found)
        assert names(roll, search="1", sort="name", is_reversed=True) == sorted(found)[::-1]


def test_there_is_a_bound_on_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it, they are not kept, and that is known."""
    monkeypatch.setattr("fencehold.dashboard.roll.NAMES_MAX", 2)
    roll = Roll()
    for number in range(3):
        roll.put(held(str(number), number + 1))
    assert (len(roll), roll.is_cut) == (2, True)


def test_templates_show_how_names_are_built(roll: Roll) -> None:
    """Numbers, hexadecimal ids and UUIDs are alike."""
    assert template_of("order:17:item:3") == "order:*:item:*"
    assert template_of("user:0b1e6f2a-1111-2222-3333-444455556666/x") == "user:*/x"
    assert template_of("blob:deadbeef01") == "blob:*"
    for number in range(5):
        roll.put(held(f"order:{number}", 10 + number))
    assert roll.templates(1) == [("order:*", 5)]


def test_patterns_cannot_be_slow() -> None:
    """Many stars in a row are one star."""
    roll = Roll()
    roll.put(held("a" * 500, 1))
    assert names(roll, search="*" * 300 + "b") == []
