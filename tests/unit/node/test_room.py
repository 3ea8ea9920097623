"""The watch on the room: what is held back when, what goes on, and that it lifts by itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencehold.core.commands import Acquire, Break, Cancel, CloseSession, Extend, OpenSession, Release, SetLimits
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Granted, Opened, Queued, Refused, Renewed
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Overloaded
from fencehold.journal.room import Room
from fencehold.node import room as watching
from fencehold.node.node import Node
from fencehold.node.room import Level, level_of
from fencehold.types import Epoch, Position
from tests.contract.engines.embedded import OneFault
from tests.unit.node.doubles import until
from tests.unit.node.test_node import renewed, serving, told

MIB = 1 << 20


class Keeper(MemoryJournal):
    """A journal that says how full it is: by what it holds, and by what others have there."""

    allowed_bytes: int | None = 16 * MIB
    others_bytes = 0
    is_full = False
    is_silent = False
    looks = 0
    urgent_trims = 0

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.faults = OneFault()
        super().__init__(self.store, faults=self.faults)

    async def room(self, within_s: float) -> Room:
        self.looks += 1
        if self.is_silent or self.allowed_bytes is None:
            return Room("the shelf", note="it does not say")
        held = sum(len(record.entry) for record in self.store.records)
        snapshot = len(self.store.snapshot.data) if self.store.snapshot else 0
        used_bytes = held + snapshot + self.others_bytes
        return Room("the shelf", used_bytes, self.allowed_bytes, self.is_full, "clear it" if self.is_full else "")

    async def trim(self, *, urgent: bool = False) -> None:
        self.urgent_trims += urgent
        await super().trim(urgent=urgent)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look as often as one can: nothing here depends on how often that is."""
    for name in ("_LOOK_S", "_LOOK_S_MIN", "_SETTLE_S"):
        monkeypatch.setattr(watching, name, 0.002)
    monkeypatch.setattr(watching, "_FULL_S", 0.05)
    monkeypatch.setattr(watching, "_FULL_UNKNOWN_S", 0.3)


@asynccontextmanager
async def _held_back() -> AsyncIterator[tuple[Node, Keeper]]:
    """A node that had a session and a hold when its journal became tight."""
    keeper = Keeper()
    async with serving(keeper) as node:
        await told(node, OpenSession(600_000, secret="s"))
        assert isinstance(await told(node, Acquire(1, ("a",), request=1)), Granted)
        keeper.others_bytes = 15 * MIB
        await until(lambda: node.room.level is Level.TIGHT)
        yield node, keeper


@pytest.mark.parametrize(
    ("free", "need", "before", "level"),
    [
        (100, 10, Level.AMPLE, Level.AMPLE),
        (49, 10, Level.AMPLE, Level.SCARCE),
        (20, 10, Level.AMPLE, Level.SCARCE),
        (19, 10, Level.AMPLE, Level.TIGHT),
        (29, 10, Level.TIGHT, Level.TIGHT),
        (30, 10, Level.TIGHT, Level.SCARCE),
        (100, 95, Level.AMPLE, Level.TIGHT),
    ],
)
def test_there_must_be_room_for_the_next_snapshot_and_a_reserve(
    free: int, need: int, before: Level, level: Level
) -> None:
    """Of ten; and twice as much of the reserve before it lifts."""
    assert level_of(free, need, 10, before) is level


async def test_new_work_is_refused_with_when_to_come_back() -> None:
    """Sessions and acquires; the refusal says what is full and how full."""
    async with _held_back() as (node, _):
        for command in (OpenSession(60_000, secret="t"), Acquire(1, ("b",)), Acquire(1, ("b",), wait_ms=0)):
            refused = await told(node, command)
            assert isinstance(refused, Overloaded)
            assert refused.retry_after_s > 0
            assert "the shelf: 15.0 of 16.0 MiB are in use" in str(refused)
        assert node.room.held_s is not None


async def test_what_ends_things_goes_on() -> None:
    """Releases, extensions, cancels, breaks, renewals and closings: nothing is refused that makes room."""
    async with _held_back() as (node, _):
        assert isinstance(await renewed(node, 1), Renewed)
        ends = (Extend(1, ("a",), 1, 60_000), Release(1, ("a",), 1), Cancel(1, 7), Break("a"), CloseSession(1))
        for command in ends:
            assert not isinstance(await told(node, command), Overloaded | Refused)


async def test_what_was_granted_before_is_told_again() -> None:
    """A repetition of a request changes nothing, and says what became of it: not that nothing happened."""
    keeper = Keeper()
    async with serving(keeper) as node:
        await told(node, OpenSession(600_000, secret="s"))
        await told(node, Acquire(1, ("a",), request=1))
        assert isinstance(await told(node, Acquire(1, ("a",), request=2, owner="o")), Queued)
        keeper.others_bytes = 15 * MIB
        await until(lambda: node.room.level is Level.TIGHT)
        assert isinstance(await told(node, Acquire(1, ("a",), request=1)), Granted)
        assert isinstance(await told(node, Acquire(1, ("a",), request=2, owner="o")), Queued)
        assert isinstance(await told(node, Acquire(1, ("b",), request=3)), Overloaded)


async def test_it_lifts_by_itself_and_each_change_is_told_once() -> None:
    """When there is room again new work is taken, without anybody's help."""
    changes: list[bool] = []
    async with _held_back() as (node, keeper):
        node.on_room = lambda: changes.append(node.room.refusal() is not None)
        looks = keeper.looks
        await until(lambda: keeper.looks > looks + 5)
        keeper.others_bytes = 0
        await until(lambda: node.room.level is Level.AMPLE)
        assert isinstance(await told(node, OpenSession(60_000, secret="t")), Opened)
        assert (changes, node.room.held_s) == ([False], None)


async def test_where_the_reserve_is_spent_only_renewals_and_farewells_go_on() -> None:
    """The last resort: what is full for good serves nobody, so even a release has to wait."""
    async with _held_back() as (node, keeper):
        keeper.is_full = True
        await until(lambda: node.room.level is Level.SPENT)
        for command in (Release(1, ("a",), 1), Extend(1, ("a",), 1, 60_000), SetLimits(Limits())):
            refused = await told(node, command)
            assert isinstance(refused, Overloaded)
            assert "clear it" in str(refused)
        assert isinstance(await renewed(node, 1), Renewed)
        assert not isinstance(await told(node, CloseSession(1)), Overloaded)


async def test_what_is_written_counts_before_it_is_seen() -> None:
    """A flood between two looks is held back by what was counted: the keeper need not say it first."""
    keeper = Keeper()
    async with serving(keeper) as node:
        await told(node, OpenSession(600_000, secret="s"))
        await until(lambda: node.room.room.free_bytes)
        keeper.is_silent = True
        outcomes: list[Any] = []
        while not outcomes or not isinstance(outcomes[-1], Overloaded):
            assert len(outcomes) < 60_000
            outcomes.append(await told(node, Acquire(1, (f"{len(outcomes)}",), meta=f"{len(outcomes):1000}")))
        held = sum(len(record.entry) for record in keeper.store.records)
        assert held < 16 * MIB


async def test_a_keeper_that_was_full_and_does_not_say_how_full_is_left_alone_for_a_while() -> None:
    """An append that found no room: what it carried did not happen, new work waits, then it is tried again."""
    keeper = Keeper()
    keeper.allowed_bytes = None
    async with serving(keeper) as node:
        await told(node, OpenSession(600_000, secret="s"))
        keeper.faults.armed = ("append.before", Overloaded("the shelf is full", retry_after_s=1))
        assert isinstance(await told(node, Acquire(1, ("a",))), Overloaded)
        await until(lambda: node.leads and node.epoch == 2)
        refused = await told(node, Acquire(1, ("a",)))
        assert isinstance(refused, Overloaded)
        assert "the shelf is full" in str(refused)
        assert isinstance(await renewed(node, 1), Renewed)
        await until(lambda: node.room.level is Level.AMPLE)
        assert isinstance(await told(node, Acquire(1, ("a",))), Granted)


async def test_scarce_room_is_given_back_though_nobody_has_anything_to_say() -> None:
    """All are gone, what was saved last is large: the node looks again all the same, and new work is let in."""
    keeper = Keeper()
    async with serving(keeper) as node:
        await told(node, OpenSession(600_000, secret="s"))
        number = 0
        while node.room.level < Level.TIGHT:
            await asyncio.gather(
                *(told(node, Acquire(1, (f"{number}-{at}",), meta=f"{at:1000}")) for at in range(500))
            )
            number += 1
        await until(lambda: keeper.urgent_trims)
        await told(node, CloseSession(1))
        await until(lambda: node.room.level is Level.AMPLE)
        assert isinstance(await told(node, OpenSession(60_000, secret="t")), Opened)


async def test_a_node_that_leads_no_more_holds_nothing_back_when_it_leads_again() -> None:
    """What it found is out of date by then: it looks anew."""
    async with _held_back() as (node, keeper):
        keeper.others_bytes = 0
        keeper.faults.armed = ("append.before", Overloaded("full", retry_after_s=1))
        await told(node, Release(1, ("a",), 1))
        await until(lambda: node.leads and node.epoch == Epoch(2))
        await until(lambda: node.room.level is Level.AMPLE)
        assert node.position >= Position(2)
