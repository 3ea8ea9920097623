"""The lock machine: entries in, outcomes out. The laws it keeps, at every position:

1.  *The machine is fed.* All that decides an outcome is in the entries and in the state they made. The same
    entries make the same state, to the byte (G12).
2.  *Entries come in order, without gaps.* Each is applied whole: time first, then its commands one by one.
3.  *Time is what entries say has elapsed*, capped: a leader that was paused does not expire the world, and time
    without a leader does not count. All that is due ends before anything is granted. The time of day is kept
    beside it for people to read, and decides nothing.
4.  *Fences only grow* (G1). One counter for all names; each grant takes the next number, a break skips one, a
    restore skips more than were lost. It is part of the state, so no restart, snapshot or trim takes it back.
5.  *A name has one exclusive hold, or shared holds only, or at most its limit of permits* (G2).
6.  *First come, first served* (G4): by ticket, on every name. No one is granted past a waiter.
7.  *Only the owner releases* (G5): by session and fence. A stale fence changes nothing and is told why.
8.  *A session dies whole* (G6), in one step. An ended session is in no table, so nothing can be granted to it.
9.  *All or nothing* (G8): several names are granted in one step, and a waiter holds nothing.
10. *Every request ends, once* (G9); asked again, it is answered the same.
11. *Free names cost nothing* (G11): every table follows what is held, awaited or alive.
12. *A name asked for with a least time is not granted again before that has passed*, counted from its grant,
    however the hold ends: by release, by expiry, with its session. An operator's break alone ends it earlier. The
    last holder is no exception: its run was done.
13. *Nothing is granted that the policy at that position forbids* (G13). Where there is none, all is allowed.
14. *A name is granted by its shard alone*. Where there are several, each machine knows its own slots. One that
    moves is closed to newcomers, drained in the order of its queues, and opened above every fence its names ever
    had: no two machines grant it, no waiter is overtaken, and no fence of it goes back.
15. *A name is granted by its home cell alone*, in the same way, where there are several (`cells`).

Where each law lives: `sessions` (time, sessions), `anchors` (the time of day), `grants` (12), `queues` (6, 9),
`acquire`, `release` (7), `requests` (10), `rights`, `policy_change` (13), `shards`, `slot_moves` (14), `cells`,
`home_moves` (15), `quotas`, `deadlock`, `wait_graph`, `state` (the tables, 5), `snapshot`.
"""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import astuple

from fencehold.core.acquire import acquire, cancel, refuse_wait
from fencehold.core.commands import (
    Acquire,
    AcquireAtLeast,
    Announce,
    ApplyCells,
    Break,
    BreakAs,
    Cancel,
    ChangeMap,
    ChangePolicy,
    CloseHome,
    CloseSession,
    Entry,
    Extend,
    FollowMap,
    FollowPolicy,
    ForceSlots,
    FoundShard,
    LapseHomes,
    OpenHome,
    OpenSession,
    OpenSessionAs,
    OpenSessionBy,
    OpenSlots,
    RaiseFence,
    Refuse,
    RefuseWait,
    Release,
    Renew,
    ResumeHomes,
    SealHome,
    SealSlots,
    SetLimits,
    Settle,
    Suspend,
)
from fencehold.core.grants import raise_fence
from fencehold.core.home_moves import (
    apply_cells,
    close_home,
    lapse_homes,
    open_home,
    resume_homes,
    seal_home,
)
from fencehold.core.invariants import invariant
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Announced, Applied, Code, LimitsSet, Outcome, Refused
from fencehold.core.policy_change import change_policy, follow_policy
from fencehold.core.refusals import refuse
from fencehold.core.release import break_holds, extend, release
from fencehold.core.requests import once, settle
from fencehold.core.sessions import close_session, open_session, pass_time, renew, suspend
from fencehold.core.shards import found_shard
from fencehold.core.slot_moves import change_map, follow_map, force_slots, open_slots, seal_slots
from fencehold.core.snapshot import Snapshot, read, state_hash
from fencehold.core.state import State


def _set_limits(state: State, command: SetLimits) -> LimitsSet | Refused:
    if any(limit < 1 for limit in astuple(command.limits)):
        return Refused(Code.USAGE, "every limit is at least 1")
    state.limits = command.limits
    return LimitsSet()


def _announce(state: State, command: Announce) -> Announced:
    state.leader, state.leader_address = command.node, command.address
    return Announced()


# `Any`: each function takes the one command it is filed under, which a dictionary cannot say.
_REQUESTS: Final[dict[type, Callable[[State, Any, Any], Any]]] = {
    Acquire: acquire,
    AcquireAtLeast: acquire,
    Release: release,
    Extend: extend,
    Refuse: refuse,
}
_COMMANDS: Final[dict[type, Callable[[State, Any], Outcome]]] = {
    Cancel: cancel,
    RefuseWait: refuse_wait,
    OpenSession: open_session,
    OpenSessionAs: open_session,
    OpenSessionBy: open_session,
    CloseSession: close_session,
    Renew: renew,
    Suspend: suspend,
    Settle: settle,
    Break: break_holds,
    BreakAs: break_holds,
    ChangePolicy: change_policy,
    FollowPolicy: follow_policy,
    SetLimits: _set_limits,
    RaiseFence: raise_fence,
    Announce: _announce,
    FoundShard: found_shard,
    ChangeMap: change_map,
    FollowMap: follow_map,
    SealSlots: seal_slots,
    OpenSlots: open_slots,
    ForceSlots: force_slots,
    ApplyCells: apply_cells,
    CloseHome: close_home,
    SealHome: seal_home,
    OpenHome: open_home,
    LapseHomes: lapse_homes,
    ResumeHomes: resume_homes,
}


class Machine:
    """One replica of the lock state. Not thread-safe; owned by its one caller."""

    __slots__ = ("state",)

    def __init__(self, limits: Limits | None = None) -> None:
        self.state = State(limits)

    @property
    def position(self) -> int:
        """The position of the last entry applied."""
        return self.state.position

    @property
    def now_at(self) -> int:
        """Logical time, in milliseconds since the first entry."""
        return self.state.now_at

    @property
    def fence(self) -> int:
        """The greatest fence given out so far."""
        return self.state.fence

    def apply(self, position: int, entry: Entry) -> Applied:
        """Apply the entry at the next position, and say what it did."""
        state = self.state
        if position != state.position + 1:
            invariant(False, "entries come in order, without gaps")
        state.position = position
        outcomes = state.outcomes = []
        state.notices = []
        state.repeated = []
        state.ticking = -1
        pass_time(state, entry.elapsed_ms, entry.unix_ms)
        state.ticking = 0
        for command in entry.commands:
            kind = type(command)
            act = _REQUESTS.get(kind)
            if act is not None:
                outcomes.append(once(state, command, act))  # type: ignore[type-var]
            else:
                outcomes.append(_COMMANDS[kind](state, command))
        anchors, now_at = state.anchors, state.now_at
        unix_ms = now_at + anchors[-1].offset_ms if anchors else None
        return Applied(position, now_at, outcomes, state.notices, state.repeated, unix_ms)

    def snapshot(self) -> Snapshot:
        """The state as of now, in chunks. Entries may be applied between drawing one and the next.

        One snapshot is taken at a time; it must be drawn to its end or closed; either ends what it costs.
        """
        return Snapshot(self.state)

    @classmethod
    def restore(cls, data: bytes) -> "Machine":
        """The machine that a snapshot was taken of.

        Raises:
            SnapshotUnreadable: not a whole snapshot, or of a version not known here.
        """
        machine = cls()
        machine.state = read(data)
        return machine

    def state_hash(self) -> str:
        """Equal on replicas that applied the same entries, and on no others."""
        return state_hash(self.state)
