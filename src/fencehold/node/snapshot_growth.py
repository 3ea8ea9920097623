"""Growth: how much larger a snapshot may be by one entry. At the most, and never too low.

1. What an entry brings is in a snapshot at most twice: as what is held or awaited, and as the answer that is
   remembered for a repetition.
2. But what an entry says once of several names is saved with each of them: who holds it, and for how long a name
   is kept for whom; metadata only where a name is kept. The same when a waiter is granted several: its names are
   in the notice, its words are not, and count with as much as they may have.
"""

from operator import attrgetter
from typing import Final

from fencehold.core.commands import Acquire, AcquireAtLeast, Command, Entry, Release
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Applied, Granted, WaitEnded

_ENTRY_BYTES: Final = 256
"""What any entry may add: that time passes, for one."""
_HOLD_BYTES: Final = 64
"""What a hold has beside names and words."""
_PLAIN: Final = frozenset({Acquire, Release})
_names: Final = attrgetter("names")


def growth_bytes(entry: Entry, applied: Applied, size_bytes: int, limits: Limits) -> int:
    """How much larger a snapshot may be by an entry of that size."""
    grown = 2 * size_bytes + _ENTRY_BYTES
    commands = entry.commands
    if not applied.notices and _PLAIN.issuperset(map(type, commands)) and _names_of(commands) == len(commands):
        # Nearly always: each of one name, and no waiter was granted.
        return grown
    for command in commands:
        kind = type(command)
        if kind is Acquire and len(command.names) > 1:  # type: ignore[union-attr]
            grown += len(command.names) * (len(command.owner.encode()) + _HOLD_BYTES)  # type: ignore[union-attr]
        elif kind is AcquireAtLeast:
            grown += 2 * _copies(command) + len(command.names) * limits.meta_bytes_max  # type: ignore[arg-type, union-attr]
    for _, notice in applied.notices:
        if type(notice) is WaitEnded and type(notice.answer) is Granted:
            words_max = 3 * limits.meta_bytes_max + limits.owner_bytes_max
            grown += len(notice.answer.names) * (limits.name_bytes_max + words_max + _HOLD_BYTES)
    return grown


def _names_of(commands: tuple[Command, ...]) -> int:
    return sum(map(len, map(_names, commands)))


def _copies(ask: Acquire) -> int:
    return len(ask.names) * (len(ask.meta.encode()) + len(ask.owner.encode()) + _HOLD_BYTES)
