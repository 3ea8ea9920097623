"""The broadcast: what happened at one machine, sent to all watchers, at the cost of what they watch.

1. One look for all. What became durable is scanned once, and for each change it is first checked whether its names
   are watched at all. If so, it is made an event once and encoded once; the bytes go to all its watchers.
2. By position, each once: a connection gets events in the order they happened, and once, though several of its
   prefixes match.
3. Watching yields to commands. After a quiet time events are sent at once, otherwise once in `_WINDOW_MS`, or
   sooner while something is left to send. One go takes `_GO_MS`, and the next one waits so long that watching
   takes no more than `_SHARE` of the time of the loop. A go is short, as a command may have to wait for a whole
   one.
4. Watchers are isolated. Groups, late members and members that read the past take turns, one small step each: a
   crowd that watches everything delays itself, and a watcher that does not read delays no other.
5. Where there is a policy, each watcher is sent what it may hear of, by the newest durable policy at the time of
   sending: of several names those that it may see, and what is about no name only if it may see everything. When
   the policy changes, what was gathered for a watcher and not sent yet is filtered again.
6. What is kept for watchers that are behind is bounded for all of them together. One that falls behind by more
   continues in the ring, and what is gone there, too, is sent as a gap that names the missing positions.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from fencehold.core.events import Event, Kind, scan
from fencehold.core.policy import Verb
from fencehold.doors.resp import replies
from fencehold.doors.resp.event_batches import BEFORE_ALL, WAVE_BYTES, WHOLE, Group, Member, Place, Shelf, Sink
from fencehold.node.node import Node
from fencehold.node.prefixes import Prefixes
from fencehold.runtime.clock import Clock, MonotonicClock

_WINDOW_MS = 2.0
_GO_MS = 0.2
_SHARE = 0.25

_WRITE_MS = 0.01
_WRITE_KB_MS = 0.0002
"""What a write costs when it is made, at the end of the turn: it cannot be measured when it is requested."""

_KEPT_BYTES_MAX = 16 << 20
"""Of waves that some member has still to take."""

_READ_STEPS = 16
"""Events, or runs of unwanted names, read in one step by a member that reads the past."""

Later: TypeAlias = Callable[[float, Callable[[], None]], None]


def call_later(delay_ms: float, call: Callable[[], None]) -> None:
    """Have something called by the running loop."""
    loop = asyncio.get_running_loop()
    if delay_ms > 0:
        loop.call_later(delay_ms / 1_000, call)
    else:
        loop.call_soon(call)


class Broadcast:
    """What happens at one machine, sent to all that watch it through one listener."""

    def __init__(
        self,
        node: Node,
        *,
        kept_bytes_max: int = _KEPT_BYTES_MAX,
        clock: Clock | None = None,
        later: Later = call_later,
    ) -> None:
        self._node = node
        self._shard = 0 if node.home is None else node.home.shard
        self._now_ms = (clock or MonotonicClock()).now_ms
        self._later = later
        self.members: dict[Member, None] = {}
        self.shelf = Shelf(kept_bytes_max)
        self._groups: dict[tuple[str, tuple[str, ...]], Group] = {}
        self._prefixes: Prefixes[Group] = Prefixes()
        self._place: Place = (node.position, WHOLE)
        """Up to where what happened was scanned."""
        self._reading: Iterator[tuple[int, Sequence[Group] | None, Event | None]] | None = None
        """The rest of the entry at that position."""
        self._due: deque[Group] = deque()
        self._late: deque[Member] = deque()
        self._behind: deque[Member] = deque()
        self._is_scheduled = False
        self._next_at_ms = self._now_ms()
        self._written_ms = 0.0

    # Watchers.

    def enter(self, sink: Sink, place: Place) -> Member:
        """Add a watcher of what happens after a place, once it has prefixes."""
        if not self.members:
            self._place, self._reading = (self._node.position, WHOLE), None
            self._node.routes.watch(self.wake)
            self._node.on_policy.append(self._on_policy)
        member = Member(sink, place)
        self.members[member] = None
        self._settle(member)
        return member

    def leave(self, member: Member) -> None:
        """Remove a watcher; nothing of it is kept."""
        self._leave_group(member)
        self.members.pop(member, None)
        member.reading = None
        if not self.members:
            self._node.routes.unwatch(self.wake)
            self._node.on_policy.remove(self._on_policy)

    def watch(self, member: Member, prefixes: tuple[str, ...]) -> None:
        """Let a member watch these prefixes, of which none begins another, from its place on."""
        if prefixes != member.prefixes:
            self._leave_group(member)
            member.prefixes, member.reading = prefixes, None
            self._settle(member)

    def rewind(self, member: Member, place: Place) -> bool:
        """Send once more what happened after a place, if the member is past it already; returns whether so."""
        if place >= self.place_of(member):
            return False
        self._leave_group(member)
        member.place, member.reading = place, None
        self._settle(member)
        return True

    def place_of(self, member: Member) -> Place:
        """All that is sent to it from now on happened after this place."""
        return member.place if member.group is None else member.group.told_up_to(member, self._place)

    def wake(self) -> None:
        """Something happened: scan it, but not too often."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._later(self._next_at_ms - self._now_ms(), self._go)

    def go_on(self, member: Member) -> None:
        """A watcher reads again: send it what it missed."""
        if member.group is None:
            self._queue(member)
        elif member.group.is_owed(member):
            self._be_late(member)
        self.wake()

    def _settle(self, member: Member) -> None:
        """Put a member in its group if it is up to date with the others; otherwise let it read in the ring."""
        if member.place < self._place:
            self._queue(member)
            self.wake()
            return
        member.since = member.place if member.place > self._place else BEFORE_ALL
        self._group_of(member.sink.principal, member.prefixes).join(member)

    def _group_of(self, principal: str, prefixes: tuple[str, ...]) -> Group:
        group = self._groups.get((principal, prefixes))
        if group is None:
            group = self._groups[principal, prefixes] = Group(prefixes, self.shelf, principal)
            for prefix in prefixes:
                self._prefixes.add(prefix, group)
        return group

    def _leave_group(self, member: Member) -> None:
        group = member.group
        if group is None:
            return
        member.place = max(group.told_up_to(member, self._place), member.since)
        group.leave(member)
        if not group.members:
            del self._groups[group.principal, group.prefixes]
            for prefix in group.prefixes:
                self._prefixes.discard(prefix, group)

    def _on_policy(self) -> None:
        """Restart every watcher at its place: what waits to be sent was gathered by other rights."""
        for member in tuple(self.members):
            self._leave_group(member)
            member.reading = None
            self._settle(member)

    def _told_of(self, principal: str, event: Event) -> Event | None:
        """What of an event a principal is sent; None: nothing."""
        book = self._node.rulebook
        if book is None:
            return event
        rights = book.rights_of(principal)
        if not event.names:
            if not {Verb.EVENTS, Verb.OBSERVE} <= rights.everywhere:
                return None
            if event.kind is not Kind.REFUSED or rights.hears_all:
                return event
            # A refusal lists no names, but quotes them: one that may not hear of all gets its code alone.
            return replace(event, detail=event.detail.partition(":")[0])
        names = tuple(name for name in event.names if rights.hears(name))
        if len(names) == len(event.names):
            return event
        # A detail may count what is before it in the queue of a name that is not disclosed.
        return replace(event, names=names, detail="") if names else None

    def _queue(self, member: Member) -> None:
        if not member.is_queued:
            member.is_queued = True
            self._behind.append(member)

    def _be_late(self, member: Member) -> None:
        if not member.is_late:
            member.is_late = True
            self._late.append(member)

    # Scheduling.

    def _go(self) -> None:
        """Do what is due, for as long as is fair."""
        self._is_scheduled = False
        if not self.members or self._node.is_catching_up:
            # It is woken when the state, which says whose the sessions are, is that of the ring again.
            return
        begun_ms = self._now_ms()
        self._written_ms = 0.0
        # Scanning is cheap and concerns all watchers; none may miss anything because of those that are sent much.
        is_behind = self._look_until(begun_ms + _GO_MS / 2)
        while self._due or self._late or self._behind:
            # One step at least, as for the scan: where the processor is scarce, all the time may be gone by then.
            self._step()
            if self._now_ms() + self._written_ms > begun_ms + _GO_MS:
                is_behind = True
                break
        took_ms = self._now_ms() - begun_ms + self._written_ms
        pause_ms = took_ms / _SHARE
        self._next_at_ms = begun_ms + (pause_ms if is_behind else max(_WINDOW_MS, pause_ms))
        if is_behind:
            self.wake()

    def _step(self) -> None:
        """One step for a group, one for a late member, one for a member that reads the past."""
        if self._due:
            self._serve(self._due[0])
        if self._late:
            member = self._late.popleft()
            member.is_late = False
            self._hand(member)
        if self._behind:
            member = self._behind.popleft()
            member.is_queued = False
            self._read(member)

    def _say(self, member: Member, data: bytes) -> None:
        if data:
            self._written_ms += _WRITE_MS + _WRITE_KB_MS * (len(data) >> 10)
            member.sink.push(data)

    # Scanning.

    def _look_until(self, until_ms: float) -> bool:
        """Scan what happened, one thing at least; returns whether there may be more."""
        while self._reading is not None or self._begin_entry():
            self._look_on()
            if self._now_ms() >= until_ms:
                return True
        return False

    def _begin_entry(self) -> bool:
        """Begin with the next entry, if there is one."""
        ring = self._node.ring
        if (ring.lost_up_to, WHOLE) > self._place:
            gap = _gap(self._place, ring.lost_up_to, self._shard)
            self._place = (ring.lost_up_to, WHOLE)
            for group in self._groups.values():
                self._add(group, gap)
        kept = ring.after(self._place[0])
        if kept is None:
            self._place = max(self._place, (self._node.position, WHOLE))
            return False
        self._place = (kept.applied.position, 0)
        self._reading = scan(kept.entry, kept.applied, self._prefixes.find, self._node.who_of)
        return True

    def _look_on(self) -> None:
        found = next(self._reading, None) if self._reading is not None else None
        if found is None:
            self._place, self._reading = (self._place[0], WHOLE), None
            return
        number, groups, event = found
        self._place = (self._place[0], number)
        if event is None or groups is None:
            return
        if self._node.rulebook is None:
            data = replies.push_event(event, self._shard)
            for group in groups:
                self._add(group, data)
            return
        for group in groups:
            told = self._told_of(group.principal, event)
            # What is left of its names may not be what it watches.
            if told is not None and (not told.names or any(map(_begins(group.prefixes), told.names))):
                self._add(group, replies.push_event(told, self._shard))

    def _add(self, group: Group, data: bytes) -> None:
        group.add(self._place, data)
        if not group.is_due:
            group.is_due = True
            self._due.append(group)

    # Sending to members in step.

    def _serve(self, group: Group) -> None:
        """Hand a wave to the next member of a group, and let the next group have its turn."""
        member = group.next_in_round()
        if member is not None:
            self._due.rotate(-1)
            if member.group is group and group.is_owed(member):
                self._hand(member)
        elif not group.begin_round():
            group.is_due = False
            self._due.popleft()

    def _hand(self, member: Member) -> None:
        """Send a member the next wave it is owed. If it does not read, it is tried again when it does."""
        group, sink = member.group, member.sink
        if group is None or sink.is_full or sink.ending:
            return
        if group.fell_out(member):
            # The ring may have it still; if not, it says what is missing.
            self._leave_group(member)
            self._settle(member)
            return
        if group.is_owed(member):
            self._say(member, group.take(member))
        if group.is_owed(member):
            self._be_late(member)

    # Sending to members that read the past.

    def _read(self, member: Member) -> None:
        """Send a member some of what is in the ring, up to where the others are."""
        sink = member.sink
        if member.group is not None or member not in self.members:
            return
        if sink.is_full or sink.ending:
            # What it reads is not held for it: it may stay away for long.
            member.reading = None
            return
        told = list(self._past(member))
        self._say(member, b"".join(told))
        if member.group is None:
            self._queue(member)

    def _past(self, member: Member) -> Iterator[bytes]:
        """What a member missed, encoded, for one step. At its end it may be in step with the others."""
        told_bytes = steps = 0
        while steps < _READ_STEPS and told_bytes < WAVE_BYTES:
            lost_up_to = self._node.ring.lost_up_to
            if member.reading is None and (lost_up_to, WHOLE) > member.place:
                yield _gap(member.place, lost_up_to, self._shard)
                member.place = (lost_up_to, WHOLE)
            if member.reading is None and not self._begin_past(member):
                self._settle(member)
                return
            steps += 1
            event = self._read_on(member)
            if event is not None:
                data = replies.push_event(event, self._shard)
                told_bytes += len(data)
                yield data

    def _begin_past(self, member: Member) -> bool:
        """Let a member read on, unless it has caught up with the others."""
        position, number = member.place
        kept = self._node.ring.after(position if number == WHOLE else position - 1)
        if kept is None or member.place >= self._place:
            member.place = max(member.place, self._place)
            return False
        after = 0 if number == WHOLE else number
        member.place = (kept.applied.position, after)
        member.reading = scan(kept.entry, kept.applied, member.wants, self._node.who_of, after)
        return True

    def _read_on(self, member: Member) -> Event | None:
        position = member.place[0]
        found = next(member.reading, None) if member.reading is not None else None
        if found is None:
            member.place, member.reading = (position, WHOLE), None
            return None
        number, _, event = found
        if (position, number) > self._place:
            # The rest of this entry is sent to all.
            member.place, member.reading = self._place, None
            return None
        member.place = max(member.place, (position, number))
        told = None if event is None else self._told_of(member.sink.principal, event)
        return told if told is not None and (not told.names or member.wants(told.names)) else None


def _gap(told: Place, lost_up_to: int, shard: int) -> bytes:
    """What is missing between a watcher's place and what is still known."""
    position, number = told
    return replies.push_gap(*((position + 1, 0) if number == WHOLE else told), lost_up_to, shard)


def _begins(prefixes: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda name: name.startswith(prefixes)
