"""Names in order: an index of the names in use, so that a page costs what it returns, however many there are.

1. It exists while clients list. It is made when a list is requested, fed by every entry as it is applied, and
   dropped after a minute of logical time without a list. Otherwise an entry costs only the check that there is
   none.
2. It may know names that are not in use any more, and lacks none that is. What is read is checked against the
   state, name by name. Stale names are dropped when a bucket is full, or read and found to have many. If they are
   the majority all the same, as when all is released at once, the whole index is dropped: memory follows what is
   in use (G11).
3. It is of one state at one position: not used for another machine, nor after an entry that it was not fed.
4. To make it delays no client: names are gathered in slices, between which the event loop does all else. Buckets
   are full at about the same time, so a slice is measured by its work, with what it puts in order. Lists wait for
   it meanwhile: each is a command in flight, of which a connection may have so many. Of a state with few names it
   is made on the spot.
5. A page bounds its own work: it scans so many names, in use or not, and then ends with a cursor.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from fencehold.core.commands import Entry
from fencehold.core.outcomes import Applied, Granted, Queued
from fencehold.core.state import State
from fencehold.core.views import all_in_use, all_names, in_use, in_use_count_max, names_by_session

_BUCKET_MAX = 256
"""Names in one bucket: what a page sorts again, and what is scanned when a bucket is full."""

WAITING_MAX = 1_024
"""Pages that may wait for the index to be made."""
FEW_NAMES = 1_024
"""A state with no more names than these is indexed on the spot: in less than a millisecond, once."""

SLICE_NAMES = 192
"""How many names, or sessions without any, are taken in at a time otherwise: a tenth of a millisecond of work."""

_TIDY_NAMES = SLICE_NAMES
"""To tidy a full bucket takes as long as to take in so many names, or longer: a slice tidies one."""

_PAUSE_S = 0.001
"""How long all else may run between two slices: a command takes several turns of the loop, and would meet a slice
in each of them."""

LOOKED_MAX = 4_096
"""How many names one page scans, in use or not."""

_SPARED_MS = 500
"""For how long it is kept after a list in brief was read to its end."""

IDLE_MS = 60_000
"""For how long of logical time an index is kept that is not read."""

_STALE_TIMES, _STALE_MORE = 4, 2_048
"""How many names may be known for each that is in use, and how many more."""

_BEGINNINGS = frozenset({Granted, Queued})
"""With these outcomes of an acquire its names come into use."""

_STALE_FEW = 64
"""How many stale names a page may scan before it drops them."""

_CALLS_PER_TURN = 256
"""How many of the callers that waited for an index are called at a time."""


class NamePage(NamedTuple):
    """Some names in use, in order, and the name to continue after; empty at the end."""

    names: list[str]
    cursor: str


class Names:
    """The index of the names of one replica, whenever there is one."""

    def __init__(self) -> None:
        self.index: NameIndex | None = None
        """None: no client lists. Otherwise it is to be fed."""
        self._state: State | None = None
        self._position = 0
        """Of the last entry that it was fed."""
        self._read_at = 0
        """Logical time of the last list."""
        self._rest: Iterator[str | None] | None = None
        """What the index still lacks while it is made."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._step: asyncio.Handle | None = None

    @property
    def is_crowded(self) -> bool:
        """Whether so many wait for the index already that no more should."""
        return len(self._waiting) >= WAITING_MAX

    def prepare(self, state: State, then: Callable[[], None]) -> None:
        """Call `then` when a page of the state can be read: at once, or when the index is made."""
        if not self._is_of(state):
            self.drop()
            if in_use_count_max(state) > FEW_NAMES:
                self._begin(state, names_by_session(state, SLICE_NAMES))
        if self._rest is None and not self._waiting:
            then()
            return
        self._waiting.append(then)
        if self._step is None:
            self._go_on()

    def page(self, state: State, prefix: str, after: str, count: int) -> NamePage | None:
        """The names in use that begin with the prefix and come after a name. None: it is not prepared.

        It may be shorter than `count`, or empty, and yet have a cursor: then it has scanned enough names.
        """
        if not self._is_of(state) and in_use_count_max(state) <= FEW_NAMES:
            self._begin(state, iter([list(all_names(state))]))
            self._take_in(inf)
        if self.index is None or self._rest is not None or not self._is_of(state):
            return None
        self._read_at = state.now_at
        return self.index.page(prefix, after, count)

    def spare(self, state: State) -> None:
        """The reader has read all of it and keeps that: unless another reads on, the index is not needed."""
        self._read_at = state.now_at - IDLE_MS + _SPARED_MS

    def feed(self, entry: Entry, applied: Applied) -> None:
        """Take in an entry that was just applied. Only if there is an index."""
        index, state = self.index, self._state
        if index is None or state is None:
            return
        if applied.position != self._position + 1:
            self.drop()
            return
        self._position += 1
        names: list[str] = []
        for command, outcome in zip(entry.commands, applied.outcomes, strict=True):
            # A waiter that is granted later was taken in when it joined the queue.
            if type(outcome) in _BEGINNINGS:
                names += command.names  # type: ignore[union-attr]
        index.add(names)
        if self._rest is None and (
            index.size > _STALE_TIMES * in_use_count_max(state) + _STALE_MORE
            or applied.at_ms - self._read_at > IDLE_MS
        ):
            self.drop()

    def drop(self) -> None:
        """Drop the index: the machine is another one. What waits for it is called, and finds that out."""
        self.index = self._state = self._rest = None
        if self._waiting and self._step is None:
            self._go_on()

    def _is_of(self, state: State) -> bool:
        return self._state is state and self._position == state.position

    def _begin(self, state: State, names: Iterator[list[str]]) -> None:
        self.index, self._state, self._rest = NameIndex(state), state, _one_by_one(names)
        self._position, self._read_at = state.position, state.now_at

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        if self._rest is None:
            self._step = loop.call_soon(self._on_turn)
        else:
            self._step = loop.call_later(_PAUSE_S, self._on_turn)

    def _on_turn(self) -> None:
        """One slice of the index, or, when it is made, of the callers that wait for it."""
        self._step = None
        if self._rest is not None:
            self._take_in()
        else:
            for _ in range(min(_CALLS_PER_TURN, len(self._waiting))):
                self._waiting.popleft()()
        if (self._rest is not None or self._waiting) and self._step is None:
            self._go_on()

    def _take_in(self, names_max: float = SLICE_NAMES) -> None:
        """Take in so many names, or fewer and what is as much work."""
        index, rest = self.index, self._rest
        if index is None or rest is None:
            return
        left = names_max
        for name in rest:
            left -= 1 if name is None else index.put(name)
            if left <= 0:
                return
        self._rest = None


def _one_by_one(portions: Iterator[list[str]]) -> Iterator[str | None]:
    """The names in portions; None at the beginning of each, which may be empty."""
    for names in portions:
        yield None
        yield from names


class NameIndex:
    """Names in order: buckets between bounds, each sorted when it is read, and split when it is full."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._starts = [""]
        """The least name that belongs into each bucket."""
        self._buckets: list[list[str]] = [[]]
        """Each is a sorted list with newcomers at its end, some perhaps twice."""
        self.size = 0
        """How many names it knows, stale and double ones counted."""
        self.looked = 0
        """How many names pages have scanned so far."""

    def add(self, names: list[str]) -> None:
        """Know some names, be they known or not."""
        for name in names:
            self.put(name)

    def put(self, name: str) -> int:
        """Know a name, be it known or not; returns to how many names that was as much work."""
        at = bisect_right(self._starts, name) - 1
        bucket = self._buckets[at]
        bucket.append(name)
        self.size += 1
        if len(bucket) <= _BUCKET_MAX:
            return 1
        self._tidy(at)
        return _TIDY_NAMES

    def page(self, prefix: str, after: str, count: int) -> NamePage:
        """Up to so many names in use, of one at the least, that begin with the prefix and come after a name."""
        found: list[str] = []
        cursor = last = ""
        looked = 0
        for name in self._candidates(prefix, after):
            looked += 1
            if name != last and in_use(self._state, name):
                if len(found) == count:
                    cursor = found[-1]
                    break
                found.append(name)
            last = name
            if looked == LOOKED_MAX:
                cursor = name
                break
        self.looked += looked
        if looked > 2 * len(found) + _STALE_FEW:
            self._drop_stale(max(prefix, after), last)
        return NamePage(found, cursor)

    def _candidates(self, prefix: str, after: str) -> Iterator[str]:
        """The known names that begin with the prefix and come after a name, in order."""
        at = self._bucket_of(max(prefix, after))
        bucket = self._sorted(at)
        begin = bisect_left(bucket, prefix) if after < prefix else bisect_right(bucket, after)
        while True:
            for index in range(begin, len(bucket)):
                if not bucket[index].startswith(prefix):
                    return
                yield bucket[index]
            at, begin = at + 1, 0
            if at == len(self._buckets):
                return
            bucket = self._sorted(at)

    def _bucket_of(self, name: str) -> int:
        return bisect_right(self._starts, name) - 1

    def _sorted(self, at: int) -> list[str]:
        # New names are behind what is sorted already: this takes little more than one pass.
        self._buckets[at].sort()
        return self._buckets[at]

    def _drop_stale(self, first: str, last: str) -> None:
        # From the last to the first, for the numbers of those behind change.
        for at in range(self._bucket_of(last), self._bucket_of(first) - 1, -1):
            self._tidy(at)

    def _tidy(self, at: int) -> None:
        """Keep of a bucket what is in use, once; halve it if that is much, and drop it if it is nothing."""
        bucket = self._buckets[at]
        names = sorted(all_in_use(self._state, set(bucket)))
        self.size += len(names) - len(bucket)
        half = len(names) // 2
        if len(names) > _BUCKET_MAX // 2:
            self._starts.insert(at + 1, names[half])
            self._buckets[at : at + 1] = [names[:half], names[half:]]
        elif names or not at:
            self._buckets[at] = names
        else:
            del self._starts[at], self._buckets[at]
