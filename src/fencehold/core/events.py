"""Events: what happened, in order, for those who look on: watchers, sinks, metrics, the history of holds.

They are derived from an entry and what it did, outside the machine: who looks on costs the machine nothing, and
any replica can tell the same story from the same journal.
"""

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from fencehold.core.commands import Acquire, Command, Entry, Extend, Release
from fencehold.core.outcomes import (
    Applied,
    Deadlock,
    Ending,
    Extended,
    Granted,
    HoldEnded,
    Notice,
    Opened,
    Outcome,
    Queued,
    Reason,
    Refused,
    Released,
    SessionEnded,
    TimedOut,
    WaitEnded,
)

Wanted = TypeVar("Wanted")

MetaOf: TypeAlias = Callable[[int], str]
"""What the client of a session said of itself."""

_NAMES_PER_STEP = 256


class Kind(Enum):
    """What happened, in the past tense."""

    OPENED = "opened"
    ACQUIRED = "acquired"
    QUEUED = "queued"
    EXTENDED = "extended"
    RELEASED = "released"
    EXPIRED = "expired"
    BROKEN = "broken"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DENIED = "denied"
    """A wait ended because the right to acquire was taken away."""
    REVOKED = "revoked"
    """A hold ended with its session, whose principal is no user any more."""
    DEADLOCK = "deadlock"
    SESSION_ENDED = "session_ended"


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
    unix_ms: int | None = None
    """The time of day; None: not known."""
    session_meta: str = ""
    """What the client of the session said of itself when it opened it."""


_ENDINGS = {
    Ending.RELEASED: Kind.RELEASED,
    Ending.CLOSED: Kind.RELEASED,
    Ending.EXPIRED: Kind.EXPIRED,
    Ending.BROKEN: Kind.BROKEN,
    Ending.REVOKED: Kind.REVOKED,
}


def events_of(entry: Entry, applied: Applied, meta_of: MetaOf = lambda _: "") -> Iterator[Event]:
    """What an entry made happen: first by time, then by each command, the cause before what it caused.

    `meta_of` says what the client of a session, which may have ended since, said of itself.
    """
    for _, _, event in scan(entry, applied, lambda _: True, meta_of):
        if event is not None:
            yield event


def scan(
    entry: Entry,
    applied: Applied,
    seek: Callable[[tuple[str, ...]], Wanted],
    meta_of: MetaOf = lambda _: "",
    after: int = 0,
) -> Iterator[tuple[int, Wanted | None, Event | None]]:
    """As `events_of`, but only of what is wanted: `seek` is asked who wants each thing, by its names.

    What is not wanted costs the question and nothing else. Each event comes with what `seek` said, and a number:
    numbers count what may have happened in an entry, wanted or not, so that a position and a number say where in
    history an event is, the same at every reading. `after` a number only what follows it is looked at.

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
                    yield number, found, _event(applied, _of_outcome(command, outcome, names), meta_of)
            names_asked += 1
            if names_asked >= _NAMES_PER_STEP:
                yield number, None, None
                names_asked = 0
        while notices and notices[0][0] <= index:
            for thing in _of_notice(notices.popleft()[1]):
                number += 1
                if number > after and (found := seek(thing.names)):
                    yield number, found, _event(applied, thing, meta_of)
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


def _event(applied: Applied, thing: _Thing, meta_of: MetaOf) -> Event:
    return Event(thing[0], applied.position, applied.at_ms, *thing[1:], applied.unix_ms, meta_of(thing[1]))


_ASKED_BY: dict[type[Outcome], type[Command]] = {
    Granted: Acquire,
    Queued: Acquire,
    Deadlock: Acquire,
    Released: Release,
    Extended: Extend,
}
"""Which outcomes make an event of which command."""


def _names_of(command: Command, outcome: Outcome) -> tuple[str, ...] | None:
    """The names an outcome happened to; None: nothing happened that is told."""
    asked_by = _ASKED_BY.get(type(outcome))
    if asked_by is None:
        return () if type(outcome) is Opened else None
    if not isinstance(command, asked_by):
        return None
    names: tuple[str, ...] = command.names  # type: ignore[union-attr]
    if type(outcome) is Released and outcome.refused:
        return tuple(name for name in names if name not in outcome.refused) or None
    return None if type(outcome) is Extended and outcome.reason is not Reason.OK else names


def _of_outcome(command: Command, outcome: Outcome, names: tuple[str, ...]) -> _Thing:
    match command, outcome:
        case Acquire(), Granted():
            return _Thing(Kind.ACQUIRED, command.session, command.owner, names, outcome.fence)
        case Acquire(), Queued():
            return _Thing(Kind.QUEUED, command.session, command.owner, names, detail=f"ahead {outcome.ahead}")
        case Acquire(), Deadlock():
            return _Thing(Kind.DEADLOCK, command.session, command.owner, names)
        case Release(), Released():
            return _Thing(Kind.RELEASED, command.session, names=names, fence=command.fence)
        case Extend(), Extended():
            return _Thing(Kind.EXTENDED, command.session, names=names, fence=command.fence)
        case _, Opened():
            return _Thing(Kind.OPENED, outcome.session)
        case _:
            raise TypeError(f"no event is made of {type(outcome).__name__}")


def _of_notice(notice: Notice) -> Iterator[_Thing]:
    match notice:
        case WaitEnded(answer=Granted() as granted):
            yield _Thing(Kind.ACQUIRED, notice.session, notice.owner, granted.names, granted.fence)
        case WaitEnded(answer=TimedOut() as over):
            detail = f"waited {over.waited_ms} ms"
            yield _Thing(Kind.TIMED_OUT, notice.session, notice.owner, over.names, detail=detail)
        case WaitEnded(answer=Refused()):
            yield _Thing(Kind.DENIED, notice.session, notice.owner)
        case WaitEnded():
            yield _Thing(Kind.CANCELLED, notice.session, notice.owner)
        case HoldEnded():
            kind = _ENDINGS[notice.ending]
            yield _Thing(kind, notice.session, notice.owner, (notice.name,), notice.fence, by=notice.by)
        case SessionEnded():
            yield _Thing(Kind.SESSION_ENDED, notice.session, detail=notice.ending.value)
            for name, fence in notice.holds:
                yield _Thing(_ENDINGS[notice.ending], notice.session, names=(name,), fence=fence)
