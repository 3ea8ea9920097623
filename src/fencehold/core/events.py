"""Events: what happened, in order, for those who look on: watchers, sinks, metrics, the history of holds.

They are derived from an entry and what it did, outside the machine: who looks on costs the machine nothing, and
any replica can tell the same story from the same journal.
"""

from collections.abc import Callable, Iterator
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

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
    Released,
    SessionEnded,
    TimedOut,
    WaitEnded,
)


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
}


def events_of(entry: Entry, applied: Applied, meta_of: Callable[[int], str] = lambda _: "") -> Iterator[Event]:
    """What an entry made happen: first by time, then by each command, the cause before what it caused.

    `meta_of` says what the client of a session, which may have ended since, said of itself.
    """
    for event in _events_of(entry, applied):
        yield replace(event, unix_ms=applied.unix_ms, session_meta=meta_of(event.session))


def _events_of(entry: Entry, applied: Applied) -> Iterator[Event]:
    notices = iter(applied.notices)
    pending = next(notices, None)
    while pending is not None and pending[0] < 0:
        yield from _of_notice(applied, pending[1])
        pending = next(notices, None)
    for index, (command, outcome) in enumerate(zip(entry.commands, applied.outcomes, strict=True)):
        if index not in applied.repeated:
            yield from _of_outcome(applied, command, outcome)
        while pending is not None and pending[0] == index:
            yield from _of_notice(applied, pending[1])
            pending = next(notices, None)


def _of_outcome(applied: Applied, command: Command, outcome: Outcome) -> Iterator[Event]:
    at = (applied.position, applied.at_ms)
    match command, outcome:
        case Acquire(), Granted():
            yield Event(Kind.ACQUIRED, *at, command.session, command.owner, command.names, outcome.fence)
        case Acquire(), Queued():
            detail = f"ahead {outcome.ahead}"
            yield Event(Kind.QUEUED, *at, command.session, command.owner, command.names, detail=detail)
        case Acquire(), Deadlock():
            yield Event(Kind.DEADLOCK, *at, command.session, command.owner, command.names)
        case Release(), Released():
            freed = tuple(name for name in command.names if name not in outcome.refused)
            if freed:
                yield Event(Kind.RELEASED, *at, command.session, names=freed, fence=command.fence)
        case Extend(), Extended(reason=Reason.OK):
            yield Event(Kind.EXTENDED, *at, command.session, names=command.names, fence=command.fence)
        case _, Opened():
            yield Event(Kind.OPENED, *at, outcome.session)
        case _:
            pass


def _of_notice(applied: Applied, notice: Notice) -> Iterator[Event]:
    at = (applied.position, applied.at_ms)
    match notice:
        case WaitEnded(answer=Granted() as granted):
            yield Event(Kind.ACQUIRED, *at, notice.session, notice.owner, granted.names, granted.fence)
        case WaitEnded(answer=TimedOut() as over):
            detail = f"waited {over.waited_ms} ms"
            yield Event(Kind.TIMED_OUT, *at, notice.session, notice.owner, over.names, detail=detail)
        case WaitEnded():
            yield Event(Kind.CANCELLED, *at, notice.session, notice.owner)
        case HoldEnded():
            kind = _ENDINGS[notice.ending]
            yield Event(kind, *at, notice.session, notice.owner, (notice.name,), notice.fence, by=notice.by)
        case SessionEnded():
            yield Event(Kind.SESSION_ENDED, *at, notice.session, detail=notice.ending.value)
            for name, fence in notice.holds:
                yield Event(_ENDINGS[notice.ending], *at, notice.session, names=(name,), fence=fence)
