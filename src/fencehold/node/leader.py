"""The leader: gathers commands into a batch, appends it, applies it, and answers when it is durable.

1.  *Answered means durable* (G3). No answer, notice, event or reading leaves before its entry is in the journal.
2.  *Group commit.* What arrives while an append is under way is the next batch: one idle client sees one append
    of latency, a crowd sees large batches. Where an append takes long, a crowd also travels together
    (`group_commit`), and the crowds of several shards append in turn (`turns`).
    A client that exceeds its share delays only itself (`lanes`). A lone client's entry is made inside the call
    that read its commands, without a turn of the event loop (`commit_here`): no other would come meanwhile.
3.  *Applying may run ahead of durability, answers never do.* If an append fails, the state has seen what may not
    be there: the leader is done, and its node builds the state anew from the journal.
4.  *Logical time never runs faster than the clock* (G7): an entry carries the whole milliseconds since the one
    before it, the rest is carried over. The first of a leader counts from its taking over: time without a leader
    does not count.
5.  *Renewals alone force no append*: they ride with the next entry, at the latest with a tick.
6.  *A reading is current*: it is taken of the state after an entry that was begun after the question came (a
    barrier) and after all commands that came before it, and answered when that is durable. So a leader that was
    sealed without knowing answers none. A mere look needs no entry, but waits for what it saw to be durable. A
    recent reading (`ask_recent`) is a look while the last entry that it saw was begun a moment ago, and a reading
    otherwise: so it shows what was so at that moment or later, though another node may lead by now.
7.  *What is refused whatever the state is refused at once*, and is in no entry; what the state refused is in the
    entry as the refusal alone, where that is shorter (`refusals`).
8.  *A stall of the event loop is not held against any session.* Keep-alives wait unread meanwhile, so that time
    does not count: logical time may be slower than the clock. A late tick reveals a stall.
9.  *The time of day is for people.* Its first entry has it, and later ones when what the state says of it is not
    right any more. It makes no entry by itself, and no outcome depends on it.
10. *Where room is tight, what makes the state grow is refused* before it is journaled, and so is what waits to be;
    but not a repetition, for that changes nothing. What ends things is still taken (see `room`).
11. *No client waits long while much ends.* What a session has ends with it, in one entry: those that have much and
    are closed or lose their connections together go into entries one by one, and time passes in smaller steps
    where they run out one after the other.
12. *Homes that another cell must confirm are answered for only while they are* (`homes_lease`): checked before an
    entry and again when it is durable.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from math import ceil, inf
from typing import Any, Final, NamedTuple, TypeAlias

from fencehold.core.anchors import will_drift
from fencehold.core.commands import (
    Acquire,
    Break,
    CloseSession,
    Command,
    Entry,
    Extend,
    LapseHomes,
    OpenSession,
    RaiseFence,
    Release,
    Renew,
    SetLimits,
    Suspend,
)
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Applied, Outcome, Refused
from fencehold.core.refusals import shortened
from fencehold.core.requests import NAMES_REMEMBERED_MAX, is_repeated, names_remembered, too_many_names
from fencehold.core.sessions import passable_ms
from fencehold.core.shape import JUDGES
from fencehold.core.state import CellState, State
from fencehold.errors import (
    FenceholdError,
    LeaseLapsed,
    NotLeader,
    OutcomeUnknown,
    OutOfPlace,
    Overloaded,
    Sealed,
    Unavailable,
)
from fencehold.journal.codec import encode
from fencehold.journal.port import DirectJournal, Journal, PromptJournal
from fencehold.node.group_commit import APPEND_S_MIN, Company
from fencehold.node.homes_lease import HomesLease
from fencehold.node.lanes import WORTH_LEARNING, Lane, Lanes
from fencehold.node.names import Names
from fencehold.node.turns import TURN_S_MAX, Turns
from fencehold.runtime.calendar import Calendar, unix_ms
from fencehold.runtime.clock import Clock, slept_ms
from fencehold.types import Epoch, Position

Answer: TypeAlias = Callable[[Outcome | FenceholdError, int], None]
"""Called with the outcome of a command and the logical time of its entry; or with the error of the append."""

Question: TypeAlias = Callable[[State], Any]
Reply: TypeAlias = Callable[[Any], None]
"""Called with what a question found, or with the error that prevented it."""


_APPEND_TIMES_MAX = 256
_USUAL_OF: Final = 4
"""The quickest of so many appends, the last ones, is what one usually takes, at the least."""

_RETRY_AFTER_S = 0.25
"""When to retry at a leader that is overloaded."""

_QUESTIONS_MS_MAX = 0.5
"""How long questions may take after one entry; the others are answered after the next."""

_LOOKED_MAX = 256
"""Answers that may wait for what they saw to be durable: each may be a page of a quarter megabyte."""

_RECENT_MS: Final = 100.0
"""How old a recent reading may be when it is asked for. A leader that was sealed shows a past state, by past
rights, for at most that much longer."""

_RECENT_REST: Final = 3.0
"""For how many times as long as a recent reading took the next ones are put as others are, in their lanes."""

_SLEPT_MS: Final = 1.0
"""So much more sleep of the machine is one: clocks that are read one after the other differ by less, mostly."""

_LATE_MS: Final = 100.0
"""A tick that is so much too late was delayed by something."""

_SHORT_BYTES: Final = 256
"""Commands that are shorter on the average are journaled as they are, refused or not."""

_GROWING = (OpenSession, Acquire)
"""What makes the state larger."""
_DEFERRABLE = (*_GROWING, Release, Extend, Break, SetLimits, RaiseFence)
"""What can wait when there is no room at all; what is to be journaled for a client that goes away cannot."""


_ENDING = (Suspend, CloseSession)
_ENDED_PER_WEIGHT: Final = 8
"""Names that weigh as much as one command when their session ends: to end them is less work than it was to ask."""
_ENDED_MAX: Final = 2_048
"""Names that sessions which run out have at the most, all that end in one entry: two milliseconds of work."""

_FEW_NAMES: Final = 2
"""A request about no more adds little to what is remembered of its session, and there are so many of them."""
_WEIGHED_EVERY, _WEIGHED_MAX = 32, 1_024
"""After so many requests what is remembered is counted again; of so many sessions the count is kept."""

_DATE_EVERY_MS: Final = 100
"""How often the calendar is read, at most: an entry may be made every few microseconds."""


class Bounds(NamedTuple):
    """How much goes into one entry, and how often an empty one is made."""

    commands_per_entry_max: int = 4_096
    entry_bytes_max: int = 1 << 20
    pending_max: int = 65_536
    """Commands that may wait for their turns. Beyond it, a connection that has some waiting is refused: nothing
    happened. Each connection stops being read long before; one command of each is always taken."""
    tick_s: float = 0.2


class Speech:
    """Called before an entry's answers and notices are sent, and after the last of them."""

    __slots__ = ("begin", "end")

    def __init__(self) -> None:
        self.begin: Callable[[], None] = _nothing
        self.end: Callable[[], None] = _nothing


def _nothing() -> None:
    """Replies are not gathered."""


def _unheard(*_: object) -> None:
    """No caller waits for the answer."""


class Proposal(NamedTuple):
    """An entry that was applied, and is to be appended; with what is to be answered when it is durable."""

    entry: Entry
    data: bytes
    position: Position
    applied: Applied
    found: list[Any]
    """What the questions found that came with it."""
    weight: int
    crowd: int
    began_ms: float
    ready_ms: float


class Leader:
    """Serves one epoch over one machine, which it alone feeds."""

    def __init__(  # noqa: PLR0915
        self,
        machine: Machine,
        journal: Journal,
        epoch: Epoch,
        clock: Clock,
        *,
        on_durable: Callable[[Entry, Applied, int], None],
        speech: Speech | None = None,
        bounds: Bounds,
        is_followed: bool = False,
        calendar: Calendar = unix_ms,
        names: Names | None = None,
        lease: HomesLease | None = None,
        turns: Turns | None = None,
        slept_ms: Callable[[], float] = slept_ms,
    ) -> None:
        self.machine = machine
        self._turns = turns
        """Shared with the leaders of other shards; None: it is alone, or its appends need not go one by one."""
        self._lease = lease
        """What other cells have confirmed; None: nothing, and what they must confirm lapses."""
        self._names = names or Names()
        self._is_followed = is_followed
        """Standbys take silence for death, so time passes by entries even when it can end nothing."""
        self._entry_bytes_max = min(bounds.entry_bytes_max, journal.declared.entry_bytes_max)
        self._journal = journal
        self._append_here = journal.append_here if isinstance(journal, PromptJournal) else None
        self._begin_append = journal.begin_append if isinstance(journal, DirectJournal) else None
        self._appending: Proposal | None = None
        """An entry whose append was begun inside a client's call, and is not durable yet."""
        self._proposed: Proposal | None = None
        """An entry that is left to `lead` to append: the journal would not do it inside the call."""
        self._failure: BaseException | None = None
        """Why an entry that was made inside a client's call failed."""
        self._epoch = epoch
        self._clock = clock
        self._on_durable = on_durable
        self._speech = speech or Speech()
        self._bounds = bounds
        self._pending_max = bounds.pending_max
        self._lanes = Lanes(bounds.pending_max)
        self._own_lane = Lane()
        """For what comes from no connection."""
        self._renewals: list[tuple[int, Answer]] = []
        self._under_way: list[Answer] = []
        self._asked: list[tuple[Question, Reply]] = []
        self._looked: list[tuple[Any, Reply]] = []
        self._is_ahead = False
        """The state has seen an entry that is not durable yet."""
        self._wanted = asyncio.Event()
        self._is_wanted = False
        """Whether that is set: an attribute, as every command checks it, and the event would take a call."""
        self._company = Company()
        self._awaited: asyncio.Event | None = None
        """Set when all that are waited for have come."""
        self._told_ms = clock.now_ms()
        self._begun_ms = -inf
        """When the last entry was begun. If that is durable, this node led then."""
        self._recent_from_ms = -inf
        """From when on a recent reading may be answered out of turn."""
        self._slept_ms, self._slept_at_ms = slept_ms, slept_ms()
        """How long the machine has slept, and how long it had when that was last checked."""
        self._tick_due_ms: float | None = None
        """When the next tick is to come; None: that is not known."""
        self._calendar = calendar
        self._has_dated = False
        """It has journaled the time of day."""
        self._date_at_ms = self._told_ms
        """When it reads the calendar next."""
        self._stopping = False
        self._remembered: dict[int, tuple[int, int]] = {}
        """Of sessions that ask for many names: the request when it was counted, and the names remembered then."""
        self._held_back: Overloaded | None = None
        self._refused: tuple[type[Command], ...] = _GROWING
        self.append_times_s: deque[float] = deque(maxlen=_APPEND_TIMES_MAX)
        """How long the last appends took."""

    def submit(self, command: Command, answer: Answer, lane: Lane | None = None) -> None:
        """Have a command appended and applied; `answer` is called once it is durable, or has failed."""
        lanes, lane = self._lanes, lane or self._own_lane
        if self._stopping or (lane.overflow and lanes.overflow >= self._pending_max):
            answer(self._no_room(), 0)
            return
        weight: int | Refused = 1
        judge = JUDGES.get(type(command))
        if judge is not None:
            weight = judge(self.machine.state.limits, command)
            if type(weight) is Refused:
                if not self._is_known(command):
                    answer(weight, self.machine.now_at)
                    return
                weight = 1
        elif isinstance(command, _ENDING):
            session = self.machine.state.sessions.get(command.session)
            weight = 1 if session is None else 1 + session.size() // _ENDED_PER_WEIGHT
        if self._held_back is not None and self._is_refused(command):
            answer(self._held_back, 0)
            return
        if weight > _FEW_NAMES and self._remembers_too_much(command):  # type: ignore[operator]
            answer(too_many_names(), self.machine.now_at)
            return
        lanes.put(lane, command, answer, weight)  # type: ignore[arg-type]
        if lane.is_gathering:
            # Its connection will call `commit_here`.
            self._is_wanted = True
        elif not self._is_wanted:
            self._want()
        if self._awaited is not None and lanes.crowd >= self._company.expected:
            self._awaited.set()

    def _want(self) -> None:
        """Have an entry made."""
        self._is_wanted = True
        self._wanted.set()

    def commit_here(self) -> None:
        """A connection that was gathering has submitted all it has read: make an entry of it, if it is alone.

        No other connection has sent anything lately, so waiting for the next turn of the event loop would bring no
        company. What cannot be done at once is left to `lead`, and so is a failure, after all were told.
        """
        if not self._is_wanted:
            return
        append, begin = self._append_here, self._begin_append
        if self._is_ahead or self._stopping or not self._lanes.is_alone:
            self._wanted.set()
            return
        if append is None and (begin is None or self._awaits_company()):
            self._wanted.set()
            return
        self._is_wanted = False
        try:
            proposal = self._propose()
            data, epoch, position = proposal.data, self._epoch, proposal.position
            if append is not None and append(data, epoch=epoch, position=position):
                self._conclude(proposal)
            elif begin is not None and begin(
                data, epoch=epoch, position=position, done=partial(self._on_appended, proposal)
            ):
                self._appending = proposal
            else:
                self._proposed = proposal
                self._want()
        except BaseException as error:
            self._fail_here(error)

    def _on_appended(self, proposal: Proposal, error: BaseException | None) -> None:
        """An append that was begun inside a client's call has ended."""
        if self._appending is not proposal:
            # This leader has ended meanwhile, and all were told that the outcome is not known.
            return
        self._appending = None
        try:
            if error is not None:
                raise error
            self._conclude(proposal)
        except BaseException as failure:
            self._fail_here(failure)
        else:
            if self._is_wanted or self._stopping:
                self._wanted.set()

    def _fail_here(self, error: BaseException) -> None:
        """An entry that was made inside a client's call has failed: tell all, and have `lead` end."""
        self._failure = error
        self._fail(error)
        self._want()
        if self._awaited is not None:
            self._awaited.set()

    def _awaits_company(self) -> bool:
        return bool(self._company.expected and self._company.wait_s(self._lanes.crowd))

    def _no_room(self) -> Unavailable:
        if self._stopping:
            return Unavailable("stopping")
        many = self._lanes.overflow
        return Overloaded(f"{many} commands wait for their turns already", retry_after_s=_RETRY_AFTER_S)

    def _is_known(self, command: Command) -> bool:
        """Whether it may have been answered before, under other limits: then it is answered the same again."""
        session = self.machine.state.sessions.get(getattr(command, "session", 0))
        return session is not None and 0 < getattr(command, "request", 0) <= session.latest

    def _remembers_too_much(self, command: Command) -> bool:
        """Whether the answers that its session has not acknowledged name so much that none may be added."""
        session = self.machine.state.sessions.get(getattr(command, "session", 0))
        number = getattr(command, "request", 0)
        if session is None or number <= session.latest or len(session.answers) < _WEIGHED_EVERY:
            return False
        # What ends something is taken longer: when it finds what it names, nothing of that is remembered.
        names_max = NAMES_REMEMBERED_MAX if isinstance(command, Acquire) else 2 * NAMES_REMEMBERED_MAX
        counted_at, count = self._remembered.get(session.id, (-_WEIGHED_EVERY, 0))
        if number - counted_at >= _WEIGHED_EVERY or count > names_max:
            if len(self._remembered) >= _WEIGHED_MAX:
                self._remembered.clear()
            count = names_remembered(session)
            self._remembered[session.id] = number, count
        return count > names_max and getattr(command, "answered", 0) <= session.answered

    def hold_back(self, refusal: Overloaded | None, *, is_spent: bool = False) -> None:
        """Refuse what makes the state grow, or all that can wait, from now on; None: take everything again.

        What waits to be journaled is refused as well, when its turn comes: it may be more than there is room for.
        """
        self._held_back, self._refused = refusal, _DEFERRABLE if is_spent else _GROWING

    def _is_refused(self, command: Command) -> bool:
        if not isinstance(command, self._refused):
            return False
        return not (isinstance(command, Acquire) and is_repeated(self.machine.state, command))

    def renew(self, session: int, answer: Answer) -> None:
        """Have a session renewed by the next entry, whenever that is."""
        if self._stopping:
            answer(Unavailable("stopping"), 0)
        else:
            self._renewals.append((session, answer))

    @property
    def pending(self) -> int:
        """Commands and questions that no entry has taken."""
        return self._lanes.pending

    def logical_ms(self) -> int:
        """The logical time at this moment, rounded up: an entry made now would be of that time, or of less."""
        return self.machine.state.now_at + ceil(self._clock.now_ms() - self._told_ms)

    def ask(self, question: Question, reply: Reply, lane: Lane | None = None) -> None:
        """Have a question put to the current state."""
        lane = lane or self._own_lane
        if self._stopping or (lane.overflow and self._lanes.overflow >= self._pending_max):
            reply(self._no_room())
        else:
            self._lanes.ask(lane, question, reply)
            self._want()

    def look(self, question: Question, reply: Reply) -> None:
        """Put a question to the state as it is, which may be an old one; answered when what it saw is durable."""
        if self._stopping:
            reply(Unavailable("stopping"))
        elif self._is_ahead and len(self._looked) >= _LOOKED_MAX:
            reply(Overloaded(f"{_LOOKED_MAX} answers wait for the journal", retry_after_s=_RETRY_AFTER_S))
        elif self._is_ahead:
            self._looked.append((question(self.machine.state), reply))
        else:
            reply(question(self.machine.state))

    def ask_recent(self, question: Question, reply: Reply, lane: Lane | None = None) -> None:
        """Put a question to a state that was current a moment ago: without an entry, if one was begun then.

        It is out of turn, so all of them together may take only a part of the time. Beyond that they wait in their
        lanes, where a flood of them delays only itself.
        """
        now_ms = self._clock.now_ms()
        has_room = now_ms >= self._recent_from_ms and len(self._looked) < _LOOKED_MAX
        if not has_room or not self._is_recent(now_ms):
            self.ask(question, reply, lane)
            return
        self.look(question, reply)
        looked_ms = self._clock.now_ms()
        self._recent_from_ms = looked_ms + _RECENT_REST * (looked_ms - now_ms)

    def _is_recent(self, now_ms: float) -> bool:
        """Whether the state is one that was current a moment ago, if what it has seen is durable, or will be."""
        slept_ms = self._slept_ms()
        if abs(slept_ms - self._slept_at_ms) > _SLEPT_MS:
            # The clock stood still meanwhile, and other machines ran on.
            self._slept_at_ms, self._begun_ms = slept_ms, -inf
        cells = self.machine.state.cells
        return now_ms - self._begun_ms <= _RECENT_MS and (cells is None or not self._has_run_out(cells))

    def tick(self) -> None:
        """Let time pass, if there is anything that it could end, or renewals wait. To be called every `tick_s`."""
        self._pass_over_stall(self._clock.now_ms())
        if self._clock.goes_by_itself:
            self._tick_due_ms = self._clock.now_ms() + self._bounds.tick_s * 1000
        state = self.machine.state
        if self._is_followed or state.sessions or state.delays or state.kept or self._renewals:
            self._want()

    def stop(self) -> None:
        """Take no more; `lead` returns when all that was taken is answered."""
        self._stopping = True
        self._want()

    async def lead(self) -> None:
        """Append and answer until told to stop, or the journal fails.

        Raises: what the journal raised. All pending callers have been told.
        """
        try:
            while not self._stopping or self._has_work():
                if self._is_wanted and not self._is_begun():
                    if self._company.expected and not self._lanes.is_crowded and await self._await_company():
                        if self._failure is not None:
                            # Meanwhile, inside a client's call: the state is ahead of the journal, and nothing may
                            # be appended after that.
                            break
                        if self._is_begun() or not self._is_wanted:
                            # All that were waited for have come: their entry was made inside the last one's call.
                            self._pass_on()
                            continue
                    self._is_wanted = False
                    await self._commit()
                    if self._is_wanted:
                        # An append on the event loop awaits nothing, and other tasks are to have their turns, too.
                        await asyncio.sleep(0)
                else:
                    self._wanted.clear()
                    await self._wanted.wait()
            if self._failure is not None:
                raise self._failure
        except BaseException as error:
            self._pass_on()
            self._fail(error)
            raise

    def _pass_on(self) -> None:
        """Its turn may have come: pass it on, unused."""
        if self._turns is not None:
            self._turns.pass_on()

    def _is_begun(self) -> bool:
        """Whether an append is under way that no task waits for: the next one comes after it."""
        return self._appending is not None

    def _has_work(self) -> bool:
        return not self._lanes.is_empty or bool(self._renewals or self._proposed or self._appending)

    async def _await_company(self) -> bool:
        """Wait for the commands that are expected, or for the appends of other shards; returns whether it did."""
        here, turns = self._lanes.crowd, self._turns
        wait_s = self._company.wait_s(here)
        if turns is not None and self._company.lacks(here):
            if not turns.is_taken and not wait_s:
                # While the disk is quick, other shards append within this turn of the loop; then what came is
                # read.
                await asyncio.sleep(0)
                return True
            wait_s = TURN_S_MAX if turns.is_taken else wait_s
        if wait_s:
            await self._await_signal(wait_s)
        return wait_s > 0

    async def _await_signal(self, wait_s: float) -> None:
        """Wait until all are there that are expected, or its turn has come, or time is up."""
        awaited = self._awaited = asyncio.Event()
        late = asyncio.get_running_loop().call_later(wait_s, awaited.set)
        if self._turns is not None:
            self._turns.line_up(awaited)
        try:
            await awaited.wait()
        finally:
            self._awaited = None
            late.cancel()
            if self._turns is not None:
                self._turns.leave(awaited)

    async def _commit(self) -> None:
        """One entry: apply, append, answer when it is durable."""
        proposal, self._proposed = self._proposed or self._propose(), None
        turns = self._turns
        if turns is None:
            await self._journal.append(proposal.data, epoch=self._epoch, position=proposal.position)
        else:
            turns.begin(self)
            try:
                await self._journal.append(proposal.data, epoch=self._epoch, position=proposal.position)
            finally:
                turns.end(self)
        self._conclude(proposal)

    def _propose(self) -> Proposal:
        """Make an entry of what has gathered, and apply it."""
        machine, now_ms = self.machine, self._clock.now_ms
        self._begun_ms = began_ms = now_ms()
        entry, data, weight, crowd = self._gather(began_ms)
        position = Position(machine.state.position + 1)
        # Applied first: an entry that the machine itself finds wrong must never be in the journal.
        self._is_ahead = True
        applied = machine.apply(position, entry)
        if self._names.index is not None:
            self._names.feed(entry, applied)
        if len(data) > _SHORT_BYTES * (1 + len(entry.commands)):
            shorter = shortened(entry, applied)
            data = data if shorter is entry else encode(shorter)
        found = self._put_questions() if self._asked else []
        return Proposal(entry, data, position, applied, found, weight, crowd, began_ms, now_ms())

    def _conclude(self, proposal: Proposal) -> None:
        """The entry is durable: answer."""
        entry, data, _, applied, found, weight, crowd, began_ms, ready_ms = proposal
        durable_ms = self._clock.now_ms()
        cells = self.machine.state.cells
        if cells is not None and self._has_run_out(cells):
            raise LeaseLapsed("the lease on homes of this cell ran out while an entry was written")
        took_s = (durable_ms - ready_ms) / 1000
        self.append_times_s.append(took_s)
        if took_s >= APPEND_S_MIN or self._company.expected or self._turns is not None:
            # One that was slow among quick ones says nothing of the next.
            usual_s = min(islice(reversed(self.append_times_s), _USUAL_OF))
            self._company.on_append(crowd + self._lanes.crowd, usual_s)
        self._is_ahead = False
        speech = self._speech
        speech.begin()
        try:
            self._answer(applied, found)
            self._on_durable(entry, applied, len(data))
        finally:
            speech.end()
        if weight >= WORTH_LEARNING:
            work_ms = ready_ms - began_ms + self._clock.now_ms() - durable_ms
            self._lanes.learn(weight, work_ms, durable_ms - ready_ms)

    def _put_questions(self) -> list[Any]:
        """Put as many questions as there is time for; the others are put after the next entry."""
        state, now_ms, found = self.machine.state, self._clock.now_ms, []
        until_ms = now_ms() + _QUESTIONS_MS_MAX
        for question, _ in self._asked:
            found.append(question(state))
            if now_ms() > until_ms:
                break
        if len(found) < len(self._asked):
            self._lanes.put_back([], [], self._asked[len(found) :])
            del self._asked[len(found) :]
            self._want()
        return found

    def _answer(self, applied: Applied, found: list[Any]) -> None:
        answers, self._under_way = self._under_way, []
        at_ms = applied.at_ms
        for answer, outcome in zip(answers, applied.outcomes, strict=True):
            answer(outcome, at_ms)
        # Before the notices: replies of a connection come in order, so an unanswered question would hold back the
        # reply of an acquire behind it, and the notice of its grant would overtake that.
        if found:
            asked, self._asked = self._asked, []
            for (_, reply), thing in zip(asked, found, strict=True):
                reply(thing)
        if self._looked:
            looked, self._looked = self._looked, []
            for thing, reply in looked:
                reply(thing)

    def _gather(self, now_ms: float) -> tuple[Entry, bytes, int, int]:
        """The next entry: the renewals, then as many commands as one entry takes; what they weigh; of how many."""
        commands, answers, questions, weight, crowd = self._lanes.take(now_ms)
        if self._held_back is not None:
            commands, answers = self._sift(commands, answers, self._held_back)
        if self._renewals:
            self._renew_first(commands, answers)
        if self.machine.state.cells is not None:
            self._lapse_first(self.machine.state.cells, commands, answers)
        entry, data = self._fit(self._elapsed_ms(now_ms), commands)
        count = len(entry.commands)
        if count < len(commands):
            # With the questions: they are put after all that came before them.
            self._lanes.put_back(commands[count:], answers[count:], questions)
            self._under_way, self._asked = answers[:count], []
        else:
            self._under_way, self._asked = answers, questions
        if not self._lanes.is_empty:
            self._want()
        return entry, data, weight, crowd

    def _sift(
        self, commands: list[Command], answers: list[Answer], refusal: Overloaded
    ) -> tuple[list[Command], list[Answer]]:
        """Those that are still taken, now that some are not; the others are refused."""
        taken: list[tuple[Command, Answer]] = []
        for command, answer in zip(commands, answers, strict=True):
            if self._is_refused(command):
                answer(refusal, 0)
            else:
                taken.append((command, answer))
        return [command for command, _ in taken], [answer for _, answer in taken]

    def _renew_first(self, commands: list[Command], answers: list[Answer]) -> None:
        renewals, self._renewals = self._renewals, []

        def told(outcome: Outcome | FenceholdError, at_ms: int) -> None:
            for _, answer in renewals:
                answer(outcome, at_ms)

        commands.insert(0, Renew(tuple(dict.fromkeys(session for session, _ in renewals))))
        answers.insert(0, told)

    def _lapse_first(self, cells: CellState, commands: list[Command], answers: list[Answer]) -> None:
        """Before all else: nothing is answered for homes that are not confirmed."""
        lapsing = tuple(cells.granting_leased()) if self._lease is None else self._lease.uncovered(cells)
        if lapsing:
            commands.insert(0, LapseHomes(lapsing))
            answers.insert(0, _unheard)

    def _has_run_out(self, cells: CellState) -> bool:
        return bool(cells.granting_leased()) if self._lease is None else self._lease.has_run_out(cells)

    def _fit(self, elapsed_ms: int, commands: list[Command]) -> tuple[Entry, bytes]:
        unix_ms = self._unix_ms(elapsed_ms) if self._told_ms >= self._date_at_ms else 0
        count = self._bounds.commands_per_entry_max
        taken = commands if len(commands) <= count else commands[:count]
        while True:
            entry = Entry(elapsed_ms, tuple(taken), unix_ms)
            data = encode(entry)
            if len(data) <= self._entry_bytes_max or len(taken) <= 1:
                return entry, data
            taken = taken[: len(taken) // 2]

    def _elapsed_ms(self, now_ms: float) -> int:
        """Whole milliseconds since the last entry, but for stalls; the remainder is carried to the next."""
        if self._tick_due_ms is not None and now_ms - self._tick_due_ms > _LATE_MS:
            self._pass_over_stall(now_ms)
        elapsed_ms = int(now_ms - self._told_ms)
        if elapsed_ms:
            state = self.machine.state
            due = state.sessions_due.heap
            if due and due[0] <= state.now_at + elapsed_ms:
                elapsed_ms = self._step_ms(elapsed_ms)
        self._told_ms += elapsed_ms
        return elapsed_ms

    def _step_ms(self, elapsed_ms: int) -> int:
        """As much of it as may pass in one entry; the rest does in the next, which comes at once."""
        state = self.machine.state
        counted_ms = min(elapsed_ms, state.limits.elapsed_ms_max)
        step_ms = passable_ms(state, counted_ms, _ENDED_MAX)
        if step_ms == counted_ms:
            return elapsed_ms
        # What the machine would not count is not split over several entries, each of which might be counted.
        self._told_ms += elapsed_ms - counted_ms
        self._want()
        return step_ms

    def _pass_over_stall(self, now_ms: float) -> None:
        """Do not count the time for which the event loop was kept from its next tick."""
        if self._tick_due_ms is None:
            return
        late_ms = now_ms - self._tick_due_ms
        if late_ms > _LATE_MS:
            self._tick_due_ms = now_ms
            self._told_ms = min(self._told_ms + late_ms, now_ms)

    def _unix_ms(self, elapsed_ms: int) -> int:
        """The time of day, if the next entry is to have it; otherwise 0."""
        unix_ms = self._calendar()
        self._date_at_ms = self._told_ms + _DATE_EVERY_MS
        if self._has_dated and not will_drift(self.machine.state, elapsed_ms, unix_ms):
            return 0
        self._has_dated = True
        # Before 1970 no clock was right.
        return max(0, unix_ms)

    def _fail(self, error: BaseException) -> None:
        """Tell the callers of the entry in flight its outcome, and the others that nothing happened."""
        self._stopping = True
        self._appending = None
        cause: FenceholdError = OutcomeUnknown(f"the node failed: {error!r}")
        if isinstance(error, Unavailable | OutcomeUnknown):
            cause = error
        elif isinstance(error, Sealed | OutOfPlace):
            # The entry is certainly absent: the present leader may be asked.
            cause = NotLeader("another node leads")
        nothing = Unavailable("the node lost its journal before this was appended")
        for answer in self._under_way:
            answer(cause, 0)
        answers, replies = self._lanes.clear()
        for answer in (*answers, *(answer for _, answer in self._renewals)):
            answer(nothing, 0)
        asked, looked = [reply for _, reply in self._asked], [reply for _, reply in self._looked]
        for reply in (*asked, *replies, *looked):
            reply(nothing)
        self._under_way, self._renewals, self._asked, self._looked = [], [], [], []
