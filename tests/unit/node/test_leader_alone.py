"""Who is alone: its entry is made where it stands, and what that cannot do is left to the leader's task."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from fencehold.core.commands import OpenSession
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Opened
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.journal.codec import decode
from fencehold.node import group_commit
from fencehold.node.lanes import ALONE_AFTER_MS, Lane
from fencehold.node.leader import Bounds, Leader
from fencehold.types import Epoch, Position
from tests.unit.node.doubles import HandClock, HandJournal, Told, settle

OPEN = OpenSession(1_000, 0)


class PromptHandJournal(HandJournal):
    """Appends where it stands, unless it is told not to."""

    is_prompt = True
    failure: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.on_append: Callable[[], object] = lambda: None

    def append_here(self, entry: bytes, *, epoch: Epoch, position: Position) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.is_prompt:
            self.on_append()
            self.begun.append(decode(entry))
        return self.is_prompt


class Scene:
    """A leader, one connection's lane, and what was said."""

    def __init__(self, journal: HandJournal) -> None:
        self.journal, self.clock, self.told, self.lane = journal, HandClock(), Told(), Lane()
        self.leader = Leader(
            Machine(), journal, Epoch(1), self.clock, on_durable=self.told.on_durable, bounds=Bounds()
        )
        self.leading = asyncio.create_task(self.leader.lead())

    def gather(self, *names: str) -> None:
        """What a connection does with all that has come in."""
        self.lane.is_gathering = True
        for name in names:
            self.leader.submit(OPEN, self.told.by(name), self.lane)
        self.lane.is_gathering = False
        self.leader.commit_here()


@asynccontextmanager
async def leading(journal: HandJournal, append_ms: float = 0.0) -> AsyncIterator[Scene]:
    """A leader whose journal took so long for what was appended before."""
    scene = Scene(journal)
    await settle()
    # It was heard of before, and for a while nobody else was.
    for _ in range(2):
        scene.gather("before")
        await settle()
        scene.clock.advance(append_ms)
        await journal.complete()
        scene.clock.advance(ALONE_AFTER_MS)
    scene.told.answers.clear()
    journal.begun.clear()
    try:
        yield scene
    finally:
        scene.leading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await scene.leading


async def test_one_that_is_alone_is_answered_where_it_stands() -> None:
    """All that it sent together is one entry, and no turn of the event loop is needed."""
    async with leading(PromptHandJournal()) as scene:
        scene.gather("a", "b")
        assert scene.told.kinds() == {"a": Opened, "b": Opened}
        assert scene.journal.commands == [2]
        scene.gather("c")
        assert scene.told.names == ["a", "b", "c"]
        await settle()
        assert scene.journal.commands == [2, 1]


async def test_nothing_is_appended_when_nothing_was_asked_for() -> None:
    async with leading(PromptHandJournal()) as scene:
        scene.gather()
        await settle()
        assert scene.journal.commands == []


async def test_one_beside_others_waits_for_the_next_turn_of_the_loop_and_shares_its_entry() -> None:
    """As long as another was heard of lately, and no longer."""
    async with leading(PromptHandJournal()) as scene:
        other = Lane()
        scene.leader.submit(OPEN, scene.told.by("other"), other)
        scene.gather("one")
        assert scene.told.names == []
        await settle()
        await scene.journal.complete()
        assert (scene.told.names, scene.journal.commands) == (["other", "one"], [2])
        scene.gather("soon after")
        assert "soon after" not in scene.told.names
        await settle()
        await scene.journal.complete()
        scene.clock.advance(ALONE_AFTER_MS)
        # That the other is gone is seen when the next entry is made.
        scene.gather("later")
        await settle()
        await scene.journal.complete()
        scene.gather("alone")
        assert scene.told.names[-1] == "alone"


async def test_what_the_journal_does_not_append_at_once_is_appended_by_the_task_and_answered_then() -> None:
    """And what comes meanwhile is in the next entry, whoever asks."""
    journal = PromptHandJournal()
    async with leading(journal) as scene:
        journal.is_prompt = False
        scene.gather("slow")
        await settle()
        assert (scene.told.names, journal.commands) == ([], [1])
        journal.is_prompt = True
        scene.gather("meanwhile")
        assert scene.told.names == []
        await journal.complete()
        await journal.complete()
        assert (scene.told.names, journal.commands) == (["slow", "meanwhile"], [1, 1])


async def test_a_stop_waits_for_what_is_left_to_the_task() -> None:
    journal = PromptHandJournal()
    async with leading(journal) as scene:
        journal.is_prompt = False
        scene.gather("last")
        scene.leader.stop()
        await settle()
        await journal.complete()
        assert scene.told.kinds() == {"last": Opened}
        await scene.leading


@pytest.mark.parametrize("failure", [OutcomeUnknown("the disk is gone"), Unavailable("no room")])
async def test_a_failure_where_it_stands_is_told_and_ends_the_leader(failure: Exception) -> None:
    """As one of the task's own: the outcome is as the journal says, and nothing is answered after it."""
    journal = PromptHandJournal()
    async with leading(journal) as scene:
        journal.failure = failure
        scene.gather("lost")
        assert scene.told.kinds() == {"lost": type(failure)}
        with pytest.raises(type(failure), match=str(failure)):
            await scene.leading
        journal.failure = None
        scene.gather("late")
        assert scene.told.kinds()["late"] is Unavailable


async def test_nothing_is_appended_after_a_failure_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by a task that waited for company: what became of the journal is what the first failure says."""
    monkeypatch.setattr(group_commit, "_WAIT_S_MAX", 600.0)
    journal = PromptHandJournal()
    async with leading(journal, append_ms=600_000) as scene:
        journal.on_append = lambda: scene.clock.advance(600_000)
        scene.gather(*(str(number) for number in range(32)))
        scene.leader.tick()
        await settle()
        journal.failure = OutcomeUnknown("the disk is gone")
        scene.gather("lost")
        assert scene.told.kinds()["lost"] is OutcomeUnknown
        async with asyncio.timeout(60):
            with pytest.raises(OutcomeUnknown, match="the disk is gone"):
                await scene.leading
        assert journal.commands == [32]


async def test_a_journal_that_cannot_append_at_once_is_never_asked_to() -> None:
    async with leading(HandJournal()) as scene:
        scene.gather("one")
        await settle()
        assert scene.told.names == []
        await scene.journal.complete()
        assert scene.told.names == ["one"]


async def test_a_tick_that_was_due_finds_nothing_left_to_do() -> None:
    """An entry that a tick wanted is the one that was made at once: the task goes back to waiting."""
    async with leading(PromptHandJournal()) as scene:
        scene.gather("one")
        scene.leader.tick()
        scene.gather("two")
        await settle()
        assert scene.journal.commands == [1, 1]
        assert not scene.leading.done()


class DirectHandJournal(HandJournal):
    """Takes appends without a task that waits for them, unless it is told not to; the test ends them."""

    takes = True

    def __init__(self) -> None:
        super().__init__()
        self.direct: list[Callable[[BaseException | None], None]] = []

    def begin_append(
        self, entry: bytes, *, epoch: Epoch, position: Position, done: Callable[[BaseException | None], None]
    ) -> bool:
        if self.takes:
            self.begun.append(decode(entry))
            self.direct.append(done)
        return self.takes

    def land(self, error: BaseException | None = None) -> None:
        self.direct.pop(0)(error)

    async def complete(self) -> None:
        if self.direct:
            self.land()
            await settle()
        else:
            await super().complete()


@pytest.mark.guarantee("G3")
async def test_one_that_is_alone_is_answered_in_the_moment_its_entry_is_known_to_be_durable() -> None:
    """Not before; and no turn of the event loop is needed on either side."""
    journal = DirectHandJournal()
    async with leading(journal) as scene:
        scene.gather("a", "b")
        assert (scene.told.names, journal.commands) == ([], [2])
        await settle()
        assert scene.told.names == []
        journal.land()
        assert scene.told.kinds() == {"a": Opened, "b": Opened}


async def test_what_comes_while_an_append_was_begun_directly_is_in_the_next_entry() -> None:
    """One append at a time, whoever asks for the next."""
    journal = DirectHandJournal()
    async with leading(journal) as scene:
        scene.gather("first")
        scene.gather("second")
        scene.leader.submit(OPEN, scene.told.by("another"), Lane())
        scene.leader.tick()
        await settle()
        assert journal.commands == [1]
        await journal.complete()
        assert (scene.told.names, journal.commands) == (["first"], [1, 2])
        await journal.complete()
        assert scene.told.names == ["first", "second", "another"]


async def test_what_a_journal_does_not_take_directly_is_appended_by_the_task() -> None:
    journal = DirectHandJournal()
    async with leading(journal) as scene:
        journal.takes = False
        scene.gather("one")
        await settle()
        await journal.complete()
        assert scene.told.names == ["one"]


@pytest.mark.parametrize("failure", [OutcomeUnknown("nobody answers"), Unavailable("no room")])
async def test_a_direct_append_that_fails_is_told_and_ends_the_leader(failure: Exception) -> None:
    journal = DirectHandJournal()
    async with leading(journal) as scene:
        scene.gather("lost")
        journal.land(failure)
        assert scene.told.kinds() == {"lost": type(failure)}
        with pytest.raises(type(failure), match=str(failure)):
            await scene.leading
        assert journal.commands == [1]


async def test_a_stop_waits_for_a_direct_append() -> None:
    journal = DirectHandJournal()
    async with leading(journal) as scene:
        scene.gather("last")
        scene.leader.stop()
        await settle()
        assert not scene.leading.done()
        journal.land()
        assert scene.told.kinds() == {"last": Opened}
        await scene.leading


async def test_a_direct_append_that_lands_after_its_leader_has_ended_says_nothing_more() -> None:
    """All were told that the outcome is not known; it is read from the journal by who leads next."""
    journal = DirectHandJournal()
    async with leading(journal) as scene:
        scene.gather("cut off")
        scene.leading.cancel()
        await settle()
        assert scene.told.kinds() == {"cut off": OutcomeUnknown}
        journal.land()
        assert scene.told.names == ["cut off"]


async def test_a_crowd_on_one_connection_is_waited_for_though_it_is_alone() -> None:
    """To append for each as it comes back would cost as many appends as there are of them."""
    journal = DirectHandJournal()
    async with leading(journal, append_ms=5) as scene:
        scene.gather(*(str(number) for number in range(32)))
        scene.clock.advance(5)
        await journal.complete()
        scene.told.answers.clear()
        scene.gather("back first")
        assert journal.commands == [32]
        scene.gather(*(str(number) for number in range(31)))
        assert journal.commands == [32, 32]
        await journal.complete()
        assert len(scene.told.names) == 32
