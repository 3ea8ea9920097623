"""A checkup: one look for all who ask, a bound for each of them, and nothing left behind."""

import asyncio

import pytest

from fencehold.journal.health import Health
from fencehold.node import engine_health as checkup
from fencehold.node.engine_health import Checkup
from tests.unit.node.doubles import HandJournal, settle


class LookedAt(HandJournal):
    """A journal whose keeper says how it is when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[asyncio.Future[Health]] = []

    async def health(self, within_s: float) -> Health:
        self.looks.append(asyncio.get_running_loop().create_future())
        return await self.looks[-1]


async def test_many_who_ask_are_one_look() -> None:
    """And for a while after it, none."""
    journal, told = LookedAt(), list[Health]()
    looking = Checkup(journal)
    for _ in range(5):
        looking.ask(told.append)
    await settle()
    assert (len(journal.looks), told) == (1, [])
    found = Health(note="well")
    journal.looks[0].set_result(found)
    await settle()
    looking.ask(told.append)
    assert told == [found] * 6
    assert len(journal.looks) == 1
    await looking.end()


async def test_nobody_waits_for_a_look_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on by itself, and no second one is begun beside it; who asks after its end hears what it found."""
    monkeypatch.setattr(checkup, "WITHIN_S", 0.0)
    monkeypatch.setattr(checkup, "_GRACE_S", 0.01)

    journal, told = LookedAt(), asyncio.Queue[Health]()
    looking = Checkup(journal)
    for _ in range(2):
        looking.ask(told.put_nowait)
        assert "did not report" in (await told.get()).note
    assert len(journal.looks) == 1
    journal.looks[0].set_result(Health(note="at last"))
    await settle()
    looking.ask(told.put_nowait)
    assert (await told.get()).note == "at last"
    await looking.end()


async def test_its_end_leaves_nothing_under_way() -> None:
    """Whoever waits is told nothing."""
    journal, told = LookedAt(), list[Health]()
    before = asyncio.all_tasks()
    looking = Checkup(journal)
    looking.ask(told.append)
    await settle()
    await looking.end()
    assert told == []
    assert journal.looks[0].cancelled()
    assert asyncio.all_tasks() == before
