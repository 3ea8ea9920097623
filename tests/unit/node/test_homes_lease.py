"""The lease on homes that another cell must confirm: when they lapse, and what a leader does not say then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from fencehold.core.commands import Acquire, ApplyCells, Command, Entry, LapseHomes, OpenSession, ResumeHomes
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Code, Granted, Refused
from fencehold.core.state import CellState
from fencehold.errors import LeaseLapsed, OutcomeUnknown
from fencehold.node.homes_lease import HomesLease
from fencehold.node.leader import Bounds, Leader
from fencehold.placement.cells import Cell, CellMap, PrefixHome, Reach, in_order
from fencehold.types import Epoch
from tests.unit.node.doubles import HandClock, HandJournal, Told, settle

LEASE_MS = 10_000
HOMES = in_order((PrefixHome("", "eu"), PrefixHome("pay.", "eu", Reach.REGION)))
PLACED = CellMap(1, (Cell("eu", ("a:1",)), Cell("us", ("b:1",))), HOMES, LEASE_MS, LEASE_MS)


class Scene:
    """A leader of one of two cells, with a session, whose home pay. is confirmed."""

    def __init__(self) -> None:
        self.clock, self.told, self.journal = HandClock(), Told(), HandJournal()
        self.machine = Machine()
        commands: tuple[Command, ...] = (
            ApplyCells(PLACED, "eu"),
            OpenSession(60_000),
            ResumeHomes((("pay.", 1),)),
        )
        self.machine.apply(1, Entry(0, commands))
        self.lease = HomesLease(self.clock.now_ms)
        self.lease.confirm({"": 1, "pay.": 1}, self.clock.now_ms(), LEASE_MS)
        self.leader = Leader(
            self.machine,
            self.journal,
            Epoch(1),
            self.clock,
            on_durable=self.told.on_durable,
            bounds=Bounds(),
            lease=self.lease,
        )
        self.leading = asyncio.create_task(self.leader.lead())

    @property
    def cells(self) -> CellState:
        assert self.machine.state.cells is not None
        return self.machine.state.cells

    def said(self, name: str) -> object:
        return next(outcome for asked, outcome, _ in self.told.answers if asked == name)

    async def acquire(self, name: str) -> None:
        self.leader.submit(Acquire(1, (name,), wait_ms=0), self.told.by(name))
        await settle()


@asynccontextmanager
async def leading() -> AsyncIterator[Scene]:
    scene = Scene()
    await settle()
    try:
        yield scene
    finally:
        scene.leading.cancel()
        with suppress(asyncio.CancelledError, LeaseLapsed):
            await scene.leading


async def test_a_home_lapses_before_anything_is_granted_of_it_when_its_lease_is_over() -> None:
    """Within the lease it is granted; after it the first entry lapses it, and then refuses. Other names go on."""
    async with leading() as scene:
        await scene.acquire("pay.1")
        await scene.journal.complete()
        assert isinstance(scene.said("pay.1"), Granted)
        scene.clock.advance(LEASE_MS)
        await scene.acquire("pay.2")
        await scene.journal.complete()
        assert scene.journal.begun[-1].commands[0] == LapseHomes(("pay.",))
        refused = scene.said("pay.2")
        # The session that held something of it has ended with it.
        assert not isinstance(refused, Granted)
        assert scene.cells.lapsed == {"pay."}


async def test_a_leader_that_slept_between_an_entry_and_its_answer_says_nothing() -> None:
    """The lease ran out while the entry was written: who asked hears that it may have happened, and no more."""
    async with leading() as scene:
        await scene.acquire("pay.1")
        scene.clock.advance(LEASE_MS + 1)
        await scene.journal.complete()
        await settle()
        assert isinstance(scene.said("pay.1"), OutcomeUnknown)
        assert isinstance(scene.leading.exception(), LeaseLapsed)


async def test_a_recent_reading_shows_no_holds_of_a_home_whose_lease_is_over() -> None:
    """Another cell may grant its names by now: the entry that the reading waits for ends what was held of it."""
    async with leading() as scene:
        await scene.acquire("pay.1")
        await scene.journal.complete()
        scene.lease.forget()
        scene.leader.ask_recent(lambda state: "pay.1" in state.held, scene.told.reply("held"))
        assert scene.told.replies == []
        await settle()
        await scene.journal.complete()
        assert scene.told.replies == [("held", False)]


async def test_a_leader_without_a_lease_lapses_what_must_be_confirmed() -> None:
    """One that has just taken over has confirmed nothing itself, and does not rely on its predecessor."""
    async with leading() as scene:
        scene.lease.forget()
        await scene.acquire("pay.1")
        await scene.journal.complete()
        answer = scene.said("pay.1")
        assert isinstance(answer, Refused)
        assert answer.code is Code.SUSPENDED
        await scene.acquire("plain")
        await scene.journal.complete()
        assert isinstance(scene.said("plain"), Granted)


def test_a_lease_is_for_the_homes_that_were_named_and_counts_from_the_asking() -> None:
    """A home that was opened since, or has another version, is not covered; nor is any after the lease."""
    clock = HandClock()
    lease = HomesLease(clock.now_ms)
    asked_ms = clock.now_ms()
    clock.advance(4_000)
    lease.confirm({"pay.": 1}, asked_ms, LEASE_MS)
    assert lease.covers("pay.", 1)
    assert not lease.covers("pay.", 2)
    assert not lease.covers("other.", 1)
    clock.advance(LEASE_MS - 4_000)
    assert not lease.covers("pay.", 1)


@pytest.mark.parametrize("late_ms", [0, LEASE_MS])
def test_a_confirmation_that_comes_late_shortens_no_lease(late_ms: int) -> None:
    """Of two answers the one that was asked for later counts, in whatever order they come."""
    clock = HandClock()
    lease = HomesLease(clock.now_ms)
    now_ms = clock.now_ms()
    lease.confirm({"pay.": 1}, now_ms, LEASE_MS)
    lease.confirm({"pay.": 1}, now_ms - late_ms, LEASE_MS)
    clock.advance(LEASE_MS - 1)
    assert lease.covers("pay.", 1)
