"""The node: from a journal to a service, and back again when the journal fails or another node leads.

1. It opens the journal and comes up to its end. Alone, it takes the next epoch at once; among others it stands by
   until it is to (see `standby`). It reads what came before its epoch, and leads until it is stopped, sealed, or
   the journal fails. Then it opens anew, without its state if it led, and tries again, with growing back-off.
2. While it does not lead it refuses at once: certainly nothing happened, and who leads if that is known. Only what
   is requested as stale is answered from what it has followed.
3. A leader that was sealed answers nothing more (G10), and disconnects all clients.
4. What trying again cannot fix (damage, an fsync that failed, our own bug) ends it with that error.
5. It routes notices to the connection attached to the session they concern, and wakes observers.
6. While it leads it watches the room that its journal has, and refuses new work before that is full (`room`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fencehold.core.commands import Announce, Command, Entry, FoundShard, SetLimits
from fencehold.core.events import NOBODY, Event, Kind, Who, events_of
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Applied, Ending, HoldEnded, Notice, SessionEnded
from fencehold.core.rulebook import Rulebook
from fencehold.errors import (
    LeaseLapsed,
    NotAdmitted,
    NotLeader,
    OutcomeUnknown,
    OutOfPlace,
    Overloaded,
    Sealed,
    Trimmed,
    Unavailable,
    UsageError,
)
from fencehold.journal.port import Journal, Opened, Record
from fencehold.node.alarm import Alarm
from fencehold.node.homes_lease import HomesLease
from fencehold.node.lanes import Lane, Share
from fencehold.node.leader import Answer, Bounds, Leader, Question, Reply, Speech
from fencehold.node.names import Names
from fencehold.node.rates import Rates
from fencehold.node.replica import Replica
from fencehold.node.ring import Ring
from fencehold.node.room import Level, RoomWatch
from fencehold.node.routes import Routes
from fencehold.node.saver import Saver
from fencehold.node.snapshot_growth import growth_bytes
from fencehold.node.standby import Line, StandingBy
from fencehold.node.standbys import Member, Standbys
from fencehold.node.suspicion import Patience
from fencehold.node.turns import Turns
from fencehold.runtime.calendar import Calendar, unix_ms
from fencehold.runtime.clock import Clock
from fencehold.runtime.shared import SharedThings
from fencehold.types import Epoch, Position, Tier

_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""How long to wait before opening a journal that failed again; the last one from then on."""

_DUE_S_MIN = 0.02
"""How soon after an entry another may be made only because something is due: a bound on their number."""

_HANDOVER_S = 1.0
"""How long a leader that stops waits for the next one, before it disconnects its clients."""


class HomeShard(NamedTuple):
    """One shard of several."""

    shard: int
    shards: int


_DEPOSED = (Sealed, OutOfPlace, Trimmed)
"""What a journal says to one of several nodes that is not, or no longer, where it believed to be."""


class Node:
    """One replica that serves, or stands by to."""

    tier = Tier.CORRECTNESS
    """What its locks are for."""

    def __init__(  # noqa: PLR0915
        self,
        journal: Journal,
        clock: Clock,
        *,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
        ring: Ring | None = None,
        patience: Patience | None = None,
        calendar: Calendar = unix_ms,
        home: HomeShard | None = None,
    ) -> None:
        self.journal = journal
        self.home = home
        """Which shard it is, of how many; None: the only one."""
        self.replica = Replica(journal)
        self.ring = ring or Ring()
        self._past: Ring | None = None
        """The ring as it will be, while the state is built anew."""
        self.is_catching_up = False
        """The journal is read to its end: the state is older than what was reported of it."""
        self.routes = Routes()
        self.member = Member()
        self.standbys = Standbys()
        self.notes: tuple[str, ...] = ()
        self._line: Line | None = None
        """None: it is alone, and leads whenever it can."""
        self._patience = patience or Patience()
        self.clock = clock
        self._calendar = calendar
        self._limits = limits or Limits()
        self._bounds = bounds or Bounds()
        self.leading: Leader | None = None
        """What takes commands, while it leads. Read by connections for each of theirs."""
        self._leading = asyncio.Event()
        self._settled = asyncio.Event()
        self._stopping = False
        self._stopped = asyncio.Event()
        self._follows = False
        """The state is that of the journal a moment ago, and may be read."""
        self._was_admitted = False
        """The engine has let it lead, or follow another, before."""
        self._overdue: tuple[Member, int, Epoch] | None = None
        """Whom it was to replace, where the journal ended and which epoch was the newest then, until it has taken
        the next."""
        self._standing: StandingBy | None = None
        self._saver = Saver(journal)
        self.room = RoomWatch(journal, self._needed_bytes)
        self.room.on_level, self.room.on_looked = self._on_level, self._on_looked
        self._is_held_back = False
        self._due: Alarm | None = None
        self.turns: Turns | None = None
        """Of the appends of all shards here, where there are several and their journals share a disk."""
        self.lease: HomesLease | None = None
        """What other cells have confirmed, where there are several; None: nothing."""
        self.before_leading: Callable[[], Awaitable[None]] = _at_once
        """Awaited when it has taken the epoch, before it answers anything."""
        self.on_promoted: Callable[[], None] = _ignore
        """Called when it begins to lead."""
        self.on_deposed: Callable[[], None] = _ignore
        """Called when it led and does so no more, though it keeps running."""
        self.on_broken: Callable[[Event, str], None] = _ignore
        """Called with each hold that was broken while it leads."""
        self.on_changed: Callable[[], None] = _ignore
        """Called when its role, whom it follows, or why it does neither may have changed."""
        self.on_room: Callable[[], None] = _ignore
        """Called when it has begun, or ended, to hold back new work for want of room."""
        self.speech = Speech()
        """Called around all messages about one entry."""
        self.on_steps: Callable[[], None] = _ignore
        """Called when an entry is durable of a shard whose slots have moved."""
        self.on_policy: list[Callable[[], None]] = []
        """Called when another policy is durable, before any client is told what it ended."""
        self.rulebook: Rulebook | None = None
        """The durable policy, worked out; None while there is none."""
        self.rates = Rates()
        self.shares = SharedThings(Share)
        """The part of an entry that all connections of a principal may take together; without a principal, each by
        itself."""
        self.epoch = Epoch(0)
        self.position = 0
        """Of the last entry known to be durable."""
        self.appends = 0
        self._followed_ms: float | None = None
        """When the last entry came that another node wrote."""

    # For the listeners (`doors`).

    @property
    def leads(self) -> bool:
        return self.leading is not None

    @property
    def role(self) -> str:
        """`leader`, `standby`, or `waiting` for the journal or for its turn."""
        return "leader" if self.leads else "standby" if self._follows else "waiting"

    @property
    def leader(self) -> Member:
        """Who leads, as far as is known here."""
        state = self.replica.machine.state
        return Member(state.leader, state.leader_address)

    @property
    def append_times_s(self) -> list[float]:
        """How long the last appends took; none while it does not lead."""
        return [] if self.leading is None else list(self.leading.append_times_s)

    @property
    def pending_commands(self) -> int:
        """What waits for its entry; nothing while it does not lead."""
        return 0 if self.leading is None else self.leading.pending

    @property
    def followed_s(self) -> float | None:
        """Seconds since an entry came from the journal while it stands by; None if it does not."""
        if not self._follows or self._followed_ms is None:
            return None
        return max(0.0, (self.clock.now_ms() - self._followed_ms) / 1000)

    def submit(self, command: Command, answer: Answer, lane: Lane | None = None) -> None:
        """Have a command journaled and applied; `answer` is called when that is durable, or has failed.

        `lane`: of the connection that asks.
        """
        if self.leading is None:
            answer(self.refusal(), 0)
        else:
            self.leading.submit(command, answer, lane)

    def logical_ms(self) -> int:
        """The logical time at this moment, between entries, rounded up; 0 if this node does not lead."""
        return 0 if self.leading is None else self.leading.logical_ms()

    def renew(self, session: int, answer: Answer) -> None:
        """Have a session renewed with the next entry."""
        if self.leading is None:
            answer(self.refusal(), 0)
        else:
            self.leading.renew(session, answer)

    def ask(self, question: Question, reply: Reply, lane: Lane | None = None) -> None:
        """Put a question to the current state; `reply` may get an error instead."""
        if self.leading is None:
            reply(self.refusal())
        else:
            self.leading.ask(question, reply, lane)

    def ask_recent(self, question: Question, reply: Reply, lane: Lane | None = None) -> None:
        """Put a question to a state that was the current one a moment ago; `reply` may get an error instead."""
        if self.leading is None:
            reply(self.refusal())
        else:
            self.leading.ask_recent(question, reply, lane)

    def look(self, question: Question, reply: Reply) -> None:
        """Put a question to what is there, without an entry; `reply` may get an error instead."""
        if self.leading is not None:
            self.leading.look(question, reply)
        elif self._follows:
            reply(question(self.replica.machine.state))
        else:
            reply(self.refusal())

    @property
    def names(self) -> Names:
        """The names in use, in order. `prepare_names` comes first."""
        return self.replica.names

    def prepare_names(self, then: Callable[[], None]) -> None:
        """Call `then` when a page of the names can be asked for; at once if that is refused anyway."""
        if self.leading is None and not self._follows:
            then()
        else:
            self.names.prepare(self.replica.machine.state, then)

    def meta_of(self, session: int) -> str:
        """The metadata of a session, though it may have ended a while ago; empty if that is gone."""
        return self.who_of(session).meta

    def who_of(self, session: int) -> Who:
        """Whose a session is, though it may have ended a while ago; `NOBODY` if that is gone."""
        state = self.replica.machine.state
        known = state.sessions.get(session)
        if known is not None:
            return Who(known.meta, known.principal)
        if session in self.ring.ended:
            return self.ring.ended[session]
        # It may have ended in an entry that was applied and is not durable yet.
        ends = (notice for _, notice in state.notices if isinstance(notice, SessionEnded))
        return next((Who(ended.meta, ended.principal) for ended in ends if ended.session == session), NOBODY)

    def refusal(self) -> Unavailable:
        """Why it answers nothing, when it does not lead."""
        standing, leader = self._standing, self.leader
        if standing is not None and standing.awaits_taker:
            return Unavailable("another node takes over")
        if standing is not None and leader.address not in ("", self.member.address):
            if standing.vouches:
                return NotLeader(f"this node stands by; ask {leader.address}", leader=leader.address)
            # A client that was redirected there would wait for nothing, as this node does.
            return Unavailable(f"the leader, {leader.name}, was not heard from for a while")
        return Unavailable(self.notes[0] if self.notes else "no node leads at the moment")

    # Its life.

    def join(self, member: Member, line: Line) -> None:
        """Be one of several from here on. To be called before `run`."""
        self.member, self._line = member, line

    async def ready(self) -> None:
        """Wait until it serves."""
        await self._leading.wait()

    async def settled(self) -> None:
        """Wait until it serves, or stands by, or has found that it cannot have its journal."""
        await self._settled.wait()

    async def run(self) -> None:
        """Serve, or stand by, until stopped.

        Raises: what trying again cannot fix.
        """
        failures = 0
        while not self._stopping:
            position = self.position
            try:
                await self._serve()
            except (Unavailable, OutcomeUnknown, *_DEPOSED) as error:
                if not self._is_mendable(error):
                    raise
                if isinstance(error, Overloaded):
                    self.room.on_full(error)
                self.notes = (f"trying again: {error}",)
                self._settled.set()
                self.on_changed()
                # It led or followed since: what failed before is over.
                failures = 0 if self.position > position else failures
                await self._pause(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                failures += 1
            finally:
                self._follows = False
                await self.journal.close()

    def stop(self) -> None:
        """Have `run` return when all that was taken is answered."""
        self._stopping = True
        self._stopped.set()
        if self.leading is not None:
            self.leading.stop()

    def cede(self) -> None:
        """Answer what was taken, then let a standby lead in its place: the one that `standbys` has first.

        Nothing happens if it does not lead. If no standby takes over, it leads again.
        """
        if self.leading is not None and self._line is not None:
            self.leading.stop()

    def _check_home(self) -> None:
        """See that the journal was made with as many shards as this node has.

        Raises:
            UsageError: it was not, and nothing that it holds would be found.
        """
        found = self.replica.machine.state.home
        known = None if found is None else HomeShard(found.shard, found.shards)
        if not self.position or known == self.home:
            return
        made = 1 if known is None else known.shards
        asked = 1 if self.home is None else self.home.shards
        if made == asked and known is not None and self.home is not None:
            raise UsageError(f"the journal of shard {self.home.shard} is that of shard {known.shard}")
        raise UsageError(
            f"this journal was made with {made} shard{'s' if made > 1 else ''}, not {asked}: use --shards {made}, "
            "or begin with an empty one"
        )

    def _is_mendable(self, error: Exception) -> bool:
        # A shared engine can be read to find out. A file that could not be synced cannot, be it of entries or of a
        # snapshot: what the kernel shows may not be on the disk, so only a restart, after a check of the disk, may
        # continue.
        if isinstance(error, LeaseLapsed):
            # The journal is as it should be; only no client was answered.
            return True
        if self._line is not None:
            # Not admitted from the beginning: probably a typo in the configuration, and its author is still there
            # to see it.
            return self._was_admitted or not isinstance(error, NotAdmitted)
        if self.epoch == 0 or isinstance(error, _DEPOSED):
            return False
        is_unknown = isinstance(error, OutcomeUnknown) or isinstance(self._saver.failure, OutcomeUnknown)
        return self.journal.declared.shared or not is_unknown

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    async def _serve(self) -> None:
        # What was appended though no client could be told so is reported now.
        self.is_catching_up = True
        try:
            opened = await self.replica.open(self._on_missed, self._on_anew)
        finally:
            self.is_catching_up = False
        self.notes = opened.notes
        self.position = self.replica.machine.position
        self._check_home()
        self._note_policy()
        if self._past is not None:
            self.ring.take(self._past)
            self._past = None
        self.routes.wake()
        snapshot_at = opened.snapshot.position if opened.snapshot else 0
        if not await self._take_epoch(opened.epoch):
            return
        # Only now: what an older epoch appended before it was sealed must be known, and no more can come.
        async for record in self.journal.read(after=Position(self.replica.machine.position)):
            self._on_record(record)
        self._saver.on_given_back, self._saver.on_written = self.room.on_given_back, self.room.on_written
        self._saver.begin(self.position - snapshot_at, self.replica.followed_bytes, self.replica.snapshot_bytes)
        await self.before_leading()
        if not self._stopping:
            await self._lead(self._made_leader())

    async def _take_epoch(self, newest: Epoch) -> bool:
        """Take the next epoch: alone at once, among others when it is this node's turn. False if it is to stop."""
        if self._line is None:
            self.epoch = await self.journal.lead()
            return True
        while True:
            if not self._is_overdue(newest):
                due = await self._stand_by(self._line, newest)
                if due is None:
                    return False
                newest = due
            self._overdue = (self.leader, self.position, newest)
            try:
                self.epoch = await self.journal.lead(newest)
            except Sealed as sealed:
                # Another was faster, and gets its time to write: to take the next would seal it at once.
                newest, self._overdue = Epoch(sealed.newest), None
            else:
                self._overdue = None
                return True

    def _is_overdue(self, newest: Epoch) -> bool:
        """Whether it was to lead before, could not take the epoch, and no node has written anything since.

        One epoch may have been taken meanwhile: by itself, without its knowing.
        """
        if self._overdue is None or self._stopping:
            return False
        leader, position, known = self._overdue
        return (leader, position) == (self.leader, self.position) and newest <= known + 1

    async def _stand_by(self, line: Line, newest: Epoch) -> Epoch | None:
        """Follow until this node is to lead; then the newest epoch that is known, or None if it is to stop."""
        self._follows = True
        self._was_admitted = self._was_admitted or self.leader.address not in ("", self.member.address)
        self._settled.set()
        self.on_changed()
        standing = self._standing = StandingBy(
            self.replica,
            self.member,
            line,
            patience=self._patience,
            on_record=self._on_record,
            epoch=newest,
            vain_epochs=self._vain_epochs(newest),
        )
        due = asyncio.create_task(standing.until_due())
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({due, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if due.done():
                await due
        finally:
            for task in (due, stopped):
                task.cancel()
            await asyncio.gather(due, stopped, return_exceptions=True)
            self._follows, self._standing = False, None
        return None if self._stopping else standing.epoch

    def _vain_epochs(self, newest: Epoch) -> int:
        """How many epochs others have taken since the last entry was written, as far as that is known."""
        written = self.replica.epoch
        if written is None or newest == self.epoch:
            return 0
        return max(0, newest - written)

    def _made_leader(self) -> Leader:
        leader = Leader(
            self.replica.lead(),
            self.journal,
            self.epoch,
            self.clock,
            on_durable=self._on_durable,
            bounds=self._bounds,
            speech=self.speech,
            is_followed=self._line is not None,
            calendar=self._calendar,
            names=self.replica.names,
            lease=self.lease,
            turns=self.turns,
        )
        state = self.replica.machine.state
        if self.home is not None and state.home is None:
            leader.submit(FoundShard(*self.home), _ignore)
        if self._line is not None:
            leader.submit(Announce(*self.member), _ignore)
        if state.limits != self._limits:
            leader.submit(SetLimits(self._limits), _ignore)
        leader.hold_back(self.room.refusal())
        return leader

    async def _lead(self, leader: Leader) -> None:
        beside = [asyncio.create_task(self._tick(leader)), asyncio.create_task(self.room.watch())]
        self._due = Alarm(leader.tick)
        self.leading = leader
        self._was_admitted = True
        self.on_promoted()
        self._leading.set()
        self._settled.set()
        self.on_changed()
        had_standbys = False
        try:
            await leader.lead()
        except LeaseLapsed:
            if self._line is None:
                # It will lead again, and has not answered all it did: no client is to wait for that on this
                # connection.
                self.leading = None
                self.on_deposed()
            raise
        finally:
            self.leading = None
            self._leading.clear()
            if not self._stopping and self._line is not None:
                # Before anything is awaited: from here on another node may answer.
                had_standbys = self.standbys.dismiss()
                self.on_deposed()
            for task in beside:
                task.cancel()
            self._due.cancel()
            for task in beside:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await self._saver.end()
            self.room.forget()
        await self._hand_over(had_standbys)

    async def _hand_over(self, had_standbys: bool) -> None:
        """Stopped, or ceded: let a standby take over. So clients find it, and this node follows it."""
        if self.standbys.dismiss() or had_standbys:
            with contextlib.suppress(TimeoutError, Unavailable, *_DEPOSED):
                async with asyncio.timeout(_HANDOVER_S):
                    async for record in self.journal.tail(after=Position(self.position)):
                        if record.epoch > self.epoch:
                            return

    # The room that its journal has.

    def _needed_bytes(self) -> int:
        return self._saver.needed_bytes()

    def _on_level(self) -> None:
        was_held = self._is_held_back
        refusal = self.room.refusal()
        self._is_held_back = refusal is not None
        self._saver.is_urgent = self.room.level >= Level.SCARCE
        if self.leading is not None:
            self.leading.hold_back(refusal, is_spent=self.room.level is Level.SPENT)
        if self._is_held_back != was_held:
            self.on_room()

    def _on_looked(self) -> None:
        self._saver.bytes_max = self.room.entries_bytes_max
        if self.leading is not None and self.room.level >= Level.SCARCE:
            # An entry, though there may be nothing to journal: a snapshot is begun after one, and gives room back.
            self.leading.ask(_ignore, _ignore)

    async def _tick(self, leader: Leader) -> None:
        while True:
            await asyncio.sleep(self._bounds.tick_s)
            leader.tick()

    # What comes from the journal.

    def _on_anew(self, opened: Opened) -> None:
        """The state is built anew: so is the ring of past events, beside the present one until that is done."""
        self._past = self.ring.anew(opened.snapshot.position if opened.snapshot else 0, opened.end)

    def _on_missed(self, entry: Entry, applied: Applied, size_bytes: int) -> None:
        (self.ring if self._past is None else self._past).add(entry, applied, size_bytes)
        if applied.position > self.position:
            self.routes.tell(applied)

    def _on_record(self, record: Record) -> None:
        before = self.leader
        entry, applied = self.replica.follow(record)
        self.position = applied.position
        self._followed_ms = self.clock.now_ms()
        if (self.home is None) is not (self.replica.machine.state.home is None):
            # Another node has just made the journal, with another number of shards.
            self._check_home()
        self._note_policy()
        self.ring.add(entry, applied, len(record.entry))
        self.routes.tell(applied)
        self.routes.wake()
        if self.leader != before:
            self.on_changed()

    def _on_durable(self, entry: Entry, applied: Applied, size_bytes: int) -> None:
        self.appends += 1
        self.position = applied.position
        state = self.replica.machine.state
        if state.rulebook is not self.rulebook or state.placed is not None:
            self._note_policy()
        if not applied.notices:
            # All replies are made: flush them before the work that no client waits for.
            self.speech.end()
        self.ring.add(entry, applied, size_bytes)
        self.replica.on_entry(entry, applied)
        if applied.notices:
            self.routes.tell(applied)
            if any(_is_broken(notice) for _, notice in applied.notices):
                self._tell_broken(entry, applied)
        if self.routes.watchers:
            self.routes.wake()
        self.room.on_append(size_bytes)
        if self.room.level or self._saver.free_bytes is not None or self._saver.is_blind:
            self._saver.free_bytes, self._saver.is_blind = self.room.snapshot_bytes_max, self.room.is_blind
        grown_bytes = growth_bytes(entry, applied, size_bytes, self._limits)
        self._saver.consider(self.replica.machine, len(entry.commands), size_bytes, grown_bytes)
        self._expect_next()

    def _note_policy(self) -> None:
        """Nothing is ahead of the journal when this is called: the state's policy and map are the durable ones."""
        state = self.replica.machine.state
        if state.placed is not None:
            self.on_steps()
        book = state.rulebook
        if book is not self.rulebook:
            self.rulebook = book
            for call in tuple(self.on_policy):
                call()

    def _tell_broken(self, entry: Entry, applied: Applied) -> None:
        """Report each broken hold with the principal that broke it, which an earlier event of the entry says."""
        principal = ""
        for event in events_of(entry, applied, self.who_of):
            if event.kind in (Kind.FENCE_RAISED, Kind.SLOTS_FORCED):
                principal = event.principal
            elif event.kind is Kind.BROKEN:
                self.on_broken(event, principal)

    def _expect_next(self) -> None:
        """What comes due before the next tick is not made to wait for it."""
        state = self.replica.machine.state
        due_at = state.next_due_at()
        if due_at is not None and self._due is not None:
            delay_s = max(_DUE_S_MIN, (due_at - state.now_at) / 1000)
            if delay_s < self._bounds.tick_s:
                self._due.set(delay_s)


def _is_broken(notice: Notice) -> bool:
    return type(notice) is HoldEnded and notice.ending is Ending.BROKEN


async def _at_once() -> None:
    """Nothing to wait for."""


def _ignore(*_: object) -> None:
    """No caller waits for the answer."""
