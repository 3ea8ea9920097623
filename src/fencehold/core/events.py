"""Events: what happened, in order, for observers: watchers, sinks, metrics, the history of holds.

They are derived from an entry and what it did, outside the machine: an observer costs the machine nothing.

1. Every event has a place: the position of its entry, and its index in it. Any replica that has the entry reports
   the same event at the same place: a leader from what it appended, a standby from what it followed, a node that
   was started again from what its journal still has.
2. So an event is made of nothing that the journal does not have: of a refused request it shows no more than the
   refusal says, for a long one is journaled as that alone (`refusals`).
3. An index counts what may have happened in an entry, reported or not: it has gaps, and gives only the order.
"""

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from fencehold.core.commands import (
    Acquire,
    AcquireAtLeast,
    Announce,
    Break,
    BreakAs,
    ChangeMap,
    ChangePolicy,
    CloseHome,
    Command,
    Entry,
    Extend,
    ForceSlots,
    LapseHomes,
    Refuse,
    Release,
    ResumeHomes,
)
from fencehold.core.outcomes import (
    Announced,
    Applied,
    Broken,
    Busy,
    CellsApplied,
    Code,
    Deadlock,
    Ending,
    Extended,
    FenceRaised,
    Granted,
    HoldEnded,
    HomeClosed,
    HomeClosing,
    HomeOpened,
    HomesLapsed,
    HomesResumed,
    LimitsSet,
    MapTaken,
    Notice,
    Opened,
    Outcome,
    PolicyChanged,
    Queued,
    Reason,
    Refused,
    Released,
    SessionEnded,
    SlotsForced,
    SlotsOpened,
    SlotsSealed,
    Suspended,
    TimedOut,
    WaitEnded,
)

Wanted = TypeVar("Wanted")


class Who(NamedTuple):
    """Whose session it is."""

    meta: str = ""
    """What the client said of itself when it opened the session."""
    principal: str = ""


NOBODY = Who()
WhoOf: TypeAlias = Callable[[int], Who]
"""Whose a session is, which may have ended since."""

_NAMES_PER_STEP = 256


class Kind(Enum):
    """What happened, in the past tense."""

    OPENED = "opened"
    """A session was opened."""
    ACQUIRED = "acquired"
    """Names were acquired, at once or after a wait."""
    QUEUED = "queued"
    """A request has to wait."""
    BUSY = "busy"
    """A try found a name that was not available."""
    REFUSED = "refused"
    """A request was refused: a limit, a quota, a full queue, or a missing right."""
    EXTENDED = "extended"
    """A hold ends later, or sooner, than it would have."""
    RELEASED = "released"
    """A hold was released."""
    EXPIRED = "expired"
    """A hold ran out, or its session did."""
    BROKEN = "broken"
    """A hold was force-released by an operator."""
    FENCE_RAISED = "fence_raised"
    """The fence moved on without a grant: by a force-release, of a name, or after a restore."""
    TIMED_OUT = "timed_out"
    """A wait was over before the names were free."""
    CANCELLED = "cancelled"
    """A request was withdrawn."""
    DENIED = "denied"
    """A wait ended because the right to acquire was taken away."""
    TURNED_AWAY = "turned_away"
    """A wait ended because its names are not granted here any more: they move away, or their home has lapsed."""
    REVOKED = "revoked"
    """A hold ended with its session, whose principal is no user any more."""
    DEADLOCK = "deadlock"
    """A request was refused because its wait would have closed a circle."""
    SUSPENDED = "suspended"
    """The connection of a session was lost: unless it comes back within the reconnect window, the session ends."""
    SESSION_ENDED = "session_ended"
    """A session ended, and with it all it held and waited for."""
    POLICY_CHANGED = "policy_changed"
    """The policy was changed."""
    LIMITS_SET = "limits_set"
    """The limits of the service were changed."""
    ANNOUNCED = "announced"
    """A node leads from here on."""
    MAP_CHANGED = "map_changed"
    """Slots belong to other shards, or prefixes to other cells: a newer map was taken here."""
    SLOTS_CLOSED = "slots_closed"
    """Slots that leave this shard were closed: nothing of them is left here."""
    SLOTS_OPENED = "slots_opened"
    """Slots that came to this shard were opened: their names are granted here, above this fence."""
    SLOTS_FORCED = "slots_forced"
    """What was held of slots that leave this shard was force-released by an operator."""
    HOME_CLOSING = "home_closing"
    """The names of a prefix are not granted in this cell any more, and what is held of them drains."""
    HOME_CLOSED = "home_closed"
    """Nothing of a prefix is left in this cell: another may grant its names, above this fence."""
    HOME_OPENED = "home_opened"
    """The names of a prefix are granted in this cell, above this fence."""
    HOMES_LAPSED = "homes_lapsed"
    """Homes of this cell are not confirmed by another one: nothing of them is granted, and holders were ended."""
    HOMES_RESUMED = "homes_resumed"
    """Homes of this cell were confirmed, and their names are granted again."""


class Event(Struct, frozen=True, gc=False):
    """One thing that happened. Fields that do not apply are empty."""

    kind: Kind
    position: int
    at_ms: int
    session: int = 0
    owner: str = ""
    names: tuple[str, ...] = ()
    fence: int = 0
    detail: str = ""
    by: str = ""
    """Who broke a hold, as a session's `meta` says it."""
    mode: str = ""
    """How names were acquired or asked for: X exclusive, S shared, P a permit."""
    meta: str = ""
    """What was given with the acquire."""
    unix_ms: int | None = None
    """The time of day; None: not known."""
    session_meta: str = ""
    """What the client of the session said of itself when it opened it."""
    principal: str = ""
    """Whose session it is; of a change of the policy and a force-release, who made it."""
    index: int = 0
    """Where in its entry it is, from 1."""


_ENDINGS = {
    Ending.RELEASED: Kind.RELEASED,
    Ending.CLOSED: Kind.RELEASED,
    Ending.EXPIRED: Kind.EXPIRED,
    Ending.BROKEN: Kind.BROKEN,
    Ending.REVOKED: Kind.REVOKED,
}


def events_of(entry: Entry, applied: Applied, who_of: WhoOf = lambda _: NOBODY) -> Iterator[Event]:
    """What an entry made happen: first by time, then by each command, the cause before what it caused.

    `who_of` says whose a session is, which may have ended since.
    """
    for _, _, event in scan(entry, applied, lambda _: True, who_of):
        if event is not None:
            yield event


def scan(
    entry: Entry,
    applied: Applied,
    seek: Callable[[tuple[str, ...]], Wanted],
    who_of: WhoOf = lambda _: NOBODY,
    after: int = 0,
) -> Iterator[tuple[int, Wanted | None, Event | None]]:
    """As `events_of`, but only of what is wanted: `seek` says, by its names, who wants a thing.

    What is not wanted costs that call and nothing else. Each event comes with what `seek` said, and a number:
    numbers count what may have happened in an entry, wanted or not, so that a position and a number say where in
    history an event is, the same at every reading: the number is the event's index. With `after`, only what
    follows that number is scanned.

    After some `_NAMES_PER_STEP` names a number comes without an event: up to there nothing more was wanted, and
    the reader may pause.
    """
    repeated = frozenset(applied.repeated)
    notices = deque(applied.notices)
    number = names_asked = 0
    for index, command in enumerate((None, *entry.commands), -1):
        if command is not None:
            number += 1
            outcome = applied.outcomes[index]
            names = _names_of(command, outcome)
            if names is not None and number > after and index not in repeated:
                names_asked += len(names)
                found = seek(names)
                if found:
                    yield number, found, _event(applied, _of_outcome(command, outcome, names), who_of, number)
            names_asked += 1
            if names_asked >= _NAMES_PER_STEP:
                yield number, None, None
                names_asked = 0
        while notices and notices[0][0] <= index:
            for thing in _of_notice(notices.popleft()[1]):
                number += 1
                if number > after and (found := seek(thing.names)):
                    yield number, found, _event(applied, thing, who_of, number)
                names_asked += len(thing.names) + 1
                if names_asked >= _NAMES_PER_STEP:
                    yield number, None, None
                    names_asked = 0


class _Thing(NamedTuple):
    """What of an event does not depend on its entry."""

    kind: Kind
    session: int
    owner: str = ""
    names: tuple[str, ...] = ()
    fence: int = 0
    detail: str = ""
    by: str = ""
    mode: str = ""
    meta: str = ""
    principal: str = ""
    """Of the one that did it without a session."""


def _event(applied: Applied, thing: _Thing, who_of: WhoOf, number: int) -> Event:
    meta, principal = who_of(thing.session) if thing.session else NOBODY
    who = (applied.unix_ms, meta, thing.principal or principal, number)
    return Event(thing.kind, applied.position, applied.at_ms, *thing[1:9], *who)


_ASKED_BY: dict[type[Outcome], type[Command]] = {
    Granted: Acquire,
    Queued: Acquire,
    Deadlock: Acquire,
    Released: Release,
    Extended: Extend,
}
"""Which outcomes make an event of which command, with its names."""

_NAMELESS: frozenset[type[Outcome]] = frozenset(
    {
        Opened,
        Suspended,
        PolicyChanged,
        LimitsSet,
        FenceRaised,
        Announced,
        MapTaken,
        SlotsForced,
        CellsApplied,
        HomeClosed,
        HomeOpened,
        HomesLapsed,
    }
)
"""Outcomes that make an event without names, of any command."""
_NAMELESS_IF_ANY: frozenset[type[Outcome]] = frozenset({SlotsSealed, SlotsOpened, HomesResumed, HomeClosing})
"""Likewise, unless they say that nothing is different from before."""


def _names_of(command: Command, outcome: Outcome) -> tuple[str, ...] | None:
    """The names an outcome happened to; None: it makes no event."""
    kind = type(outcome)
    asked_by = _ASKED_BY.get(kind)
    if asked_by is None:
        return _names_of_others(command, outcome)
    if not isinstance(command, asked_by):
        return None
    names: tuple[str, ...] = command.names  # type: ignore[union-attr]
    if type(outcome) is Released and outcome.refused:
        return tuple(name for name in names if name not in outcome.refused) or None
    return None if type(outcome) is Extended and outcome.reason is not Reason.OK else names


def _names_of_others(command: Command, outcome: Outcome) -> tuple[str, ...] | None:
    match outcome:
        case Busy(name=name):
            return (name,)
        case Broken(name=name):
            return (name,)
        case Refused():
            return () if isinstance(command, Acquire | Release | Extend | Refuse) else None
        case _:
            kind = type(outcome)
            is_told = kind in _NAMELESS or (kind in _NAMELESS_IF_ANY and _is_any(command, outcome))
            return () if is_told else None


def _is_any(command: Command, outcome: Outcome) -> bool:
    """Whether slots or homes are not as they were."""
    match outcome:
        case SlotsSealed(closed=0) | SlotsOpened(slots=0) | HomesResumed(homes=0):
            return False
        case HomeClosing():
            # Sealing is retried until nothing is left: the event is for the moment when closing begins.
            return isinstance(command, CloseHome)
        case _:
            return True


def _of_outcome(command: Command, outcome: Outcome, names: tuple[str, ...]) -> _Thing:
    match command, outcome:
        case Acquire(), Granted():
            return _asked(Kind.ACQUIRED, command, outcome.fence, _kept(command))
        case Acquire(), Queued():
            return _asked(Kind.QUEUED, command, detail=f"ahead {outcome.ahead}")
        case Acquire(), Deadlock():
            return _asked(Kind.DEADLOCK, command)
        case Release(), Released():
            return _Thing(Kind.RELEASED, command.session, names=names, fence=command.fence)
        case Extend(), Extended():
            return _Thing(Kind.EXTENDED, command.session, names=names, fence=command.fence)
        case ((Acquire() | Refuse()), Busy()):
            return _Thing(Kind.BUSY, command.session, names=names)
        case ((Acquire() | Release() | Extend() | Refuse()), Refused()):
            return _Thing(Kind.REFUSED, command.session, detail=f"{outcome.code.value}: {outcome.detail}")
        case Break(), Broken():
            principal = command.principal if isinstance(command, BreakAs) else ""
            more = {"by": command.by, "principal": principal}
            return _Thing(Kind.FENCE_RAISED, 0, names=names, fence=outcome.fence, detail="force-release", **more)
        case _:
            return _of_service(command, outcome)


def _of_service(command: Command, outcome: Outcome) -> _Thing:
    """What happened to a session, or to the service itself."""
    match outcome:
        case Opened():
            detail = f"ttl {outcome.ttl_ms} ms" + (f", grace {outcome.grace_ms} ms" if outcome.grace_ms else "")
            return _Thing(Kind.OPENED, outcome.session, detail=detail)
        case Suspended():
            return _Thing(Kind.SUSPENDED, outcome.session)
        case PolicyChanged():
            ended = f"revision {outcome.revision}; sessions ended: {outcome.sessions}, waits: {outcome.waiters}"
            principal = command.principal if isinstance(command, ChangePolicy) else ""
            return _Thing(Kind.POLICY_CHANGED, 0, detail=ended, principal=principal)
        case LimitsSet():
            return _Thing(Kind.LIMITS_SET, 0)
        case FenceRaised():
            return _Thing(Kind.FENCE_RAISED, 0, fence=outcome.fence, detail="restore")
        case Announced() if isinstance(command, Announce):
            return _Thing(Kind.ANNOUNCED, 0, detail=f"{command.node} at {command.address}")
        case _:
            return _of_placing(command, outcome)


def _of_placing(command: Command, outcome: Outcome) -> _Thing:
    """What happened to the placement of names."""
    match outcome:
        case MapTaken():
            on_their_way = f"slots that leave {outcome.closing}, that arrive {outcome.arriving}"
            principal = command.principal if isinstance(command, ChangeMap) else ""
            detail = f"version {outcome.version}; {on_their_way}"
            return _Thing(Kind.MAP_CHANGED, 0, detail=detail, principal=principal)
        case SlotsSealed():
            return _Thing(Kind.SLOTS_CLOSED, 0, detail=f"slots {outcome.closed}, left {outcome.closing}")
        case SlotsOpened():
            return _Thing(Kind.SLOTS_OPENED, 0, fence=outcome.fence, detail=f"slots {outcome.slots}")
        case SlotsForced() if isinstance(command, ForceSlots):
            detail = f"holds {outcome.holds}, waits {outcome.waiters}"
            return _Thing(Kind.SLOTS_FORCED, 0, detail=detail, by=command.by, principal=command.principal)
        case CellsApplied():
            return _Thing(Kind.MAP_CHANGED, 0, detail=f"version {outcome.version} of the cells")
        case HomeClosing():
            goes = f"{outcome.prefix!r} to cell {outcome.to}, version {outcome.version}"
            return _Thing(Kind.HOME_CLOSING, 0, detail=f"{goes}; names left {outcome.names}")
        case HomeClosed():
            detail = f"{outcome.prefix!r} to cell {outcome.to}, version {outcome.version}"
            return _Thing(Kind.HOME_CLOSED, 0, fence=outcome.fence, detail=detail)
        case HomeOpened():
            detail = f"{outcome.prefix!r}, version {outcome.version}"
            return _Thing(Kind.HOME_OPENED, 0, fence=outcome.fence, detail=detail)
        case HomesLapsed() if isinstance(command, LapseHomes):
            which = ", ".join(repr(prefix) for prefix in command.prefixes) or "all"
            return _Thing(Kind.HOMES_LAPSED, 0, detail=f"{which}; sessions ended: {outcome.sessions}")
        case HomesResumed() if isinstance(command, ResumeHomes):
            which = ", ".join(repr(prefix) for prefix, _ in command.homes)
            return _Thing(Kind.HOMES_RESUMED, 0, detail=which)
        case _:
            raise TypeError(f"no event is made of {type(outcome).__name__}")


def _asked(kind: Kind, ask: Acquire, fence: int = 0, detail: str = "") -> _Thing:
    return _Thing(kind, ask.session, ask.owner, ask.names, fence, detail, mode=ask.mode.value, meta=ask.meta)


def _kept(ask: Acquire) -> str:
    return f"kept for {ask.at_least_ms} ms" if isinstance(ask, AcquireAtLeast) else ""


def _of_notice(notice: Notice) -> Iterator[_Thing]:
    match notice:
        case WaitEnded(answer=Granted() as granted):
            yield _waited(Kind.ACQUIRED, notice, granted.fence)
        case WaitEnded(answer=TimedOut()):
            yield _waited(Kind.TIMED_OUT, notice)
        case WaitEnded(answer=Refused() as refused):
            yield _refused(notice, refused)
        case WaitEnded(answer=Deadlock()):
            yield _waited(Kind.DEADLOCK, notice)
        case WaitEnded():
            yield _waited(Kind.CANCELLED, notice)
        case HoldEnded():
            kind, detail = _ENDINGS[notice.ending], _delayed(notice.delay_ms)
            yield _Thing(kind, notice.session, notice.owner, (notice.name,), notice.fence, detail, notice.by)
        case SessionEnded():
            yield _Thing(Kind.SESSION_ENDED, notice.session, detail=notice.ending.value)
            for index, (name, fence) in enumerate(notice.holds):
                detail = _delayed(notice.delays_ms[index]) if notice.delays_ms else ""
                kind, owner = _ENDINGS[notice.ending], notice.owners[index]
                yield _Thing(kind, notice.session, owner, (name,), fence, detail)


def _refused(notice: WaitEnded, refused: Refused) -> _Thing:
    """A right was taken away, or the names went elsewhere: then the detail says where."""
    if refused.code is Code.DENIED:
        return _waited(Kind.DENIED, notice)
    return _waited(Kind.TURNED_AWAY, notice, why=f"; {refused.code.value}: {refused.detail}")


def _waited(kind: Kind, notice: WaitEnded, fence: int = 0, why: str = "") -> _Thing:
    detail = f"waited {notice.waited_ms} ms{why}"
    more = {"mode": notice.mode, "meta": notice.meta}
    return _Thing(kind, notice.session, notice.owner, notice.names, fence, detail, **more)


def _delayed(delay_ms: int) -> str:
    return f"lock-delay {delay_ms} ms" if delay_ms else ""
