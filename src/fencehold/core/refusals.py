"""Refusals: a request that the state refused is journaled as its refusal, where that is shorter.

A refused request changes nothing but what is remembered under its id, and may be 18 kB long: 64 names and
metadata. A client that is refused again and again would fill a journal with names that are not held. So a leader,
which knows the outcome before it writes, puts a `Refuse` in place of such a request:

1. The state it leads to is the same, to the byte, and so are the notices.
2. What was answered from memory, or asked by a session that has ended, is put in the same way: a `Refuse` is
   looked up like any request, and comes to the same answer before its own is read.
3. Nothing else is ever replaced.
"""

from msgspec.structs import replace

from fencehold.core.commands import AnyAcquire, Command, Entry, Extend, Refuse, Release
from fencehold.core.outcomes import Applied, Busy, NoSession, Outcome, Refused
from fencehold.core.state import Session, State

_NAMES_MAX, _META_MAX = 2, 128
"""A request with no more is left as it is: it is about as short as its refusal."""

_UNREAD = Busy("")
"""In place of an answer that is not read."""


def refuse(state: State, session: Session, command: Refuse) -> Busy | Refused:
    """The answer that the leader found."""
    return command.answer


def shortened(entry: Entry, applied: Applied) -> Entry:
    """The entry with refusals in place of long requests that were refused; itself, if there are none."""
    repeated = set(applied.repeated)
    commands = tuple(
        _shortened(command, outcome, index in repeated)
        for index, (command, outcome) in enumerate(zip(entry.commands, applied.outcomes, strict=True))
    )
    unchanged = all(one is other for one, other in zip(commands, entry.commands, strict=True))
    return entry if unchanged else replace(entry, commands=commands)


def _shortened(command: Command, outcome: Outcome, is_repeated: bool) -> Command:
    if not isinstance(command, AnyAcquire | Release | Extend) or not _is_long(command):
        return command
    if is_repeated or isinstance(outcome, NoSession):
        return Refuse(command.session, command.request, command.answered, _UNREAD)
    if isinstance(outcome, Busy | Refused):
        return Refuse(command.session, command.request, command.answered, outcome)
    return command


def _is_long(command: AnyAcquire | Release | Extend) -> bool:
    return len(command.names) > _NAMES_MAX or len(getattr(command, "meta", "")) > _META_MAX
