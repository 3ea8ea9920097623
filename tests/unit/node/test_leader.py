"""The leader over a journal whose appends the test ends by hand: what is answered, and when, and when not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from fencehold.core.commands import (
    FOREVER,
    Acquire,
    AcquireAtLeast,
    Break,
    CloseSession,
    Command,
    Entry,
    Extend,
    OpenSession,
    Release,
    Renew,
    SetLimits,
    Suspend,
)
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.outcomes import (
    Broken,
    Granted,
    NoSession,
    Opened,
    Queued,
    Refused,
    Released,
    Renewed,
    SessionEnded,
    WaitEnded,
)
from fencehold.core.requests import NAMES_REMEMBERED_MAX, names_remembered
from fencehold.core.state import State
from fencehold.errors import NotLeader, OutcomeUnknown, Overloaded, Sealed, Unavailable
from fencehold.journal.codec import encode
from fencehold.node.lanes import ALONE_MAX, BUDGET_MAX, BUDGET_MIN, BURST_MAX, Lane
from fencehold.node.leader import Bounds, Leader
from fencehold.types import Epoch
from tests.unit.node.doubles import NOON, HandClock, HandJournal, Told, settle


class Scene:
    """A leader, its doubles, and what was said."""

    def __init__(self, bounds: Bounds) -> None:
        self.journal = HandJournal()
        self.clock = HandClock()
        self.told = Told()
        self.slept_ms = 0.0
        self.leader = Leader(
            Machine(),
            self.journal,
            Epoch(1),
            self.clock,
            on_durable=self.told.on_durable,
            bounds=bounds,
            calendar=self.clock.unix_ms,
            slept_ms=lambda: self.slept_ms,
        )
        self.leading = asyncio.create_task(self.leader.lead())

    def submit(self, name: str, command: Command) -> None:
        self.leader.submit(command, self.told.by(name))

    async def commit(self, name: str, command: Command) -> None:
        """Have one command appended and answered."""
        self.submit(name, command)
        await settle()
        await self.journal.complete()

    @property
    def fence(self) -> int:
        return self.leader.machine.fence


@asynccontextmanager
async def leading(bounds: Bounds = Bounds()) -> AsyncIterator[Scene]:  # noqa: B008  (a tuple of numbers)
    scene = Scene(bounds)
    await settle()
    try:
        yield scene
    finally:
        scene.leading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await scene.leading


def _fence(state: State) -> int:
    return state.fence


async def test_what_arrives_during_an_append_is_one_next_entry() -> None:
    """One idle client has an entry to itself, and a crowd behind it shares the next."""
    async with leading() as scene:
        scene.submit("first", Break("a"))
        await settle()
        for number in range(50):
            scene.submit(f"later {number}", Break("a"))
        await settle()
        assert scene.journal.commands == [1]
        await scene.journal.complete()
        assert scene.journal.commands == [1, 50]
        assert scene.told.names == ["first"]
        await scene.journal.complete()
        assert scene.told.names == ["first", *(f"later {number}" for number in range(50))]


@pytest.mark.guarantee("G3")
async def test_nothing_is_said_before_the_entry_is_durable() -> None:
    """Answers, notices, readings and looks of an entry all wait for the end of its append."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        scene.submit("acquire", Acquire(1, ("a",)))
        scene.submit("wait", Acquire(1, ("a",)))
        scene.submit("release", Release(1, ("a",), 1))
        scene.leader.ask(_fence, scene.told.reply("asked"))
        scene.leader.renew(1, scene.told.by("renewed"))
        await settle()
        scene.leader.look(_fence, scene.told.reply("looked"))
        await settle()
        assert scene.leader.machine.fence == 2
        assert (scene.told.names, scene.told.replies, len(scene.told.durable)) == (["open"], [], 1)
        await scene.journal.complete()
        assert scene.told.names == ["open", "renewed", "acquire", "wait", "release"]
        assert scene.told.replies == [("asked", 2), ("looked", 2)]
        [(_, notice)] = scene.told.durable[1].notices
        assert isinstance(notice, WaitEnded)
        assert isinstance(notice.answer, Granted)


@pytest.mark.guarantee("G3")
async def test_a_look_between_entries_is_answered_at_once() -> None:
    """When nothing is under way all that was applied is durable: a look waits for nothing and writes nothing."""
    async with leading() as scene:
        await scene.commit("break", Break("a"))
        scene.leader.look(_fence, scene.told.reply("looked"))
        assert scene.told.replies == [("looked", 1)]
        await settle()
        assert scene.journal.commands == [1]


async def test_a_question_is_a_barrier() -> None:
    """A question that comes during an append is not answered by it, but by an entry begun after it came."""
    async with leading() as scene:
        scene.submit("first", Break("a"))
        await settle()
        scene.leader.ask(_fence, scene.told.reply("asked"))
        await scene.journal.complete()
        assert scene.told.replies == []
        assert scene.journal.commands == [1, 0]
        await scene.journal.complete()
        assert scene.told.replies == [("asked", 1)]


async def test_a_recent_reading_needs_no_entry_while_the_journal_has_just_taken_one() -> None:
    """And waits for the entry under way, if there is one: then that is what it has seen."""
    async with leading() as scene:
        await scene.commit("first", Break("a"))
        scene.clock.advance(100)
        scene.leader.ask_recent(_fence, scene.told.reply("at once"))
        assert scene.told.replies == [("at once", 1)]
        scene.submit("second", Break("a"))
        await settle()
        scene.leader.ask_recent(_fence, scene.told.reply("with it"))
        assert len(scene.told.replies) == 1
        await scene.journal.complete()
        assert scene.told.replies[1:] == [("with it", 2)]
        assert scene.journal.commands == [1, 1]


async def test_a_leader_that_nothing_has_confirmed_lately_makes_an_entry_for_a_recent_reading() -> None:
    """It may have been sealed without knowing: when it was asleep, and before its first entry."""
    async with leading(Bounds(tick_s=0.01)) as scene:
        scene.leader.ask_recent(_fence, scene.told.reply("first"))
        assert scene.told.replies == []
        await settle()
        await scene.journal.complete()
        assert scene.told.replies == [("first", 0)]
        scene.clock.goes_by_itself = True
        scene.leader.tick()
        scene.clock.advance(101)
        scene.leader.tick()
        scene.leader.ask_recent(_fence, scene.told.reply("later"))
        assert len(scene.told.replies) == 1
        await settle()
        await scene.journal.complete()
        assert scene.told.replies[1:] == [("later", 0)]


async def test_an_entry_that_was_begun_long_ago_vouches_for_no_recent_reading() -> None:
    """The journal may have taken it long before this leader hears so, and another leader's since."""
    async with leading() as scene:
        scene.submit("slow", Break("a"))
        await settle()
        scene.clock.advance(101)
        scene.leader.ask_recent(_fence, scene.told.reply("recent"))
        await scene.journal.complete()
        assert scene.told.replies == []
        assert scene.journal.commands == [1, 0]
        await scene.journal.complete()
        assert scene.told.replies == [("recent", 1)]
        scene.submit("again", Break("a"))
        await settle()
        scene.clock.advance(101)
        await scene.journal.complete()
        scene.leader.ask_recent(_fence, scene.told.reply("late"))
        assert len(scene.told.replies) == 1


async def test_a_machine_that_slept_has_no_recent_state() -> None:
    """The clock of durations stood still, and others went on."""
    async with leading() as scene:
        await scene.commit("first", Break("a"))
        scene.slept_ms += 3_600_000
        scene.leader.ask_recent(_fence, scene.told.reply("asleep"))
        assert scene.told.replies == []
        await settle()
        await scene.journal.complete()
        scene.leader.ask_recent(_fence, scene.told.reply("awake"))
        assert scene.told.replies == [("asleep", 1), ("awake", 1)]
        assert scene.journal.commands == [1, 0]


async def test_a_flood_of_recent_readings_waits_in_its_lane() -> None:
    """They are answered out of turn for a part of the time only; what is beyond takes turns with everybody."""
    async with leading() as scene:
        await scene.commit("first", Break("a"))

        def long(state: State) -> int:
            scene.clock.advance(2)
            return state.fence

        for number in range(10):
            scene.leader.ask_recent(long, scene.told.reply(f"{number}"))
        assert scene.told.replies == [("0", 1)]
        assert scene.leader.pending == 9
        scene.clock.advance(6)
        scene.leader.ask_recent(long, scene.told.reply("in time"))
        assert scene.told.replies == [("0", 1), ("in time", 1)]


@pytest.mark.guarantee("G3")
async def test_a_recent_reading_of_an_entry_that_fails_is_not_answered() -> None:
    """What it saw may not be there: who asked is told that nothing was found out."""
    async with leading() as scene:
        await scene.commit("first", Break("a"))
        scene.submit("sealed", Break("a"))
        await settle()
        scene.leader.ask_recent(_fence, scene.told.reply("recent"))
        await scene.journal.fail(Sealed("by another"))
        [(_, answer)] = scene.told.replies
        assert isinstance(answer, Unavailable)
        scene.leader.ask_recent(_fence, scene.told.reply("later"))
        assert isinstance(scene.told.replies[1][1], Unavailable)


async def test_a_question_sees_all_commands_that_came_before_it() -> None:
    """Though the commands before it fill several entries, a question waits for the last of them."""
    async with leading(Bounds(commands_per_entry_max=2)) as scene:
        for number in range(5):
            scene.submit(str(number), Break("a"))
        scene.leader.ask(_fence, scene.told.reply("asked"))
        scene.submit("after", Break("a"))
        await settle()
        await scene.journal.complete()
        await scene.journal.complete()
        assert scene.told.replies == []
        await scene.journal.complete()
        assert scene.told.replies == [("asked", 6)]
        assert scene.journal.commands == [2, 2, 2]


async def test_certainly_nothing_happened_after_unavailable() -> None:
    """An append that is certainly absent is told as such to those in flight, those queued and those to come."""
    async with leading() as scene:
        scene.submit("under way", Break("a"))
        scene.leader.ask(_fence, scene.told.reply("asked"))
        await settle()
        scene.submit("queued", Break("a"))
        scene.leader.renew(1, scene.told.by("renewal"))
        scene.leader.ask(_fence, scene.told.reply("queued"))
        scene.leader.look(_fence, scene.told.reply("looked"))
        await scene.journal.fail(Unavailable("no journal"))
        scene.submit("late", Break("a"))
        scene.leader.renew(1, scene.told.by("late renewal"))
        scene.leader.ask(_fence, scene.told.reply("late"))
        scene.leader.look(_fence, scene.told.reply("late look"))
        assert scene.told.kinds() == dict.fromkeys(
            ["under way", "queued", "renewal", "late", "late renewal"], Unavailable
        )
        assert [name for name, _ in scene.told.replies] == ["asked", "queued", "looked", "late", "late look"]
        assert {type(found) for _, found in scene.told.replies} == {Unavailable}
        with pytest.raises(Unavailable, match="no journal"):
            await scene.leading


async def test_an_unknown_outcome_is_never_told_as_a_no() -> None:
    """Those in the entry whose answer was lost are told so; those behind it that nothing happened."""
    async with leading() as scene:
        scene.submit("under way", Break("a"))
        await settle()
        scene.submit("queued", Break("a"))
        await scene.journal.fail(OutcomeUnknown("the answer was lost"))
        assert scene.told.kinds() == {"under way": OutcomeUnknown, "queued": Unavailable}
        with pytest.raises(OutcomeUnknown):
            await scene.leading


@pytest.mark.guarantee("G10")
async def test_a_sealed_leader_answers_nothing() -> None:
    """The entry that met the seal, and all that comes after it, get an error and never an outcome."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        scene.submit("acquire", Acquire(1, ("a",)))
        scene.leader.renew(1, scene.told.by("renewal"))
        scene.leader.ask(_fence, scene.told.reply("asked"))
        await settle()
        await scene.journal.fail(Sealed("a newer epoch"))
        scene.submit("late", Acquire(1, ("b",)))
        assert scene.told.kinds() == {
            "open": Opened,
            "acquire": NotLeader,
            "renewal": NotLeader,
            "late": Unavailable,
        }
        assert isinstance(scene.told.replies[0][1], Unavailable)


async def test_what_is_too_much_for_one_entry_is_split_in_order() -> None:
    """Neither count nor bytes of an entry exceed their bounds, and no command overtakes another."""
    async with leading(Bounds(commands_per_entry_max=40, entry_bytes_max=1_000)) as scene:
        for number in range(100):
            scene.submit(str(number), Break(f"{number:03}" + 30 * "x"))
        await settle()
        while len(scene.told.answers) < 100:
            await scene.journal.complete()
        assert scene.told.names == [str(number) for number in range(100)]
        assert set(scene.told.kinds().values()) == {Broken}
        assert max(scene.journal.commands) < 40
        assert sum(scene.journal.commands) == 100


async def test_a_command_larger_than_an_entry_should_be_goes_alone() -> None:
    """A single command is never split, nor refused, for its size: the engine has the last word on that."""
    async with leading(Bounds(entry_bytes_max=100)) as scene:
        scene.submit("large", Break(200 * "x"))
        scene.submit("small", Break("a"))
        await settle()
        await scene.journal.complete()
        await scene.journal.complete()
        assert scene.journal.commands == [1, 1]
        assert scene.told.names == ["large", "small"]


async def test_beyond_the_bound_nothing_is_taken() -> None:
    """Who comes when too much waits is told at once that nothing happened; those before are not touched by it."""
    async with leading(Bounds(pending_max=3)) as scene:
        scene.submit("under way", Break("a"))
        await settle()
        share = BUDGET_MAX // 2 + BURST_MAX
        for number in range(share + 5):
            scene.submit(str(number), Break("a"))
        scene.leader.ask(_fence, scene.told.reply("asked"))
        beyond = [str(share + 3), str(share + 4)]
        assert scene.told.kinds() == dict.fromkeys(beyond, Overloaded)
        assert [(name, type(found)) for name, found in scene.told.replies] == [("asked", Overloaded)]
        # Who has nothing waiting is taken all the same.
        scene.leader.submit(Break("a"), scene.told.by("another"), Lane())
        await scene.journal.complete()
        await scene.journal.complete()
        await scene.journal.complete()
        taken = [
            "under way",
            *map(str, range(share)),
            "another",
            *map(str, range(share, share + 3)),
        ]
        assert scene.told.names == beyond + taken


async def test_renewals_ride_along_and_force_no_append() -> None:
    """Renewals wait for a command or a tick, come first in its entry, and are one command, however many."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        await scene.commit("open", OpenSession(30_000))
        for session in (2, 1, 2, 9):
            scene.leader.renew(session, scene.told.by(f"renewed {session}"))
        await settle()
        assert scene.journal.commands == [1, 1]
        scene.submit("close", CloseSession(1))
        await settle()
        assert scene.journal.begun[2].commands == (Renew((2, 1, 9)), CloseSession(1))
        await scene.journal.complete()
        assert scene.told.names[2:] == ["renewed 2", "renewed 1", "renewed 2", "renewed 9", "close"]
        assert scene.told.answers[2][1] == Renewed(0, (9,))
        scene.leader.renew(2, scene.told.by("by a tick"))
        scene.leader.tick()
        await settle()
        await scene.journal.complete()
        assert scene.told.names[-1] == "by a tick"


async def test_a_tick_is_an_entry_only_while_time_can_end_something() -> None:
    """With nothing alive, delayed or kept a tick writes nothing; a lock-delay or a least time is reason enough."""
    async with leading() as scene:
        scene.leader.tick()
        await settle()
        assert scene.journal.commands == []
        await scene.commit("open", OpenSession(50))
        await scene.commit("acquire", Acquire(1, ("a",), lock_delay_ms=500))
        scene.clock.advance(60)
        scene.leader.tick()
        await settle()
        await scene.journal.complete()
        assert not scene.leader.machine.state.sessions
        scene.clock.advance(600)
        scene.leader.tick()
        await settle()
        await scene.journal.complete()
        assert not scene.leader.machine.state.delays
        scene.leader.tick()
        await settle()
        assert scene.journal.commands == [1, 1, 0, 0]
        await scene.commit("open", OpenSession(500))
        await scene.commit("acquire", AcquireAtLeast(2, ("a",), at_least_ms=500))
        await scene.commit("close", CloseSession(2))
        scene.clock.advance(600)
        scene.leader.tick()
        await settle()
        await scene.journal.complete()
        assert not scene.leader.machine.state.kept
        assert scene.journal.commands[4:] == [1, 1, 1, 0]


@pytest.mark.guarantee("G7")
async def test_logical_time_never_runs_faster_than_the_clock() -> None:
    """Entries tell whole milliseconds, none twice: the sum is never ahead of the clock, nor a whole one behind."""
    async with leading() as scene:
        started_ms = scene.clock.now_ms()
        for _ in range(100):
            await scene.commit("break", Break("a"))
            scene.clock.advance(0.7)
        told_ms = sum(entry.elapsed_ms for entry in scene.journal.begun)
        passed_ms = scene.clock.now_ms() - started_ms - 0.7
        assert passed_ms - 1 < told_ms <= passed_ms
        assert scene.leader.machine.now_at == told_ms


@pytest.mark.guarantee("G7")
async def test_the_time_before_a_leader_does_not_count() -> None:
    """However late a leader comes, its first entry tells no time that passed before it led."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        assert scene.journal.begun[0].elapsed_ms == 0


@pytest.mark.guarantee("G7")
async def test_a_paused_leader_does_not_expire_the_world() -> None:
    """An hour's pause is told by the clock and counted as two seconds by the machine; the rest is lost."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        scene.clock.advance(3_600_000)
        await scene.commit("acquire", Acquire(1, ("a",)))
        assert scene.journal.begun[1].elapsed_ms == 3_600_000
        assert scene.leader.machine.now_at == 2_000
        assert scene.told.kinds()["acquire"] is Granted
        await scene.commit("again", Acquire(1, ("a",)))
        assert scene.leader.machine.now_at == 2_000
        assert scene.told.kinds()["again"] is Queued


async def _sessions_with_much(scene: Scene, *, count: int = 5, waits: int = 4_000, grace_ms: int = 0) -> None:
    """Sessions 1 to `count`, each of which waits for so many names that a session before them has."""
    machine = scene.leader.machine
    names = tuple(f"n{number}" for number in range(64))
    opening = [OpenSession(600_000), *[OpenSession(600_000, grace_ms)] * count]
    machine.apply(1, Entry(0, (*opening, Acquire(1, names))))
    asked = [
        Acquire(session, (names[request % 64],), request=request, owner=str(request), wait_ms=FOREVER)
        for session in range(2, count + 2)
        for request in range(1, waits + 1)
    ]
    machine.apply(2, Entry(0, tuple(asked)))
    assert [machine.state.sessions[session].size() for session in range(2, count + 2)] == [waits] * count


async def _run_on(scene: Scene) -> list[int]:
    """Let entries be made for as long as they are of themselves; says how many sessions ended in each."""
    while len(scene.journal.begun) > len(scene.told.durable):
        await scene.journal.complete()
    return [
        sum(isinstance(notice, SessionEnded) for _, notice in applied.notices) for applied in scene.told.durable
    ]


@pytest.mark.parametrize("command", [Suspend, CloseSession])
async def test_sessions_that_have_much_end_one_by_one(command: type[Suspend | CloseSession]) -> None:
    """However many end together, an entry ends one of them, and takes what others ask for meanwhile."""
    async with leading() as scene:
        await _sessions_with_much(scene)
        others = [Lane(), Lane()]
        for lane in others:
            scene.leader.submit(Break("a"), scene.told.by("before"), lane)
        await settle()
        for session in range(2, 7):
            scene.submit(f"end {session}", command(session))
        for number in range(1, 5):
            for lane in others:
                scene.leader.submit(Break("a"), scene.told.by(f"meanwhile {number}"), lane)
            await scene.journal.complete()
            assert scene.journal.commands[-1] == 3
        await scene.journal.complete()
        scene.leader.tick()
        await settle()
        ended = await _run_on(scene)
        assert max(ended) == 1
        assert sum(ended) == 5
        assert scene.told.names.index("meanwhile 2") < scene.told.names.index("end 4")


@pytest.mark.guarantee("G7")
async def test_time_passes_in_steps_where_sessions_that_have_much_run_out_one_after_the_other() -> None:
    """Each entry ends one of them, the next comes at once; in all as much time passes as the clock says."""
    async with leading() as scene:
        await _sessions_with_much(scene, grace_ms=100)
        for session in range(2, 7):
            await scene.commit(f"suspend {session}", Suspend(session))
            scene.clock.advance(1)
        begun, before_at = len(scene.journal.begun), scene.leader.machine.now_at
        scene.clock.advance(500)
        scene.leader.tick()
        await settle()
        assert (await _run_on(scene))[begun:] == [1, 1, 1, 1, 1]
        assert sum(entry.elapsed_ms for entry in scene.journal.begun[begun:]) == 501
        assert scene.leader.machine.now_at == before_at + 501


async def test_sessions_that_have_little_run_out_together() -> None:
    """A thousand clients that were lost in the same second cost one entry."""
    async with leading() as scene:
        scene.leader.machine.apply(1, Entry(0, tuple(OpenSession(1_000 + number) for number in range(900))))
        scene.clock.advance(1_950)
        scene.leader.tick()
        await settle()
        assert await _run_on(scene) == [900]


@pytest.mark.guarantee("G7")
async def test_a_pause_that_does_not_count_is_not_counted_in_steps() -> None:
    """After an hour's pause two seconds pass and no more, though sessions that have much run out in them."""
    async with leading() as scene:
        await _sessions_with_much(scene, grace_ms=500)
        for session in range(2, 7):
            await scene.commit(f"suspend {session}", Suspend(session))
            scene.clock.advance(1)
        before_at = scene.leader.machine.now_at
        scene.clock.advance(3_600_000)
        scene.leader.tick()
        await settle()
        assert (await _run_on(scene))[-5:] == [1, 1, 1, 1, 1]
        assert scene.leader.machine.now_at == before_at + scene.leader.machine.state.limits.elapsed_ms_max


async def test_stopping_answers_what_was_taken_and_takes_no_more() -> None:
    """All that came before the stop is appended and answered, all after it refused; then the leader is done."""
    async with leading(Bounds(commands_per_entry_max=1)) as scene:
        scene.submit("under way", Break("a"))
        await settle()
        scene.submit("queued", Break("a"))
        scene.submit("behind it", Break("a"))
        scene.leader.renew(7, scene.told.by("renewal"))
        scene.leader.ask(_fence, scene.told.reply("asked"))
        scene.leader.stop()
        scene.submit("late", Break("a"))
        scene.leader.renew(7, scene.told.by("late renewal"))
        scene.leader.ask(_fence, scene.told.reply("late"))
        assert scene.told.names == ["late", "late renewal"]
        while scene.journal.begun and not scene.leading.done():
            await scene.journal.complete()
        await scene.leading
        assert scene.told.names[2:] == ["under way", "renewal", "queued", "behind it"]
        assert [name for name, _ in scene.told.replies] == ["late", "asked"]


async def test_stopping_ends_though_nothing_is_alive() -> None:
    """After the last command was answered a stopping leader waits for nothing, not even for a tick."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        scene.submit("close", CloseSession(1))
        scene.leader.stop()
        await settle()
        await scene.journal.complete()
        assert scene.leading.done()
        assert scene.told.names == ["open", "close"]


async def test_stopping_with_nothing_to_do_writes_nothing() -> None:
    """An idle leader that is told to stop appends no entry first."""
    async with leading() as scene:
        scene.leader.stop()
        await settle()
        assert scene.leading.done()
        assert scene.journal.begun == []


async def test_answers_come_in_the_order_of_the_commands() -> None:
    """Whatever their outcomes, the answers of one entry come in the order the commands were given in."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        scene.submit("granted", Acquire(1, ("a",)))
        scene.submit("nobody", Acquire(5, ("a",)))
        scene.submit("queued", Acquire(1, ("a",)))
        await settle()
        await scene.journal.complete()
        assert list(scene.told.kinds().items())[1:] == [
            ("granted", Granted),
            ("nobody", NoSession),
            ("queued", Queued),
        ]
        assert {at_ms for _, _, at_ms in scene.told.answers} == {0}


async def test_the_time_of_day_is_told_when_it_must_be() -> None:
    """The first entry of a leader tells it, and later one that would show it wrong by more than a second."""
    async with leading() as scene:

        async def told(*, passed_ms: float = 100, set_to: float = 0) -> int:
            scene.clock.advance(passed_ms)
            if set_to:
                scene.clock.set(set_to)
            await scene.commit("break", Break("a"))
            return scene.journal.begun[-1].unix_ms

        assert await told() == NOON + 100
        assert await told(passed_ms=1_500) == 0
        assert await told(set_to=NOON + 2_700) == 0
        assert await told(set_to=NOON + 2_801) == NOON + 2_801
        # Not looked at again so soon.
        assert await told(passed_ms=99, set_to=NOON) == 0
        assert await told(set_to=NOON - 60_000) == NOON - 60_000
        assert await told(passed_ms=100) == 0
        # Logical time goes on by no more than two seconds at once.
        assert await told(passed_ms=60_000) == NOON + 100
        assert await told(set_to=-1) == 0


async def test_the_time_of_day_makes_no_entry_by_itself() -> None:
    """A clock that is set is nothing to write about until there is something else."""
    async with leading() as scene:
        await scene.commit("break", Break("a"))
        scene.clock.set(NOON + 3_600_000)
        scene.leader.tick()
        await settle()
        assert len(scene.journal.begun) == 1


async def test_what_is_refused_whatever_the_state_is_in_no_entry() -> None:
    """Too long a name, too many, a ttl that is none: told at once, though an append is under way."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        scene.submit("under way", Break("a"))
        await settle()
        long, many = 60_000 * "x", tuple(map(str, range(5_000)))
        refused: tuple[Command, ...] = (
            Acquire(1, (long,)),
            Acquire(1, many),
            Acquire(1, ("a",), ttl_ms=1 << 50),
            Acquire(1, ("a",), meta=long),
            Release(1, (long,), 1),
            Release(1, many, 1),
            Extend(1, many, 1, 5),
            Break(long),
            Break("a", by=long),
            OpenSession(0),
            OpenSession(5_000, meta=long),
        )
        for number, command in enumerate(refused):
            scene.submit(str(number), command)
        assert scene.told.names == ["open", *map(str, range(11))]
        await scene.journal.complete()
        assert scene.journal.commands == [1, 1]


async def test_a_request_that_was_answered_before_is_answered_the_same_under_other_limits() -> None:
    """A limit that was lowered since makes no refusal of a grant."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        await scene.commit("acquire", Acquire(1, ("long name",), request=1))
        await scene.commit("limits", SetLimits(Limits(name_bytes_max=4)))
        await scene.commit("again", Acquire(1, ("long name",), request=1))
        answers = {name: outcome for name, outcome, _ in scene.told.answers}
        assert answers["again"] == answers["acquire"]
        scene.submit("new", Acquire(1, ("long name",), request=2))
        assert scene.told.kinds()["new"] is Refused


async def test_what_a_session_makes_the_machine_remember_has_a_bound() -> None:
    """Answers about many names that are never acknowledged: no more is taken, in no entry, until they are."""
    async with leading() as scene:
        await scene.commit("open", OpenSession(30_000))
        machine, names = scene.leader.machine, tuple(map(str, range(64)))
        number = 0
        while names_remembered(machine.state.sessions[1]) <= NAMES_REMEMBERED_MAX and number < 1_000:
            number += 1
            await scene.commit(str(number), Acquire(1, names, request=2 * number))
            await scene.commit("release", Release(1, names, machine.fence))
        assert number == NAMES_REMEMBERED_MAX // 64 + 1
        position = machine.position
        scene.submit("refused", Acquire(1, names, request=2_000))
        assert scene.told.kinds()["refused"] is Refused
        assert machine.position == position
        # What is about few is taken, and what releases; what was answered is so again; who acknowledges is heard.
        await scene.commit("few", Acquire(1, ("few",), request=2_001))
        await scene.commit("to release", Acquire(1, names))
        await scene.commit("release all", Release(1, names, machine.fence, request=2_002))
        assert scene.told.kinds()["release all"] is Released
        await scene.commit("again", Acquire(1, names, request=2))
        await scene.commit("acknowledging", Acquire(1, names, request=2_003, answered=2_002))
        await scene.commit("after", Acquire(1, tuple(f"{name}!" for name in names), request=2_004))
        kinds = scene.told.kinds()
        assert {kinds[name] for name in ("few", "again", "acknowledging", "after")} == {Granted}


async def test_what_the_state_refused_is_journaled_as_its_refusal() -> None:
    """Sixty-four long names, one of which is held: what is written is short, and leads to the same state."""
    async with leading() as scene:
        names = tuple(f"{number:03}" + 200 * "x" for number in range(64))
        await scene.commit("open", OpenSession(30_000))
        await scene.commit("one", Acquire(1, names[-1:]))
        for number in range(1, 20):
            scene.submit(str(number), Acquire(1, names, request=number, wait_ms=0, meta=1_000 * "m"))
        await settle()
        assert len(encode(scene.journal.begun[-1])) < 19 * 300
        replica = Machine()
        for position, entry in enumerate(scene.journal.begun, start=1):
            replica.apply(position, entry)
        assert replica.state_hash() == scene.leader.machine.state_hash()


async def test_a_flood_waits_for_itself() -> None:
    """One lane floods: another's command is in the very next entry, and so is each of a hundred others."""
    async with leading() as scene:
        flood, lanes = Lane(), [Lane() for _ in range(100)]
        scene.submit("under way", Break("a"))
        await settle()
        for number in range(5_000):
            scene.leader.submit(Break("a"), scene.told.by(f"flood {number}"), flood)
        for number, lane in enumerate(lanes):
            scene.leader.submit(Break("a"), scene.told.by(f"one {number}"), lane)
        await scene.journal.complete()
        await scene.journal.complete()
        told = scene.told.names
        assert [name for name in told if name.startswith("one")] == [f"one {number}" for number in range(100)]
        floods = [name for name in told if name.startswith("flood")]
        assert floods == [f"flood {number}" for number in range(len(floods))]
        assert len(floods) <= ALONE_MAX
        for _ in range(5_000 // BUDGET_MIN):
            if len(scene.told.names) == 5_101:
                break
            await scene.journal.complete()
            # From here on it is not alone.
            scene.leader.submit(Break("a"), lambda *_: None, lanes[0])
        assert scene.told.names[-1] == "flood 4999"
        assert max(scene.journal.commands[3:]) <= BUDGET_MAX + 2


async def test_questions_come_after_what_their_lane_asked_for_before() -> None:
    """However long the lane is, a question sees all the commands before it."""
    async with leading() as scene:
        lane = Lane()
        for _ in range(3_000):
            scene.leader.submit(Break("a"), lambda *_: None, lane)
        scene.leader.ask(_fence, scene.told.reply("asked"), lane)
        scene.leader.submit(Break("a"), scene.told.by("after"), lane)
        await settle()
        while not scene.told.replies:
            await scene.journal.complete()
        assert scene.told.replies[0][1] >= 3_000


async def test_the_time_of_a_stall_does_not_count() -> None:
    """The event loop was kept from its ticks for longer than a session lives: that lives on all the same."""
    async with leading(Bounds(tick_s=0.01)) as scene:
        scene.clock.goes_by_itself = True
        scene.leader.tick()
        await scene.commit("open", OpenSession(1_000))
        before_ms = scene.leader.machine.now_at
        scene.clock.advance(1_500)
        await scene.commit("after", Break("a"))
        assert scene.leader.machine.now_at - before_ms <= 10
        scene.clock.advance(1_500)
        # A tick that comes first is no reason to count it, either.
        scene.leader.tick()
        await settle()
        await scene.journal.complete()
        assert scene.leader.machine.now_at - before_ms <= 20
        assert 1 in scene.leader.machine.state.sessions


async def test_looks_that_wait_for_an_append_have_a_bound() -> None:
    """Each keeps what it found: beyond the bound one is told when to come back, and nothing is looked at."""
    async with leading() as scene:
        scene.submit("under way", Break("a"))
        await settle()
        for number in range(1_000):
            scene.leader.look(_fence, scene.told.reply(str(number)))
        refused = [name for name, found in scene.told.replies if isinstance(found, Overloaded)]
        assert len(refused) == 1_000 - 256
        await scene.journal.complete()
        assert len(scene.told.replies) == 1_000


async def test_what_waits_to_be_journaled_is_held_back_as_well() -> None:
    """Acquires that came before the room was tight are refused; what came among them goes on, in its order."""
    async with leading() as scene:
        scene.submit("open", OpenSession(30_000))
        await settle()
        scene.submit("a", Acquire(1, ("a",)))
        scene.submit("b", Acquire(1, ("b",)))
        scene.submit("release", Release(1, ("z",), 9))
        scene.leader.ask(lambda state: state.position, scene.told.reply("asked"))
        scene.submit("c", Acquire(1, ("c",)))
        scene.leader.hold_back(Overloaded("no room", retry_after_s=1))
        scene.submit("d", Acquire(1, ("d",)))
        assert scene.told.kinds() == {"d": Overloaded}
        await scene.journal.complete()
        await scene.journal.complete()
        assert {name: scene.told.kinds()[name] for name in "abc"} == dict.fromkeys("abc", Overloaded)
        assert (scene.journal.commands, scene.told.names[-1]) == ([1, 1], "release")
        assert scene.told.replies == [("asked", 2)]
        scene.leader.hold_back(None)
        await scene.commit("e", Acquire(1, ("e",)))
        assert scene.told.kinds()["e"] is Granted
