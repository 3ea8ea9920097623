"""Outcomes: what became of a command, and what an entry caused besides.

Each command of an entry has one outcome, in the same order. What happens to others on the way (a waiter is
granted, a hold runs out, a session ends) is a *notice*: it names whom it concerns, so that the node can notify
them.

Refusals are outcomes, not exceptions: every replica must come to the same one, and so must a repetition.
"""

from enum import Enum
from typing import TypeAlias

from msgspec import Struct


class Reason(Enum):
    """What a release or an extension says of the hold it named."""

    OK = "ok"
    NOT_OWNER = "not_owner"
    """The hold is another session's, or the fence is from before this session or from the future."""
    ALREADY_RELEASED = "already_released"
    """The fence is of this session's time, and no hold on that name carries it any more."""
    EXPIRED = "expired"
    """The hold ran out, or an operator broke it, before this."""


class Code(Enum):
    """Why a command was refused as it stands."""

    USAGE = "usage"
    LIMIT = "limit"
    QUEUE_FULL = "queue_full"
    DENIED = "denied"
    """The policy does not allow it."""
    CONFLICT = "conflict"
    """The policy has changed since it was read."""
    MOVED = "moved"
    """The name is another shard's. The first word of the detail is its slot."""
    ELSEWHERE = "elsewhere"
    """The name is at home in another cell. The words of the detail are its name and its addresses."""
    MOVING = "moving"
    """The home of the name moves, and grants nothing at the moment. To retry soon helps."""
    SUSPENDED = "suspended"
    """The home of the name is not confirmed by another cell, and grants nothing until it is."""
    ARRIVING = "arriving"
    """The name is about to be this shard's, and is not granted yet. The first word of the detail is its slot."""


class Ending(Enum):
    """How a hold or a session came to its end."""

    RELEASED = "released"
    CLOSED = "closed"
    EXPIRED = "expired"
    BROKEN = "broken"
    REVOKED = "revoked"
    """The policy knows its principal no more, or has disabled it."""


class Opened(Struct, frozen=True, gc=False, array_like=True, tag="opened"):
    session: int
    at_ms: int
    ttl_ms: int
    grace_ms: int


class Closed(Struct, frozen=True, gc=False, array_like=True, tag="closed"):
    session: int


class NoSession(Struct, frozen=True, gc=False, array_like=True, tag="nosession"):
    """The session has ended, or never was: nothing it asks for can happen any more."""

    session: int
    ended: bool


class Renewed(Struct, frozen=True, gc=False, array_like=True, tag="renewed"):
    """All sessions named live on, but for those that had ended."""

    at_ms: int
    ended: tuple[int, ...] = ()


class Suspended(Struct, frozen=True, gc=False, array_like=True, tag="suspended"):
    session: int
    until_at: int


class Settled(Struct, frozen=True, gc=False, array_like=True, tag="settled"):
    session: int


class Granted(Struct, frozen=True, gc=False, array_like=True, tag="granted"):
    """All names asked for are held, each with this fence, greater than any granted before on any name."""

    session: int
    request: int
    names: tuple[str, ...]
    fence: int
    at_ms: int
    ttl_ms: int
    """0: the holds live as long as their session."""


class Queued(Struct, frozen=True, gc=False, array_like=True, tag="queued"):
    """The request waits; the ticket is its place, for ever. A notice with that ticket brings its end."""

    ticket: int
    ahead: int
    """How many are before it, in the longest of its queues."""


class Busy(Struct, frozen=True, gc=False, array_like=True, tag="busy"):
    """A try: the first of its names that was not available."""

    name: str


class TimedOut(Struct, frozen=True, gc=False, array_like=True, tag="timedout"):
    """The wait was over before the names were free."""

    names: tuple[str, ...]
    waited_ms: int


class Link(Struct, frozen=True, gc=False, array_like=True):
    """One step of a circle: the owner waits for `name`, which the next owner holds, or is queued before it for."""

    session: int
    owner: str
    name: str
    fence: int
    """Of the hold the next owner has; 0 if that owner is before this one in the queue."""
    since_at: int
    """When the next owner was granted the hold, or joined the queue."""


class Deadlock(Struct, frozen=True, gc=False, array_like=True, tag="deadlock"):
    """Waiting would have closed a circle: each link waits for the next, the last for the first.

    Of a long one the middle is left out; a link of no session and no name stands for it (see `deadlock`).
    """

    circle: tuple[Link, ...]


class ShardLink(Link, frozen=True, gc=False, array_like=True):
    """One step of a circle through several shards. Its `since_at` is on the clock of the shard that refuses."""

    shard: int = 0
    """Where this owner waits: its session, and the fence, are of that shard."""


class DeadlockAcross(Deadlock, frozen=True, gc=False, array_like=True, tag="deadlock_across"):
    """A circle through several shards, found while the request waited in one of them (see `wait_graph`)."""

    circle: tuple[ShardLink, ...]


class Cancelled(Struct, frozen=True, gc=False, array_like=True, tag="cancelled"):
    """The acquire is withdrawn: it holds nothing and never will."""

    request: int


class Released(Struct, frozen=True, gc=False, array_like=True, tag="released"):
    """What the release found. With several names, those that carried the fence are free in any case."""

    reason: Reason
    refused: tuple[str, ...] = ()
    """The names that did not carry the fence; `reason` is of the first of them."""


RELEASED = Released(Reason.OK)
"""What nearly all releases find."""


class Extended(Struct, frozen=True, gc=False, array_like=True, tag="extended"):
    """What the extension found. Unless `reason` is ok, nothing was extended."""

    reason: Reason
    until_at: int = 0


class Broken(Struct, frozen=True, gc=False, array_like=True, tag="broken"):
    """The fences that were ended, and the new one that no holder has: the minimum fence for guards."""

    name: str
    fence: int
    ended: tuple[int, ...]


class WaitRefused(Struct, frozen=True, gc=False, array_like=True, tag="waitrefused"):
    """The wait with this ticket was ended with a refusal; or it was over before, and nothing happened."""

    ticket: int
    waited: bool


class LimitsSet(Struct, frozen=True, gc=False, array_like=True, tag="limitsset"):
    pass


class PolicyChanged(Struct, frozen=True, gc=False, array_like=True, tag="policychanged"):
    """The policy from here on, and what its change ended in the same step."""

    revision: int
    sessions: int
    """That ended: their principals are no users any more, or are disabled."""
    waiters: int
    """That were refused: their principals may not acquire the names any more."""


class FenceRaised(Struct, frozen=True, gc=False, array_like=True, tag="fenceraised"):
    """Every fence granted from here on is greater than this."""

    fence: int


class Announced(Struct, frozen=True, gc=False, array_like=True, tag="announced"):
    """The state says who leads."""


class ShardFounded(Struct, frozen=True, gc=False, array_like=True, tag="shardfounded"):
    """The machine is this shard of so many."""

    shard: int
    shards: int


class MapTaken(Struct, frozen=True, gc=False, array_like=True, tag="maptaken"):
    """Slots are where this version of the map says; so many of this shard's are still on their way."""

    version: int
    closing: int
    """Slots that leave, and of which something is held, awaited or kept."""
    arriving: int
    """Slots that come, and were not opened yet."""


class SlotsSealed(Struct, frozen=True, gc=False, array_like=True, tag="slotssealed"):
    """How many slots were closed, and of how many something is left."""

    closed: int
    closing: int


class SlotsOpened(Struct, frozen=True, gc=False, array_like=True, tag="slotsopened"):
    """So many slots were opened; their names are granted here, each with a fence above this one."""

    slots: int
    fence: int


class SlotsForced(Struct, frozen=True, gc=False, array_like=True, tag="slotsforced"):
    """How many holds of closing slots were broken, and how many waiters were redirected."""

    holds: int
    waiters: int


class CellsApplied(Struct, frozen=True, gc=False, array_like=True, tag="cellsapplied"):
    """The map of cells has this version here."""

    version: int


class HomeClosing(Struct, frozen=True, gc=False, array_like=True, tag="homeclosing"):
    """No name of the prefix is granted here any more; so many are still held or kept."""

    prefix: str
    version: int
    to: str
    names: int


class HomeClosed(Struct, frozen=True, gc=False, array_like=True, tag="homeclosed"):
    """Nothing of the prefix is left here, and no fence of its names was ever above this one."""

    prefix: str
    version: int
    to: str
    fence: int
    map_version: int


class HomeOpened(Struct, frozen=True, gc=False, array_like=True, tag="homeopened"):
    """The names of the prefix are granted here, each with a fence above this one."""

    prefix: str
    version: int
    fence: int


class HomesLapsed(Struct, frozen=True, gc=False, array_like=True, tag="homeslapsed"):
    """So many sessions, which held something of these homes, were ended."""

    sessions: int


class HomesResumed(Struct, frozen=True, gc=False, array_like=True, tag="homesresumed"):
    """So many homes grant again."""

    homes: int


class Refused(Struct, frozen=True, gc=False, array_like=True, tag="refused"):
    """The command is refused as it stands. Nothing changed."""

    code: Code
    detail: str


Answer: TypeAlias = (
    Granted | Busy | TimedOut | Deadlock | DeadlockAcross | Cancelled | Released | Extended | Refused
)
"""What a request can end with, and what is remembered for its repetition."""

Outcome: TypeAlias = (
    Answer
    | Queued
    | Opened
    | Closed
    | NoSession
    | Renewed
    | Suspended
    | Settled
    | Broken
    | WaitRefused
    | LimitsSet
    | PolicyChanged
    | FenceRaised
    | Announced
    | ShardFounded
    | CellsApplied
    | HomeClosing
    | HomeClosed
    | HomeOpened
    | HomesLapsed
    | HomesResumed
    | MapTaken
    | SlotsSealed
    | SlotsOpened
    | SlotsForced
)


class WaitEnded(Struct, frozen=True, gc=False, array_like=True, tag="waitended"):
    """The wait with this ticket came to its end: the request's final answer."""

    ticket: int
    session: int
    request: int
    owner: str
    answer: Granted | TimedOut | Cancelled | Refused | DeadlockAcross
    names: tuple[str, ...] = ()
    mode: str = ""
    waited_ms: int = 0
    meta: str = ""
    """What was given with the acquire. These four are for observers."""


class HoldEnded(Struct, frozen=True, gc=False, array_like=True, tag="holdended"):
    """A hold ended other than by a release, though its session lives on."""

    session: int
    owner: str
    name: str
    fence: int
    ending: Ending
    by: str = ""
    """Who broke it, as a session's `meta` says it."""
    delay_ms: int = 0
    """The lock-delay that was requested: for so long the name is not granted."""


class SessionEnded(Struct, frozen=True, gc=False, array_like=True, tag="sessionended"):
    """A session ended whole: what it held is free, what it waited for is withdrawn, in this one step."""

    session: int
    ending: Ending
    holds: tuple[tuple[str, int], ...]
    """Name and fence of each."""
    tickets: tuple[int, ...]
    meta: str = ""
    """What its client said of itself: the machine forgets it with this notice."""
    principal: str = ""
    owners: tuple[str, ...] = ()
    """Of each hold."""
    delays_ms: tuple[int, ...] = ()
    """The lock-delay of each hold; empty after a clean end."""


Notice: TypeAlias = WaitEnded | HoldEnded | SessionEnded


class Applied(Struct, frozen=True, gc=False):
    """What one entry did."""

    position: int
    at_ms: int
    """Logical time after the entry: answers carry it, so that a client can place a grant on its own clock."""
    outcomes: list[Outcome]
    """One per command, in order."""
    notices: list[tuple[int, Notice]]
    """What it caused besides, in order, each with the index of its command; -1 is the passing of time."""
    repeated: list[int]
    """Commands, by index, that were answered from memory: nothing happened again."""
    unix_ms: int | None = None
    """The time of day at `at_ms`, for people; None: not known."""
