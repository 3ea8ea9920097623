"""State: all that the machine remembers, and the only functions that change who holds what.

Every table follows what is held, awaited or alive now; a name that is neither held, awaited, delayed nor kept
appears nowhere (G11). A name stands in at most one of `held` and `crowds` (G2).

Holds and waiters are values: to change one is to put another in its place. That is what lets a snapshot be taken
in slices while the machine goes on: code about to change what a session has calls `touch` first, and
`take_out` keeps what it takes out, for the snapshot under way, if there is one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from fencehold.core.commands import AnyAcquire, Mode
from fencehold.core.deadlines import Deadlines
from fencehold.core.holds import MASK, Holds
from fencehold.core.invariants import invariant
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Answer, Notice, Outcome
from fencehold.core.policy import NO_POLICY, Policy
from fencehold.placement.cells import CellMap, lengths_of

if TYPE_CHECKING:
    from fencehold.core.quotas import Usage
    from fencehold.core.rulebook import Rulebook
    from fencehold.core.snapshot_slices import Saving
    from fencehold.placement.map import ShardMap

_FENCE_AND_NAME = attrgetter("fence", "name")


NOT_DUE = -1
"""`due_at` of a session whose deadline is not entered anywhere."""


class Hold(Struct, frozen=True, gc=False, array_like=True):
    """One name held by one owner. Half a million of these are the machine's memory: keep it lean."""

    name: str
    session: int
    owner: str
    fence: int
    since_at: int
    until_at: int = 0
    """0: as long as the session."""
    mode: Mode = Mode.EXCLUSIVE
    limit: int = 0
    lock_delay_ms: int = 0
    meta: str = ""


class Kept(Struct, frozen=True, gc=False, array_like=True):
    """A name that is granted to nobody else before an instant, whatever became of the hold: for whom, and why.

    A tombstone: it remembers who that was, for the session may have ended long before.
    """

    name: str
    fence: int
    session: int
    owner: str
    since_at: int
    until_at: int
    meta: str = ""
    session_meta: str = ""


class Crowd(Struct, frozen=True, gc=False):
    """The holds of a name that several may have: shared ones, or the permits of a semaphore."""

    mode: Mode
    limit: int
    holds: dict[int, Hold]
    """By fence, in ascending order: the oldest, the newest and a page from anywhere are found without sorting."""

    def has_room(self) -> bool:
        return self.mode is Mode.SHARED or len(self.holds) < self.limit


class Waiter(Struct, frozen=True, gc=False, array_like=True):
    """A request that stands in the queue of each of its names, with one ticket."""

    ticket: int
    ask: AnyAcquire
    since_at: int
    until_at: int
    """When the wait is over; 0 if never."""

    @property
    def key(self) -> int:
        """Its key among the waiters of its session: the request id, or, lacking one, less than any id."""
        return self.ask.request or -self.ticket


class Anchor(Struct, frozen=True, gc=False, array_like=True):
    """Ties logical time to the time of day: for what came after it, until the next one (see `anchors`)."""

    offset_ms: int
    """The time of day, in Unix milliseconds, is logical time plus this."""
    session: int
    """The newest session before it; `ticket` and `fence` likewise. What came after it has a greater number."""
    ticket: int
    fence: int


class Home(Struct, frozen=True, gc=False, array_like=True):
    """Which shard a machine is, of how many, and the slots that it serves (see `shards`)."""

    shard: int
    shards: int
    first: int
    last: int


class Stage(Enum):
    """Where a slot stands that has moved, or is about to (see `slot_moves`)."""

    CLOSING = "closing"
    """It takes no new requests, and something of it is held, awaited or kept."""
    CLOSED = "closed"
    """Nothing of it is left here."""
    ARRIVING = "arriving"
    """It is to be open here: requests may wait for it, and nothing is granted."""
    OPEN = "open"


class SlotMove(Struct, frozen=True, gc=False, array_like=True):
    """What became of a slot that does not stand as the service was made with."""

    slot: int
    version: int
    """Of the map by which it last moved here or away."""
    stage: Stage
    to: int
    """Where it goes, or went; this shard itself, if it arrives or is open here."""
    fence: int
    """Closed: the greatest fence that any of its names may have had here. Open: what all are above."""


class HomeRecord(Struct, frozen=True, gc=False, array_like=True):
    """What became of a prefix here, in one of several cells."""

    prefix: str
    version: int
    """By which it was last opened or closed here."""
    stage: Stage
    to: str
    """Where it goes, or is; this cell itself, if it is open here."""
    fence: int
    """Closed: the greatest fence that any of its names may have had here. Open: what all are above."""


class CellState:
    """What one of several cells knows of all, and which prefixes are its own (see `cells`)."""

    __slots__ = ("_lengths", "cell", "draining", "lapsed", "map", "records")

    def __init__(
        self, cell: str, placed: CellMap, records: dict[str, HomeRecord], lapsed: Iterable[str] = ()
    ) -> None:
        self.cell = cell
        self.map = placed
        self.lapsed = set(lapsed)
        """Prefixes that are open here and grant nothing until another cell confirms it."""
        self.draining: dict[str, set[str]] = {}
        """Names that closing prefixes had when last looked at: they only get fewer. Worked out, not saved."""
        self.set_records(records)

    def set_records(self, records: dict[str, HomeRecord]) -> None:
        """Let the prefixes be these."""
        self.records = records
        self._lengths = lengths_of(records)

    def prefix_of(self, name: str) -> str:
        """The longest prefix that a name begins with."""
        records = self.records
        return next(name[:size] for size in self._lengths if name[:size] in records)

    def record_of(self, name: str) -> HomeRecord:
        """The record that decides about a name."""
        return self.records[self.prefix_of(name)]

    def record_around(self, prefix: str, placed: CellMap) -> HomeRecord:
        """The record that would decide about names of a prefix if there were only those of a map."""
        kept = [each for each in self.records if each in placed.by_prefix and prefix.startswith(each)]
        return self.records[max(kept, key=len)]

    def is_open(self, prefix: str) -> bool:
        """Whether a prefix is open here, granting or lapsed."""
        record = self.records.get(prefix)
        return record is not None and record.stage is Stage.OPEN

    def open_leased(self) -> set[str]:
        """What is open here and may grant only while another cell confirms it."""
        return {prefix for prefix in self.records if self.is_open(prefix) and self.map.is_leased(prefix)}

    def granting_leased(self) -> dict[str, int]:
        """What grants here only as long as it is confirmed, with its versions."""
        return {prefix: self.records[prefix].version for prefix in sorted(self.open_leased() - self.lapsed)}


class Session(Struct, gc=False):
    """A client's life with the service, and all that hangs on it."""

    id: int
    ttl_ms: int
    grace_ms: int
    secret: str
    meta: str
    opened_at: int
    opened_fence: int
    """The fence counter when it opened: no hold of this session carries a fence up to it."""
    latest: int = 0
    """The greatest request id seen."""
    answered: int = 0
    """Direct answers up to this request id have arrived."""
    names_awaited: int = 0
    held: dict[str, Hold] = {}
    shares: dict[tuple[int, str], Hold] = {}
    """Holds in a crowd, by fence and name: one session may have several on a name."""
    waiters: dict[int, Waiter] = {}
    """By `Waiter.key`."""
    answers: dict[int, Answer] = {}
    """Direct answers by request id, until the client says they have arrived."""
    final_answers: dict[int, Answer] = {}
    """Answers of requests that had waited, until settled."""
    lapsed: dict[tuple[int, str], None] = {}
    """Fence and name of holds that were taken from it: the newest few, to tell expired from released."""
    due_at: int = NOT_DUE
    """Where its deadline is entered: not after it ends, though it may be renewed to live longer."""
    principal: str = ""
    """Whose it is; empty: nobody was asked."""
    token: str = ""
    """With which token of the policy it was opened, if so: it ends with that."""

    def holds(self) -> list[Hold]:
        """All it has, in the order of the fences: an order that any replica comes to."""
        return sorted((*self.held.values(), *self.shares.values()), key=_FENCE_AND_NAME)

    def size(self) -> int:
        """Names it has or waits for."""
        return len(self.held) + len(self.shares) + self.names_awaited


OwnerKey: TypeAlias = tuple[int, str]
"""Session and owner: who waits for whom is a matter between these."""


class Queue(OrderedDict[int, Waiter]):
    """Who waits for a name: by ticket, in order. Both ends are found at once, even if waiters leave in the middle.

    The rest is worked out from who stands in it, so that nobody need go through it (see `queues`).
    """

    # Set where they differ, not in `__init__`: a queue of one that comes and goes is what there is most of.
    holder: OwnerKey | None = None
    """The known owner under whom the name is entered in `State.blocking`."""
    limit = 0
    """The limit under which permits are awaited, if `permits` are."""
    permits = 0
    tickets: list[int] | None = None
    """Its keys, from when somebody has asked for a place among them."""


class State:
    """The tables. `machine` applies entries to it, `snapshot` makes bytes of it."""

    __slots__ = (
        "anchors",
        "arriving",
        "blocking",
        "cells",
        "crowds",
        "delays",
        "delays_due",
        "draining",
        "fence",
        "held",
        "holds_due",
        "home",
        "kept",
        "kept_due",
        "leader",
        "leader_address",
        "limits",
        "noted",
        "notices",
        "now_at",
        "outcomes",
        "owned",
        "placed",
        "policy",
        "position",
        "queues",
        "repeated",
        "rulebook",
        "saving",
        "session_last",
        "sessions",
        "sessions_due",
        "sessions_until",
        "slots",
        "steps",
        "ticket",
        "ticking",
        "usage",
        "waiters",
        "waiters_due",
        "waiting",
    )

    def __init__(self, limits: Limits | None = None) -> None:  # noqa: PLR0915 - one for each table
        self.limits = limits or Limits()
        self.position = 0
        self.now_at = 0
        self.anchors: list[Anchor] = []
        """Where logical time was tied to the time of day, oldest first."""
        self.fence = 0
        self.ticket = 0
        self.session_last = 0
        self.leader = ""
        self.leader_address = ""
        """Where the node that announced itself last can be reached."""
        self.home: Home | None = None
        """Which shard it is; None: the only one, and every name is its own."""
        self.slots: dict[int, SlotMove] = {}
        """Slots that have moved, or are about to. Empty, they stand as the service was made with."""
        self.cells: CellState | None = None
        """Which cell it is, of several, and what is at home in it; None: every name is its own."""
        self.placed: ShardMap | None = None
        """The newest map that is known; None: the one that the service was made with."""
        self.draining: dict[int, tuple[str, ...] | None] = {}
        """The closing slots, and the names they had when last looked at: they only get fewer. Worked out."""
        self.steps = 0
        """Counts what happens to slots, for those who look on. Worked out."""
        self.arriving: dict[int, None] = {}
        """The slots that arrive. Worked out."""
        self.sessions: dict[int, Session] = {}
        self.sessions_until: dict[int, int] = {}
        """When each session ends unless renewed. Apart from the sessions, so that renewing touches none."""
        self.held = Holds()
        self.crowds: dict[str, Crowd] = {}
        self.queues: dict[str, Queue] = {}
        self.waiters: dict[int, Waiter] = {}
        self.waiting: dict[OwnerKey, dict[int, Waiter]] = {}
        """Known owners that wait, by ticket: the edges of the wait-for graph start here."""
        self.blocking: dict[OwnerKey, list[str]] = {}
        """Names that known owners hold exclusively and others wait for, sorted: where those edges lead."""
        self.delays: dict[str, int] = {}
        """Names under lock-delay, and until when."""
        self.kept: dict[str, Kept] = {}
        """Names kept for a least time, held or not. By fence, as they are entered on their grants."""
        self.sessions_due: Deadlines[int] = Deadlines()
        self.holds_due: Deadlines[tuple[int, str]] = Deadlines()
        self.waiters_due: Deadlines[int] = Deadlines()
        self.delays_due: Deadlines[str] = Deadlines()
        self.kept_due: Deadlines[str] = Deadlines()
        self.saving: Saving | None = None
        self.owned = 0
        """How many sessions are somebody's."""
        self.noted = 0
        """How many holds have metadata."""
        self.policy: Policy = NO_POLICY
        self.rulebook: Rulebook | None = None
        """The policy worked out; None while there is none, and everybody may do everything."""
        self.usage: Usage | None = None
        """What principals have, while there are quotas."""
        # What the entry being applied has led to so far.
        self.outcomes: list[Outcome] = []
        self.notices: list[tuple[int, Notice]] = []
        self.repeated: list[int] = []
        self.ticking = 0

    def next_due_at(self) -> int | None:
        """When anything but a session may end next. Sessions are left out: theirs move all the time."""
        heaps = (self.holds_due.heap, self.waiters_due.heap, self.delays_due.heap, self.kept_due.heap)
        return min([heap[0] for heap in heaps if heap]) if any(heaps) else None

    def is_any_due(self) -> bool:
        """Whether anything may have come due by now."""
        now_at = self.now_at
        return (
            ((heap := self.sessions_due.heap) and heap[0] <= now_at)
            or ((heap := self.holds_due.heap) and heap[0] <= now_at)
            or ((heap := self.waiters_due.heap) and heap[0] <= now_at)
            or ((heap := self.delays_due.heap) and heap[0] <= now_at)
            or bool((heap := self.kept_due.heap) and heap[0] <= now_at)
        )

    def tell(self, notice: Notice) -> None:
        """Record what happened besides an outcome, with the index of the command that caused it."""
        self.notices.append((len(self.outcomes) + self.ticking, notice))

    def touch(self, session: Session) -> None:
        """Say that the session is about to change, before it does."""
        if self.saving is not None:
            self.saving.keep_session(session)

    def admits(self, name: str, mode: Mode) -> bool:
        """Whether the name, leaving its queue aside, could be had in this mode now."""
        if name in self.held or name in self.delays or name in self.kept:
            return False
        crowd = self.crowds.get(name)
        return crowd is None or (crowd.mode is mode and crowd.has_room())

    def holders(self, name: str) -> list[Hold]:
        """Who has the name, by fence."""
        hold = self.held.get(name)
        if hold is not None:
            return [hold]
        crowd = self.crowds.get(name)
        return [] if crowd is None else list(crowd.holds.values())

    def find(self, name: str, fence: int) -> Hold | None:
        """The hold on a name that carries this fence."""
        hold = self.held.parts[hash(name) & MASK].get(name)
        if hold is None:
            crowd = self.crowds.get(name)
            return None if crowd is None else crowd.holds.get(fence)
        return hold if hold.fence == fence else None

    def put_in(self, session: Session, hold: Hold) -> None:
        """Give a name to a session."""
        if hold.mode is Mode.EXCLUSIVE:
            name = hold.name
            # One look-up both checks that nobody has the name and gives it away.
            if self.held.parts[hash(name) & MASK].setdefault(name, hold) is not hold:
                invariant(False, "an exclusive name has one hold")
            session.held[name] = hold
        else:
            self._put_in_crowd(session, hold)
        if hold.until_at:
            self.holds_due.add(hold.until_at, (hold.fence, hold.name))
        if hold.meta:
            self.noted += 1
        if self.usage is not None:
            self.usage.add_names(session.principal, (hold.name,), 1)

    def _put_in_crowd(self, session: Session, hold: Hold) -> None:
        crowd = self.crowds.get(hold.name)
        if crowd is None:
            invariant(hold.name not in self.held, "a name is held in one mode at a time")
            crowd = self.crowds[hold.name] = Crowd(hold.mode, hold.limit, {})
        crowd.holds[hold.fence] = session.shares[hold.fence, hold.name] = hold
        invariant(crowd.mode is hold.mode, "a name is held in one mode at a time")
        invariant(crowd.mode is Mode.SHARED or len(crowd.holds) <= crowd.limit, "permits stay within the limit")

    def take_out(self, session: Session, hold: Hold) -> None:
        """Take a name from a session."""
        if self.saving is not None:
            self.saving.keep_hold(hold)
        if hold.mode is Mode.EXCLUSIVE:
            name = hold.name
            del self.held.parts[hash(name) & MASK][name]
            del session.held[name]
        else:
            self._take_out_of_crowd(session, hold)
        if hold.until_at:
            self._drop_deadline(hold)
        if hold.meta:
            self.noted -= 1
        if self.usage is not None:
            self.usage.add_names(session.principal, (hold.name,), -1)

    def _take_out_of_crowd(self, session: Session, hold: Hold) -> None:
        crowd = self.crowds[hold.name]
        del crowd.holds[hold.fence]
        del session.shares[hold.fence, hold.name]
        if not crowd.holds:
            del self.crowds[hold.name]

    def _drop_deadline(self, hold: Hold) -> None:
        # What is due by now has been taken out of the deadlines already, or is about to be.
        if hold.until_at > self.now_at:
            self.holds_due.drop(hold.until_at, (hold.fence, hold.name))

    def move_end(self, session: Session, hold: Hold, until_at: int) -> None:
        """Let a hold end at another time, or, with 0, with its session."""
        if self.saving is not None:
            self.saving.keep_hold(hold)
        self._drop_deadline(hold)
        moved = replace(hold, until_at=until_at)
        # In its place: the holds of a crowd stay in the order of their fences.
        if hold.mode is Mode.EXCLUSIVE:
            self.held[hold.name] = session.held[hold.name] = moved
        else:
            self.crowds[hold.name].holds[hold.fence] = session.shares[hold.fence, hold.name] = moved
        if until_at:
            self.holds_due.add(until_at, (hold.fence, hold.name))

    def delay(self, hold: Hold) -> None:
        """Keep the name of a hold that ended uncleanly from being granted for a while."""
        self.delay_until(hold.name, self.now_at + hold.lock_delay_ms)

    def delay_until(self, name: str, until_at: int) -> None:
        """Keep a name from being granted before an instant."""
        other_at = self.delays.get(name, self.now_at)
        if until_at <= other_at:
            return
        if name in self.delays:
            self.delays_due.drop(other_at, name)
        self.delays[name] = until_at
        self.delays_due.add(until_at, name)

    def keep(self, kept: Kept) -> None:
        """Grant a name to nobody else before an instant, whatever becomes of its hold."""
        invariant(self.kept.setdefault(kept.name, kept) is kept, "a name that is kept is not granted")
        self.kept_due.add(kept.until_at, kept.name)

    def keep_no_longer(self, name: str, fence_max: int) -> Kept | None:
        """Let a name be granted before its time, if it is kept for a fence up to this one."""
        kept = self.kept.get(name)
        if kept is None or kept.fence > fence_max:
            return None
        self.kept_due.drop(kept.until_at, name)
        return self.kept.pop(name)

    def let_live(self, session: Session, until_at: int) -> None:
        """Let a session, new or known, end at an instant unless renewed."""
        self.sessions[session.id] = session
        self.sessions_until[session.id] = session.due_at = until_at
        self.sessions_due.add(until_at, session.id)

    def let_die(self, session: Session) -> None:
        """Forget a session that has nothing any more."""
        invariant(not session.size(), "a session that ends has nothing left")
        del self.sessions[session.id], self.sessions_until[session.id]
        if session.due_at != NOT_DUE:
            self.sessions_due.drop(session.due_at, session.id)
        if session.principal:
            self.owned -= 1
        if self.usage is not None:
            self.usage.add_session(session.principal, -1)
