"""Events are made of what is wanted and of nothing else; each has a place in history that never changes."""

import random

import pytest

from fencehold.core import events
from fencehold.core.commands import Acquire, Entry, OpenSession
from fencehold.core.events import Event, events_of, scan
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Applied


def _history(seed: int) -> list[tuple[Entry, Applied]]:
    """What a few sessions do to a few names."""
    chance = random.Random(seed)
    machine = Machine()
    entries = [Entry(0, (OpenSession(3_000), OpenSession(60_000)))]
    for _ in range(30):
        acquires = [
            Acquire(
                chance.choice((1, 2)),
                tuple(chance.sample("abcdef", chance.choice((1, 2, 5)))),
                chance.choice((0, 7)),
                wait_ms=chance.choice((0, 300)),
            )
            for _ in range(chance.randrange(6))
        ]
        entries.append(Entry(chance.choice((0, 300)), tuple(acquires)))
    return [(entry, machine.apply(position, entry)) for position, entry in enumerate(entries, 1)]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_wanted_is_made_an_event_of_and_nothing_else(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked by names, it makes the events that one would pick out of all of them, and asks for each thing once."""
    made = 0
    make = events._event

    def counted(*arguments: object) -> Event:
        nonlocal made
        made += 1
        return make(*arguments)  # type: ignore[arg-type]

    wanted = 0
    for entry, applied in _history(seed):
        everything = list(events_of(entry, applied))
        asked: list[tuple[str, ...]] = []

        def seek(names: tuple[str, ...], asked: list[tuple[str, ...]] = asked) -> bool:
            asked.append(names)
            return "a" in names

        with monkeypatch.context() as patch:
            patch.setattr(events, "_event", counted)
            found = [event for _, _, event in scan(entry, applied, seek) if event is not None]
        assert found == [event for event in everything if "a" in event.names]
        assert asked == [event.names for event in everything]
        wanted += len(found)
    assert made == wanted > 0


@pytest.mark.parametrize("names_per_step", [1, 3, 1_000])
def test_reading_can_pause_anywhere_and_go_on(names_per_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any number on, what follows is the rest, with the same numbers; and one need not read far to pause."""
    monkeypatch.setattr(events, "_NAMES_PER_STEP", names_per_step)
    for entry, applied in _history(1):
        numbered = [(number, event) for number, _, event in scan(entry, applied, lambda _: True) if event]
        numbers = [number for number, _ in numbered]
        assert numbers == sorted(set(numbers))
        for after in (0, *numbers):
            steps = list(scan(entry, applied, lambda _: True, after=after))
            rest = [(number, event) for number, _, event in steps if event]
            assert rest == [(number, event) for number, event in numbered if number > after]


def test_what_nobody_wants_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long entry without a wanted event can be left every so many names."""
    monkeypatch.setattr(events, "_NAMES_PER_STEP", 10)
    machine = Machine()
    machine.apply(1, Entry(0, (OpenSession(60_000),)))
    entry = Entry(0, tuple(Acquire(1, (f"n{number}",)) for number in range(100)))
    steps = list(scan(entry, machine.apply(2, entry), lambda _: False))
    assert [number for number, _, _ in steps] == list(range(5, 101, 5))
    assert all(event is None for _, _, event in steps)
