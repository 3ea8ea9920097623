"""State: all that the machine remembers, and the only functions that change the holders of names.

Every table follows what is held, awaited or alive now; a name that is neither held, awaited, delayed nor kept
appears nowhere (G11). A name stands in at most one of `held` and `crowds` (G2).

Holds and waiters are values: to change one is to put another in its place. That is what lets a snapshot be taken
in slices while the machine goes on: code about to change what a session has calls `touch` first, and
`take_out` keeps what it takes out, for the snapshot under way, if there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fencehold.core.commands import Mode
from fencehold.core.deadlines import Deadlines
from fencehold.core.holds import FRESH_MAX, MASK, Holds
from fencehold.core.invariants import invariant
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Notice, Outcome
from fencehold.core.policy import NO_POLICY, Policy
from fencehold.core.records import (
    NOT_DUE,
    Anchor,
    CellState,
    Crowd,
    Hold,
    Home,
    HomeRecord,
    Kept,
    OwnerKey,
    Queue,
    Session,
    SlotMove,
    Stage,
    Waiter,
)

if TYPE_CHECKING:
    from fencehold.core.quotas import Usage
    from fencehold.core.rulebook import Rulebook
    from fencehold.core.snapshot_slices import Saving
    from fencehold.placement.map import ShardMap

__all__ = [
    "NOT_DUE",
    "Anchor",
    "CellState",
    "Crowd",
    "Hold",
    "Home",
    "HomeRecord",
    "Kept",
    "OwnerKey",
    "Queue",
    "Session",
    "SlotMove",
    "Stage",
    "State",
    "Waiter",
]


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
        """The closing slots, and the names they had when last looked at: they only get fewer. Derived."""
        self.steps = 0
        """Counts changes of slots, for watchers of the map. Derived."""
        self.arriving: dict[int, None] = {}
        """The slots that arrive. Derived."""
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
        """How many sessions have a principal."""
        self.noted = 0
        """How many holds have metadata."""
        self.policy: Policy = NO_POLICY
        self.rulebook: Rulebook | None = None
        """The policy compiled; None while there is none, and every client may do everything."""
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
        """Whether the name, leaving its queue aside, could be granted in this mode now."""
        if name in self.held or name in self.delays or name in self.kept:
            return False
        crowd = self.crowds.get(name)
        return crowd is None or (crowd.mode is mode and crowd.has_room())

    def holders(self, name: str) -> list[Hold]:
        """The holds of a name, by fence."""
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
            # One look-up both checks that the name is free and grants it.
            if self.held.parts[hash(name) & MASK].setdefault(name, hold) is not hold:
                invariant(False, "an exclusive name has one hold")
            if len(session.fresh) >= FRESH_MAX:
                session.settle()
            session.fresh[name] = hold
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
            if session.fresh.pop(name, None) is None:
                del session.settled[name]
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
            table = session.fresh if hold.name in session.fresh else session.settled
            self.held[hold.name] = table[hold.name] = moved
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
        """Grant a name to no other session before an instant, whatever becomes of its hold."""
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
