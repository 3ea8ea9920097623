"""Commands: all that may be journaled, and the entry that carries them.

A command is an imperative: a request; the machine decides when the entry that carries it is applied. Everything
that decides an outcome is in the entry or in the state, so every replica decides alike.

Requests (`Acquire`, `Release`, `Extend`) name the session and a request id. Ids grow within a session and are
its memory of what was asked: a repeated id is answered as the first time (requests are idempotent). Id 0 asks
for no such memory; a client that cannot repeat a request needs none.
"""

from enum import Enum
from typing import Final, TypeAlias

from msgspec import Struct

from fencehold.core.limits import Limits
from fencehold.core.outcomes import Busy, DeadlockAcross, Refused
from fencehold.core.policy import Policy, PolicyChange
from fencehold.placement.cells import CellMap
from fencehold.placement.map import ShardMap

FOREVER: Final = -1
"""`wait_ms` of a request that waits without limit."""


class Mode(Enum):
    """How a name is held."""

    EXCLUSIVE = "X"
    SHARED = "S"
    PERMIT = "P"


class OpenSession(Struct, frozen=True, gc=False, array_like=True, tag="open"):
    """Begin a session that lives `ttl_ms` after each renewal, and `grace_ms` after its connection was lost."""

    ttl_ms: int
    grace_ms: int = 0
    secret: str = ""
    """What a client must show to take the session up again on another connection. Opaque here."""
    meta: str = ""


class OpenSessionAs(OpenSession, frozen=True, gc=False, array_like=True, tag="open_as"):
    """Begin a session of a principal, with that principal's rights.

    A command of its own, as the next ones are: a node that knows of no principals must refuse the entry, where it
    would read past an unknown field and let the session do anything.
    """

    principal: str = ""


class OpenSessionBy(OpenSessionAs, frozen=True, gc=False, array_like=True, tag="open_by"):
    """Begin a session of a principal that authenticated with a token of the policy: it ends with the token."""

    token: str = ""
    """The id of the token (`policy.token_id`)."""


class CloseSession(Struct, frozen=True, gc=False, array_like=True, tag="close"):
    """End a session cleanly: all it holds is free at once, without lock-delay."""

    session: int


class Renew(Struct, frozen=True, gc=False, array_like=True, tag="renew"):
    """Sessions with a keep-alive since the last entry. One command for all of them."""

    sessions: tuple[int, ...]


class Suspend(Struct, frozen=True, gc=False, array_like=True, tag="suspend"):
    """The session's connection is gone: unless it is renewed within its grace, it ends."""

    session: int


class Settle(Struct, frozen=True, gc=False, array_like=True, tag="settle"):
    """The final answers of these requests, which had waited, have arrived: they need not be remembered."""

    session: int
    requests: tuple[int, ...]


class Acquire(Struct, frozen=True, gc=False, array_like=True, tag="acquire"):
    """Ask for one name, or for several at once: all or nothing, granted in one step with one fence."""

    session: int
    names: tuple[str, ...]
    request: int = 0
    answered: int = 0
    """Direct answers to all requests up to this id have arrived: they need not be remembered."""
    owner: str = ""
    """The task or thread inside the session that asks. Owners exclude each other as sessions do; "" is unknown,
    and takes no part in deadlock detection."""
    mode: Mode = Mode.EXCLUSIVE
    limit: int = 0
    """Permits of the semaphore; 0 in the other modes."""
    wait_ms: int = FOREVER
    """0 is a try: it never queues."""
    ttl_ms: int = 0
    """0: the hold lives as long as its session. Otherwise it ends that long after the grant unless extended."""
    lock_delay_ms: int = 0
    """After an unclean end of the hold, the name stays ungranted that long."""
    meta: str = ""


class AcquireAtLeast(Acquire, frozen=True, gc=False, array_like=True, tag="acquire_at_least"):
    """An acquire whose names are not granted again for a least time, however the hold ends.

    A command of its own, not a field of `Acquire`: a node that does not know it must refuse the entry, where it
    would read past an unknown field and grant the name again early.
    """

    at_least_ms: int = 0
    """Counted from the grant."""


class Cancel(Struct, frozen=True, gc=False, array_like=True, tag="cancel"):
    """Withdraw an acquire, whatever became of it: still in flight, queued or already granted."""

    session: int
    request: int


class Release(Struct, frozen=True, gc=False, array_like=True, tag="release"):
    """Release the holds that carry this fence on these names. Only the owner can."""

    session: int
    names: tuple[str, ...]
    fence: int
    request: int = 0
    answered: int = 0


class Extend(Struct, frozen=True, gc=False, array_like=True, tag="extend"):
    """Let the holds end `ttl_ms` from now, or with their session if that is 0. Only the owner can."""

    session: int
    names: tuple[str, ...]
    fence: int
    ttl_ms: int
    request: int = 0
    answered: int = 0


class Break(Struct, frozen=True, gc=False, array_like=True, tag="break"):
    """By an operator: end every hold on a name whose fence is not above `fence` (0: whatever holds it now).

    Naming the fence that was seen makes a repeated break harmless: it cannot hit the next holder.
    """

    name: str
    fence: int = 0
    by: str = ""
    """Who broke it, as a session's `meta` says it. The holder is told; no outcome depends on it."""


class BreakAs(Break, frozen=True, gc=False, array_like=True, tag="break_as"):
    """A break by a principal, whose rights are checked."""

    principal: str = ""


class ChangePolicy(Struct, frozen=True, gc=False, array_like=True, tag="policy"):
    """Change who may do what, if the policy still has the revision that the change was made for."""

    revision: int
    change: PolicyChange
    principal: str = ""
    """Who changes it: an administrator, by the policy as it is. While there is none, any client."""


class FollowPolicy(Struct, frozen=True, gc=False, array_like=True, tag="follow_policy"):
    """The policy of the machine beside this one, as far as it is about its tier; or that of the first shard."""

    policy: Policy


class Refuse(Struct, frozen=True, gc=False, array_like=True, tag="refuse"):
    """In place of a request that the state refused: its refusal, without what it asked for.

    A leader writes it, never a client (see `refusals`).
    """

    session: int
    request: int
    answered: int
    answer: Busy | Refused


class RefuseWait(Struct, frozen=True, gc=False, array_like=True, tag="refuse_wait"):
    """End a wait that is part of a circle through several shards. A leader writes it, never a client.

    If it does not wait any more, nothing happens: a ticket is given once.
    """

    ticket: int
    answer: DeadlockAcross


class SetLimits(Struct, frozen=True, gc=False, array_like=True, tag="limits"):
    """Replace the limits. They decide outcomes, so they are state: each replica must refuse alike."""

    limits: Limits


class RaiseFence(Struct, frozen=True, gc=False, array_like=True, tag="fence"):
    """After a restore: let every fence from here on be above `at_least`. The counter never goes down by it."""

    at_least: int


class Announce(Struct, frozen=True, gc=False, array_like=True, tag="announce"):
    """The first command of a leader: who leads from here on, and where clients find it."""

    node: str
    address: str


class FoundShard(Struct, frozen=True, gc=False, array_like=True, tag="shard"):
    """The first command of all, where there are several shards: which one this machine is, for ever."""

    shard: int
    shards: int


class ChangeMap(Struct, frozen=True, gc=False, array_like=True, tag="change_map"):
    """Assign slots to other shards, by a map derived from the one known here. Sent to the first shard."""

    placed: ShardMap
    principal: str = ""
    """Who changes it: an administrator, by the policy as it is. While there is none, any client."""


class FollowMap(Struct, frozen=True, gc=False, array_like=True, tag="follow_map"):
    """The map that another shard has taken. A leader writes it, never a client."""

    placed: ShardMap


class SealSlots(Struct, frozen=True, gc=False, array_like=True, tag="seal_slots"):
    """Close the closing slots of which nothing is left. A leader writes it when it sees that there are some."""


class OpenSlots(Struct, frozen=True, gc=False, array_like=True, tag="open_slots"):
    """Grant the names of slots that were closed where they came from, each with a fence above this one."""

    slots: tuple[int, ...]
    fence: int
    version: int
    """Of the map by which they were closed: slots that arrive by another are not opened."""


class ForceSlots(Struct, frozen=True, gc=False, array_like=True, tag="force_slots"):
    """By an operator: break what is held of closing slots, and redirect its waiters."""

    by: str = ""
    """Who broke it, as a session's `meta` says it."""
    principal: str = ""


class ApplyCells(Struct, frozen=True, gc=False, array_like=True, tag="cells"):
    """Take a newer map of prefixes to cells; the first one says which cell this is, for ever."""

    map: CellMap
    cell: str


class CloseHome(Struct, frozen=True, gc=False, array_like=True, tag="close_home"):
    """Grant no name of a prefix any more: another cell is to be its home. Waiters are redirected there."""

    prefix: str
    to: str
    version: int
    """What is not newer than what is known of the prefix changes nothing."""


class SealHome(Struct, frozen=True, gc=False, array_like=True, tag="seal_home"):
    """Say above which fence a closed prefix may be opened elsewhere, if nothing of it is held or kept any more."""

    prefix: str
    version: int
    force: bool = False
    """End the sessions that hold something of it first."""


class OpenHome(Struct, frozen=True, gc=False, array_like=True, tag="open_home"):
    """Grant the names of a prefix from here on, above a fence."""

    prefix: str
    fence: int
    version: int
    map_version: int
    """Of the map where it was sealed: the one here must be as new, to know all prefixes within."""


class LapseHomes(Struct, frozen=True, gc=False, array_like=True, tag="lapse_homes"):
    """Homes that no other cell confirms: end the sessions that hold any of their names, and grant nothing."""

    prefixes: tuple[str, ...] = ()
    """None: all that are open here, leased or not, as after a restore."""


class ResumeHomes(Struct, frozen=True, gc=False, array_like=True, tag="resume_homes"):
    """These homes were confirmed, each with the version that was confirmed."""

    homes: tuple[tuple[str, int], ...]


AnyAcquire: TypeAlias = Acquire | AcquireAtLeast
Request: TypeAlias = AnyAcquire | Release | Extend | Refuse
Living: TypeAlias = OpenSession | OpenSessionAs | OpenSessionBy | CloseSession | Renew | Suspend
Ruling: TypeAlias = SetLimits | ChangePolicy | FollowPolicy
Placing: TypeAlias = FoundShard | ChangeMap | FollowMap | SealSlots | OpenSlots | ForceSlots
Homing: TypeAlias = ApplyCells | CloseHome | SealHome | OpenHome | LapseHomes | ResumeHomes
Command: TypeAlias = (
    Request
    | Cancel
    | Living
    | Settle
    | Break
    | BreakAs
    | RefuseWait
    | Ruling
    | RaiseFence
    | Announce
    | Placing
    | Homing
)


class Entry(Struct, frozen=True, gc=False, array_like=True):
    """One journaled batch: time first, then the commands in order. Without commands it is a tick."""

    elapsed_ms: int
    """The leader's monotonic time since its previous entry."""
    commands: tuple[Command, ...] = ()
    unix_ms: int = 0
    """The leader's time of day, where an anchor is due (see `anchors`); 0: none. For people only: no outcome
    depends on it."""
