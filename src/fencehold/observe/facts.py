"""Facts: an entry and what it did, as one flat list in the order it happened, read once for all who observe.

Each is a small tuple that begins with its kind. Unlike an event it has what history and metrics need: tickets,
modes, reasons of refusals. What was answered from memory happened before, and is none.
"""

from collections import deque
from enum import IntEnum
from typing import Any, Final, NamedTuple

from fencehold.core.commands import (
    Acquire,
    Break,
    Cancel,
    CloseSession,
    Entry,
    Extend,
    OpenSession,
    OpenSessionAs,
    Refuse,
    Release,
)
from fencehold.core.outcomes import (
    Announced,
    Applied,
    Broken,
    Busy,
    Cancelled,
    Code,
    Deadlock,
    Ending,
    Extended,
    Granted,
    HoldEnded,
    Notice,
    Opened,
    Queued,
    Reason,
    Refused,
    Released,
    Suspended,
    TimedOut,
    WaitEnded,
)


class What(IntEnum):
    """The kinds of facts."""

    OPENED = 0
    GRANTED = 1
    QUEUED = 2
    BUSY = 3
    DEADLOCK = 4
    REFUSED = 5
    RELEASED = 6
    RELEASE_REFUSED = 7
    EXTENDED = 8
    EXTEND_REFUSED = 9
    WAIT_ENDED = 10
    HOLD_ENDED = 11
    SESSION_ENDED = 12
    SUSPENDED = 13
    BROKEN = 14
    LED = 15


class Fact(NamedTuple):
    """One of them; what does not apply is empty."""

    what: What
    session: int = 0
    names: tuple[str, ...] = ()
    fence: int = 0
    owner: str = ""
    ticket: int = 0
    mode: str = ""
    detail: str = ""
    """The code of a refusal, how a wait, hold or session ended, what a session said of itself."""
    more: Any = None
    """A principal; who broke a hold; the holds and tickets of a session that ended; why something was refused."""
    meta: str = ""
    """What an acquire came with."""


_new: Final = tuple.__new__
# For every command: to look up a member of an enumeration takes ten times as long as a name of the module.
_GRANTED: Final = What.GRANTED
_RELEASED: Final = What.RELEASED
_HOLD_ENDED: Final = What.HOLD_ENDED
_OK: Final = Reason.OK
_OP_OF: dict[type, str] = {
    Acquire: "acquire",
    Release: "release",
    Extend: "extend",
    Cancel: "cancel",
    Break: "break",
    OpenSession: "open",
    CloseSession: "close",
    # What the state refused is journaled as the refusal alone: of an acquire, mostly.
    Refuse: "acquire",
}


def operation_of(command: object) -> str:
    """What a command is called; empty for what keeps the service going."""
    kind = type(command)
    known = _OP_OF.get(kind)
    if known is None:
        known = next((op for base, op in _OP_OF.items() if issubclass(kind, base)), "")
        _OP_OF[kind] = known
    return known


def facts_of(entry: Entry, applied: Applied) -> list[Fact]:
    """What an entry made happen: first by time, then by each command, the cause before what it caused."""
    outcomes, notices = applied.outcomes, applied.notices
    if not notices and not applied.repeated:
        pairs = zip(entry.commands, outcomes, strict=True)
        return [fact for asked, outcome in pairs if (fact := _of_command(asked, outcome)) is not None]
    found: list[Fact] = []
    waiting, repeated = deque(notices), frozenset(applied.repeated)
    for index, command in enumerate((None, *entry.commands), -1):
        if command is not None and index not in repeated:
            fact = _of_command(command, outcomes[index])
            if fact is not None:
                found.append(fact)
        while waiting and waiting[0][0] <= index:
            found.append(_of_notice(waiting.popleft()[1]))
    return found


def _of_command(command: Any, outcome: Any) -> Fact | None:
    kind = type(outcome)
    if kind is Granted and isinstance(command, Acquire):
        return _of_acquire(_GRANTED, command, outcome.fence, 0)
    if kind is Released:
        return _of_release(command, outcome)
    if kind is Queued:
        return _of_acquire(What.QUEUED, command, 0, outcome.ticket)
    if kind is Extended:
        return _of_extension(command, outcome)
    return _of_rare(command, outcome)


def _of_acquire(what: What, command: Acquire, fence: int, ticket: int, more: Any = None) -> Fact:
    # By what `Fact` and `value` would call: this is done for every acquire.
    mode = command.mode._value_
    terms = (what, command.session, command.names, fence, command.owner, ticket, mode, "", more, command.meta)
    return _new(Fact, terms)


def _of_release(command: Release, outcome: Released) -> Fact:
    if outcome.reason is _OK:
        return _new(Fact, (_RELEASED, command.session, command.names, command.fence, "", 0, "", "", None, ""))
    # Those that carried the fence are free; the others are told why not.
    freed = tuple(name for name in command.names if name not in outcome.refused) if outcome.refused else ()
    refused = outcome.refused or command.names
    return Fact(
        What.RELEASE_REFUSED, command.session, refused, command.fence, detail=outcome.reason.value, more=freed
    )


def _of_extension(command: Any, outcome: Extended) -> Fact | None:
    if not isinstance(command, Extend):
        return None
    if outcome.reason is Reason.OK:
        return Fact(What.EXTENDED, command.session, command.names, command.fence)
    return Fact(What.EXTEND_REFUSED, command.session, command.names, command.fence, detail=outcome.reason.value)


def _of_rare(command: Any, outcome: Any) -> Fact | None:
    match outcome:
        case Busy() if isinstance(command, Acquire):
            return _of_acquire(What.BUSY, command, 0, 0)
        case Busy():
            return Fact(What.BUSY, command.session)
        case Opened() if isinstance(command, OpenSession):
            principal = command.principal if isinstance(command, OpenSessionAs) else ""
            return Fact(What.OPENED, outcome.session, detail=command.meta, more=principal)
        case Refused() if operation_of(command):
            names = (command.name,) if isinstance(command, Break) else getattr(command, "names", ())
            session, more = getattr(command, "session", 0), (operation_of(command), outcome.detail)
            meta = command.meta if isinstance(command, Acquire) else ""
            return Fact(What.REFUSED, session, names, detail=outcome.code.value, more=more, meta=meta)
        case Deadlock():
            return _of_acquire(What.DEADLOCK, command, 0, 0, _circle(outcome))
        case Broken() if isinstance(command, Break):
            return Fact(What.BROKEN, 0, (command.name,), outcome.fence)
        case Suspended():
            return Fact(What.SUSPENDED, outcome.session)
        case Announced():
            return Fact(What.LED, detail=command.node)
        case _:
            return None


_ENDINGS = {
    Ending.RELEASED: "released",
    Ending.CLOSED: "released",
    Ending.EXPIRED: "expired",
    Ending.BROKEN: "broken",
    Ending.REVOKED: "revoked",
}


def _of_notice(notice: Notice) -> Fact:
    if isinstance(notice, WaitEnded):
        return _of_wait(notice)
    if isinstance(notice, HoldEnded):
        whose = (_HOLD_ENDED, notice.session, (notice.name,), notice.fence, notice.owner)
        return _new(Fact, (*whose, 0, "", _ENDINGS[notice.ending], notice.by, ""))
    how = _ENDINGS[notice.ending]
    return Fact(What.SESSION_ENDED, notice.session, detail=how, more=(notice.holds, notice.tickets, notice.meta))


def _circle(deadlock: Deadlock) -> list[tuple[int, str, str]]:
    return [(link.session, link.owner, link.name) for link in deadlock.circle]


def _without(answer: Refused | Cancelled) -> str:
    """How a wait ended that was not granted, and had time left."""
    if isinstance(answer, Cancelled):
        return "cancelled"
    return "denied" if answer.code is Code.DENIED else "turned_away"


def _of_wait(notice: WaitEnded) -> Fact:
    answer = notice.answer
    if isinstance(answer, Deadlock):
        seen = (notice.names, 0, notice.owner, notice.ticket)
        return Fact(What.WAIT_ENDED, notice.session, *seen, detail="deadlock", more=_circle(answer))
    if isinstance(answer, Granted):
        names, fence, how = answer.names, answer.fence, "acquired"
    elif isinstance(answer, TimedOut):
        names, fence, how = answer.names, 0, "timed_out"
    else:
        names, fence, how = (), 0, _without(answer)
    return Fact(What.WAIT_ENDED, notice.session, names, fence, notice.owner, notice.ticket, detail=how)
