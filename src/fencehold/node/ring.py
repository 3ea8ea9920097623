"""The event ring: the newest of what happened, for those who look on.

It keeps durable entries with what they did, and makes events of them only when somebody asks: nobody looking on
costs the path of an acquire nothing but an append to a ring. What falls out at the far end is gone; who comes too
late is told so.

Sessions end, and their events are still to be told by the names of their clients. So what a client said of itself
is kept for as long as the end of its session is in the ring, which is longer than anything else of it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, takewhile

from fencehold.core.commands import Entry
from fencehold.core.events import Event, events_of
from fencehold.core.outcomes import Applied, SessionEnded


class Ring:
    """What happened lately, bounded by how much, not by how long."""

    def __init__(self, things_max: int = 16_384, bytes_max: int = 16 << 20) -> None:
        self._things_max = things_max
        self._bytes_max = bytes_max
        self._entries: deque[tuple[Entry, Applied, int]] = deque()
        self._things = 0
        self._bytes = 0
        self.lost_up_to = 0
        """The last position whose events are gone."""
        self.ended: dict[int, str] = {}
        """Sessions that ended within the ring, and what their clients said of themselves."""

    def add(self, entry: Entry, applied: Applied, size_bytes: int = 0) -> None:
        """Keep a durable entry of so many bytes, in the place of the oldest if need be."""
        things = len(entry.commands) + len(applied.notices)
        if not things:
            return
        if applied.notices:
            size_bytes += self._keep_ended(applied)
        self._entries.append((entry, applied, size_bytes))
        self._things += things
        self._bytes += size_bytes
        while (self._things > self._things_max or self._bytes > self._bytes_max) and len(self._entries) > 1:
            old, done, old_bytes = self._entries.popleft()
            self._things -= len(old.commands) + len(done.notices)
            self._bytes -= old_bytes
            self.lost_up_to = done.position
            for ended in _ends(done):
                self.ended.pop(ended.session, None)

    def _keep_ended(self, applied: Applied) -> int:
        """Keep the names of those whose sessions ended; says how many bytes that is at the most."""
        ends = _ends(applied)
        self.ended.update((ended.session, ended.meta) for ended in ends)
        return sum(4 * len(ended.meta) for ended in ends)

    def forget(self, position: int) -> None:
        """Start anew after a position: what came before was not seen here."""
        self._entries.clear()
        self.ended.clear()
        self._things = self._bytes = 0
        self.lost_up_to = position

    def since(self, position: int, meta_of: Callable[[int], str] = lambda _: "") -> Iterator[Event]:
        """What happened after a position, as far as it is still here. `meta_of` is that of the node."""
        return chain.from_iterable(events for _, events in self.since_by_entry(position, meta_of))

    def since_by_entry(
        self, position: int, meta_of: Callable[[int], str] = lambda _: ""
    ) -> Iterator[tuple[int, Iterator[Event]]]:
        """As `since`, but the events of each entry by themselves, with its position. They can be drawn later."""
        newer = takewhile(lambda kept: kept[1].position > position, reversed(self._entries))
        for entry, applied, _ in reversed(list(newer)):
            yield applied.position, events_of(entry, applied, meta_of)


def _ends(applied: Applied) -> list[SessionEnded]:
    return [notice for _, notice in applied.notices if isinstance(notice, SessionEnded)]
