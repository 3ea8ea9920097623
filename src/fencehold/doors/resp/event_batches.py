"""Waves: events as bytes, gathered once for all watchers of the same prefixes, and handed to each as one piece.

1. Watchers of the same prefixes, as the same principal, are one *group*. An event is added to a group once,
   however many are in it and however many of its prefixes match.
2. What was added since the last wave is *sealed* into the next one: joined once, and the same bytes are handed to
   every member. Each member takes the waves in order, each once.
3. A wave is kept until every member that was there when it was sealed has taken it, or until what is kept for all
   groups together is too much: then the oldest is dropped. A member that had not taken it *fell out*, and reads
   the ring.
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice
from typing import Protocol, TypeAlias

from fencehold.core.events import Event

WAVE_BYTES = 32 << 10
"""A wave that has as many is sealed."""

WAVES_PER_GROUP_MAX = 512

WHOLE = (1 << 53) - 1
"""A number beyond all that happened in one entry."""

Place: TypeAlias = tuple[int, int]
"""A place in history: all up to a position, and in the entry there up to a number (see `core.events.scan`)."""

BEFORE_ALL: Place = (0, 0)


class Sink(Protocol):
    """Where events go: a connection."""

    @property
    def principal(self) -> str: ...

    @property
    def is_full(self) -> bool: ...

    @property
    def ending(self) -> bool: ...

    def push(self, data: bytes) -> None: ...


class Member:
    """A watcher: in step with a group, or reading in the ring until it is."""

    __slots__ = ("cursor", "group", "is_late", "is_queued", "place", "prefixes", "reading", "since", "sink")

    def __init__(self, sink: Sink, place: Place) -> None:
        self.sink = sink
        self.prefixes: tuple[str, ...] = ()
        """None begins another."""
        self.group: Group | None = None
        self.cursor = 0
        """The number of the wave it takes next."""
        self.since = place
        """Waves may begin before it joined: it is sent what comes after this place."""
        self.place = place
        """Up to where it was sent events, at least."""
        self.is_late = False
        """It awaits waves that the others of its group have had."""
        self.is_queued = False
        """It awaits its turn to read in the ring."""
        self.reading: Iterator[tuple[int, bool | None, Event | None]] | None = None
        """The rest of the entry at its place, if it reads in the ring."""

    def wants(self, names: tuple[str, ...]) -> bool:
        """Whether it watches any of these names."""
        return self.prefixes[:1] == ("",) or any(name.startswith(self.prefixes) for name in names)


class Wave:
    """Some consecutive events, for one group."""

    __slots__ = ("_offsets", "_parts", "_places", "begin", "data", "end", "group", "left", "size_bytes")

    def __init__(self, group: "Group", begin: Place) -> None:
        self.group = group
        self.begin = begin
        """The place before its first event."""
        self.end = begin
        self.size_bytes = 0
        self.left = 0
        """How many have still to take it."""
        self.data = b""
        self._parts: list[bytes] = []
        self._places: list[Place] = []
        self._offsets: list[int] = []

    def add(self, place: Place, data: bytes) -> None:
        self.end = place
        self._places.append(place)
        self._offsets.append(self.size_bytes)
        self._parts.append(data)
        self.size_bytes += len(data)

    def seal(self) -> None:
        self.data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()

    def after(self, place: Place) -> bytes:
        """The part that happened after a place."""
        if self._places[0] > place:
            return self.data
        first = bisect_right(self._places, place)
        return self.data[self._offsets[first] :] if first < len(self._places) else b""


class Shelf:
    """The waves of all groups that some member has still to take, oldest first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waves: OrderedDict[Wave, None] = OrderedDict()
        self.size_bytes = 0

    def put(self, wave: Wave) -> None:
        self._waves[wave] = None

    def grow(self, added_bytes: int) -> None:
        """Count what a wave grew by; the oldest waves are dropped if that is too much."""
        self.size_bytes += added_bytes
        while self.size_bytes > self._bytes_max and self._waves:
            next(iter(self._waves)).group.drop_oldest()

    def remove(self, wave: Wave) -> None:
        if wave in self._waves:
            del self._waves[wave]
            self.size_bytes -= wave.size_bytes


class Group:
    """All members that are in step and watch the same prefixes."""

    def __init__(self, prefixes: tuple[str, ...], shelf: Shelf, principal: str = "") -> None:
        self.prefixes = prefixes
        self.principal = principal
        """The principal whose rights decide what they are sent."""
        self.members: dict[Member, None] = {}
        self.is_due = False
        """It awaits its turn to hand waves to its members."""
        self.rounds = 0
        """Waves with a lower number were offered to all members, or are gone."""
        self._round: Iterator[Member] = iter(())
        self._shelf = shelf
        self._first = 0
        self._sealed: deque[Wave] = deque()
        """From the one with the number `_first`."""
        self._open: Wave | None = None

    # What happened.

    def add(self, place: Place, data: bytes) -> None:
        """Add an event, or a gap, encoded."""
        wave = self._open
        if wave is None:
            wave = self._open = Wave(self, (place[0], place[1] - 1))
            self._shelf.put(wave)
        wave.add(place, data)
        if wave.size_bytes >= WAVE_BYTES:
            self._seal()
        self._shelf.grow(len(data))

    def _seal(self) -> None:
        wave, self._open = self._open, None
        if wave is not None:
            wave.seal()
            wave.left = len(self.members)
            self._sealed.append(wave)
            if len(self._sealed) > WAVES_PER_GROUP_MAX:
                self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop the oldest wave, though some member has not taken it."""
        if not self._sealed:
            self._seal()
        self._remove_first()

    def _remove_first(self) -> None:
        self._shelf.remove(self._sealed.popleft())
        self._first += 1

    # Members.

    def join(self, member: Member) -> None:
        """Add a member, for what is added from now on."""
        self._seal()
        self.members[member] = None
        member.group = self
        member.cursor = self._first + len(self._sealed)

    def leave(self, member: Member) -> None:
        """Drop a member, and the waves that only it had still to take."""
        del self.members[member]
        member.group = None
        for wave in islice(self._sealed, max(0, member.cursor - self._first), None):
            wave.left -= 1
        self._remove_taken()
        if not self.members and self._open is not None:
            self._shelf.remove(self._open)
            self._open = None

    def next_in_round(self) -> Member | None:
        """The member whose turn it is to take a wave. None: this round is over."""
        return next(self._round, None)

    def begin_round(self) -> bool:
        """Let all members of now take the next wave, if there is one, or find that some are gone."""
        if self.rounds == self._first + len(self._sealed):
            self._seal()
        if not self.members or self.rounds == self._first + len(self._sealed):
            return False
        self.rounds = max(self.rounds + 1, self._first)
        self._round = iter(tuple(self.members))
        return True

    def is_owed(self, member: Member) -> bool:
        """Whether a wave was offered to all that it has not taken."""
        return member.cursor < self.rounds

    def fell_out(self, member: Member) -> bool:
        """Whether a wave is gone that it has not taken."""
        return member.cursor < self._first

    def take(self, member: Member) -> bytes:
        """The next wave of a member, as far as it was not sent yet."""
        wave = self._sealed[member.cursor - self._first]
        member.cursor += 1
        member.place = max(member.place, wave.end)
        wave.left -= 1
        self._remove_taken()
        return wave.after(member.since)

    def _remove_taken(self) -> None:
        # A watcher that has still to take a wave has to take all later ones: those taken by all are in front.
        while self._sealed and self._sealed[0].left == 0:
            self._remove_first()

    def told_up_to(self, member: Member, now: Place) -> Place:
        """The place up to which a member was sent events, if all that was seen up to now was added."""
        if self.fell_out(member):
            return member.place
        waiting = islice(self._sealed, member.cursor - self._first, None)
        wave = next(waiting, self._open)
        return max(member.place, now if wave is None else wave.begin)
