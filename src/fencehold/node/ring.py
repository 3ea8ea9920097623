"""The event ring: the newest of what happened, for observers.

It keeps durable entries with what they did, and makes events of them only on request: observers cost the path of
an acquire no more than an append to a ring. What falls out at the far end is gone; a watcher that comes too late
is told so. A node that is started, or has to begin anew, fills it again from what the journal has since the newest
snapshot; a standby has what it has followed, and goes on with it when it leads.

Sessions end, and their events are still to be reported with the names of their clients. So what a client said of
itself is kept for as long as the end of its session is in the ring, which is longer than anything else of it.

Bytes are counted as they lie in memory, and rather too many than too few: a command of forty bytes in the journal
is objects of several hundred here, and the end of one session may bring the names of ten thousand holds.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from fencehold.core.commands import Acquire, Break, Command, Entry, Extend, OpenSession, Release, Renew, Settle
from fencehold.core.events import NOBODY, Event, Who, WhoOf, events_of
from fencehold.core.outcomes import (
    Applied,
    Broken,
    Deadlock,
    Granted,
    Link,
    Notice,
    Outcome,
    Refused,
    Released,
    SessionEnded,
    WaitEnded,
)

_ENTRY_BYTES: Final = 1_000
_COMMAND_BYTES: Final = 600
"""Of a command and its outcome, without what they say."""
_NOTICE_BYTES = 600
_NAME_BYTES: Final = 90
_PLAIN_TEXTS: Final = 3
"""Of a command for one name: that, an owner and metadata."""
_HOLD_BYTES = _LINK_BYTES = 200
_NUMBER_BYTES = 40
_SHORT_BYTES: Final = 128
_LETTER_BYTES_MAX: Final = 4
"""One letter that is not of ASCII may make all of its text as wide as this."""
_PLAIN_COMMANDS: Final = frozenset({Acquire, Release})
_PLAIN_OUTCOMES: Final = frozenset({Granted, Released})
_names: Final = attrgetter("names")


class Kept(NamedTuple):
    """An entry in the ring."""

    entry: Entry
    applied: Applied
    size_bytes: int


class Ring:
    """What happened lately, bounded by how much, not by how long."""

    def __init__(self, things_max: int = 16_384, bytes_max: int = 16 << 20) -> None:
        self._things_max = things_max
        self._bytes_max = bytes_max
        self._entries: deque[Kept] = deque()
        self._things = 0
        self.size_bytes = 0
        """What it keeps takes so much memory at the most."""
        self.lost_up_to = 0
        """The last position whose events are gone."""
        self.ended: dict[int, Who] = {}
        """Sessions that ended within the ring, and whose they were."""

    def add(self, entry: Entry, applied: Applied, size_bytes: int = 0) -> None:
        """Keep a durable entry of so many bytes in the journal, in the place of the oldest if need be."""
        things = len(entry.commands) + len(applied.notices)
        if not things or applied.position <= self.lost_up_to:
            return
        size_bytes += _ENTRY_BYTES + _bytes_of_commands(entry, applied, size_bytes)
        if applied.notices:
            size_bytes += sum(_bytes_of_notice(notice) for _, notice in applied.notices)
            self.ended.update((ended.session, Who(ended.meta, ended.principal)) for ended in _ends(applied))
        self._entries.append(Kept(entry, applied, size_bytes))
        self._things += things
        self.size_bytes += size_bytes
        while (self._things > self._things_max or self.size_bytes > self._bytes_max) and len(self._entries) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        old, done, size_bytes = self._entries.popleft()
        self._things -= len(old.commands) + len(done.notices)
        self.size_bytes -= size_bytes
        self.lost_up_to = done.position
        if done.notices:
            for ended in _ends(done):
                self.ended.pop(ended.session, None)

    def anew(self, position: int, end: int) -> "Ring":
        """An empty one like this, for what a journal has after a position, up to its end.

        What cannot stay in it anyway need not be added: an entry that is kept has one thing or more.
        """
        ring = Ring(self._things_max, self._bytes_max)
        ring.lost_up_to = max(position, end - self._things_max)
        return ring

    def take(self, other: "Ring") -> None:
        """Have what another one has in the place of all this one had."""
        self._entries, self.ended = other._entries, other.ended
        self._things, self.size_bytes, self.lost_up_to = other._things, other.size_bytes, other.lost_up_to

    def after(self, position: int) -> Kept | None:
        """The first entry after a position that is still here."""
        entries = self._entries
        if not entries or entries[-1].applied.position <= position:
            return None
        # Mostly the caller is close behind: there is no need to search for it.
        if len(entries) == 1 or entries[-2].applied.position <= position:
            return entries[-1]
        return entries[bisect_right(entries, position, key=_position)]

    def since(self, position: int, who_of: WhoOf = lambda _: NOBODY) -> Iterator[Event]:
        """What happened after a position, as far as it is still here. `who_of` is that of the node."""
        kept = self.after(position)
        while kept is not None:
            yield from events_of(kept.entry, kept.applied, who_of)
            kept = self.after(kept.applied.position)


def _position(kept: Kept) -> int:
    return kept.applied.position


def _ends(applied: Applied) -> list[SessionEnded]:
    return [notice for _, notice in applied.notices if isinstance(notice, SessionEnded)]


def _bytes_of_commands(entry: Entry, applied: Applied, journaled_bytes: int) -> int:
    """What commands and outcomes take beside their text, which is as long as in the journal if it is ASCII."""
    commands, outcomes = entry.commands, applied.outcomes
    size_bytes = (_COMMAND_BYTES + _PLAIN_TEXTS * _NAME_BYTES) * len(commands)
    # Nearly all entries grant and release short names, and need no closer look at each command; their text counts
    # as if none of it were ASCII.
    if (
        journaled_bytes <= _SHORT_BYTES * len(commands)
        and _PLAIN_COMMANDS.issuperset(map(type, commands))
        and _PLAIN_OUTCOMES.issuperset(map(type, outcomes))
    ):
        names = sum(map(len, map(_names, commands)))
        return size_bytes + _NAME_BYTES * (names - len(commands)) + _LETTER_BYTES_MAX * journaled_bytes
    for command, outcome in zip(commands, outcomes, strict=True):
        size_bytes += _bytes_of_more(command, outcome)
    return size_bytes


def _bytes_of_more(command: Command, outcome: Outcome) -> int:
    """What any command and its outcome take beside what each was counted with."""
    texts = _texts_of(command)
    size_bytes = _NAME_BYTES * max(0, len(texts) - _PLAIN_TEXTS)
    for text in texts:
        if not text.isascii():
            size_bytes += _LETTER_BYTES_MAX * len(text)
    kind = type(outcome)
    if kind is not Granted and kind is not Released:
        size_bytes += _bytes_of_rare(command, outcome)
    return size_bytes


def _texts_of(command: Command) -> tuple[str, ...]:
    if isinstance(command, Acquire):
        return (*command.names, command.owner, command.meta)
    if isinstance(command, Release | Extend):
        return command.names
    if isinstance(command, OpenSession):
        return command.meta, command.secret
    return (command.name, command.by) if isinstance(command, Break) else ()


def _bytes_of_rare(command: Command, outcome: Outcome) -> int:
    """What else there may be much of."""
    match command, outcome:
        case Renew(sessions=numbers), _:
            # Those that have ended are named again.
            return 2 * _NUMBER_BYTES * len(numbers)
        case Settle(requests=numbers), _:
            return _NUMBER_BYTES * len(numbers)
        case _, Deadlock():
            return sum(_bytes_of_link(link) for link in outcome.circle)
        case _, Broken():
            return _NUMBER_BYTES * len(outcome.ended)
        case _, Refused():
            return _LETTER_BYTES_MAX * len(outcome.detail)
        case _:
            return 0


def _bytes_of_link(link: Link) -> int:
    return _LINK_BYTES + _bytes_of_names((link.owner, link.name))


def _bytes_of_notice(notice: Notice) -> int:
    """What is in a notice need not be in the ring otherwise: its acquire may be long gone."""
    match notice:
        case SessionEnded():
            holds_bytes = sum(_HOLD_BYTES + _LETTER_BYTES_MAX * len(name) for name, _ in notice.holds)
            said = len(notice.meta) + len(notice.principal) + sum(map(len, notice.owners))
            said_bytes = _LETTER_BYTES_MAX * said + _NUMBER_BYTES * len(notice.delays_ms)
            return _NOTICE_BYTES + holds_bytes + said_bytes + _NUMBER_BYTES * len(notice.tickets)
        case WaitEnded():
            said_bytes = _LETTER_BYTES_MAX * (len(notice.owner) + len(notice.meta))
            if isinstance(notice.answer, Deadlock):
                said_bytes += sum(_bytes_of_link(link) for link in notice.answer.circle)
            return _NOTICE_BYTES + said_bytes + _bytes_of_names(notice.names)
        case _:
            # A name, an owner, and who broke the hold.
            return _NOTICE_BYTES + _LETTER_BYTES_MAX * len(notice.owner + notice.name + notice.by)


def _bytes_of_names(names: tuple[str, ...]) -> int:
    return sum(_NAME_BYTES + _LETTER_BYTES_MAX * len(name) for name in names)
