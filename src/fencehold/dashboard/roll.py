"""The roll of names: all that are held or awaited, in order, so that a page of them is found without a sort.

1. Rows are kept by fence. Fences only grow, so the order of fences is the order of grants: the oldest hold is the
   first, and a new one goes to the end. They are sorted once, when all that there were at first have been read.
   Fences of several shards have no order: there, rows are kept by the time of the grant.
2. By name they are sorted on demand, and later additions are merged in: nearly sorted, it is quick. Few names are
   awaited, and these are sorted by their queues each time.
3. The result of a filter is cached for as long as it took, times `_REST`: open pages that scroll do not make it
   scan half a million names repeatedly. If it found few, names that are granted or released meanwhile are merged
   in at once: a user who views a few names sees them change.
"""

import re
import time
from collections.abc import Callable, Container, Iterable
from heapq import nlargest, nsmallest
from itertools import chain, islice
from typing import NamedTuple

from msgspec import Struct

from fencehold.locks.templates import template_of

NAMES_MAX = 1_000_000
"""How many are kept. Those beyond are counted, not shown."""
SORTS = ("age", "name", "queue")
_REST = 12.0
_FOUND_MAX = 32
_FEW = 2_000
_TEMPLATES_MAX, _TEMPLATES_S = 24, 10.0
_PATTERN_CHARS_MAX = 512


class Row(Struct, gc=False):
    """A name, as far as it is known here. Not tracked by the collector: it refers to nothing that refers back."""

    name: str
    fence: int = 0
    holders: int = 0
    waiters: int = 0
    mode: str = ""
    session: int = 0
    owner: str = ""
    since_ms: int = 0
    """The time of the grant; 0: unknown."""
    until_ms: int = 0
    """When it ends by itself; 0: with its session."""
    is_whole: bool = False
    """Whether mode and end are known: an event does not contain them."""
    shard: int = 0


class Wanted(NamedTuple):
    """Which names a page shows, and in which order."""

    search: str = ""
    """Text that a name contains; with `*`, a pattern of the whole name, in which it is any text."""
    prefix: str = ""
    sessions: frozenset[int] | None = None
    """Only what is held by one of these."""
    state: str = ""
    """`held`, `awaited`, or both."""
    sort: str = "age"
    is_reversed: bool = False


class RollPage(NamedTuple):
    """Some rows, and the total."""

    rows: list[Row]
    total: int


class _Found:
    """The result of a filter, until when it is valid, and which names came or went since, if few."""

    __slots__ = ("names", "touched", "until")

    def __init__(self, names: list[str], until: float) -> None:
        self.names, self.until = names, until
        self.touched: dict[str, None] | None = {} if len(names) <= _FEW else None


class Roll:
    """All names that one login may see in one tier."""

    def __init__(self, now: Callable[[], float] = time.monotonic, *, shards: int = 1) -> None:
        self._now = now
        self._order = _fence if shards == 1 else _since
        self._rows: dict[str, Row] = {}
        """By fence, or by time."""
        self._unheld: dict[str, Row] = {}
        """Awaited, but not held: delayed, or kept for the least time of a run."""
        self._awaited: dict[str, None] = {}
        self._sorted: list[str] = []
        self._changed: set[str] = set()
        """Names that came or went since the last sort."""
        self._found: dict[Wanted, _Found] = {}
        self._templates: tuple[float, list[tuple[str, int]]] = (float("-inf"), [])
        """Results of filters, and until when they are valid."""
        self._is_settled = False
        self.is_cut = False
        """Whether there are more names than are kept."""

    def __len__(self) -> int:
        return len(self._rows) + len(self._unheld)

    @property
    def held(self) -> int:
        return len(self._rows)

    @property
    def awaited(self) -> int:
        return len(self._awaited)

    def get(self, name: str) -> Row | None:
        return self._rows.get(name) or self._unheld.get(name)

    def put(self, row: Row) -> None:
        """Store what is known of a name now."""
        name, before = row.name, self._rows.get(row.name)
        if before is None and name not in self._unheld:
            if len(self) >= NAMES_MAX:
                self.is_cut = True
                return
            self._changed.add(name)
        if row.holders:
            self._unheld.pop(name, None)
            if before is not None and before.fence != row.fence:
                # To the end: it was granted later than all others.
                del self._rows[name]
            self._rows[name] = row
            if before is None or before.fence != row.fence:
                self._touch(name)
        else:
            self._rows.pop(name, None)
            self._unheld[name] = row
            self._touch(name)
        self._note_queue(row)

    def drop(self, name: str) -> None:
        """A name is neither held nor awaited any more."""
        if self._rows.pop(name, None) or self._unheld.pop(name, None):
            self._awaited.pop(name, None)
            self._changed.add(name)
            self._touch(name)

    def _touch(self, name: str) -> None:
        if not self._is_settled:
            return
        for found in self._found.values():
            touched = found.touched
            if touched is not None:
                # After those that were touched before: the order of grants.
                touched.pop(name, None)
                touched[name] = None
                if len(touched) > _FEW:
                    found.touched = None

    def settle(self) -> None:
        """All initial rows are there: sort them, once."""
        # They came by name: that sort finds them sorted.
        self._sorted, self._changed = sorted((*self._rows, *self._unheld)), set()
        self._rows = {row.name: row for row in sorted(self._rows.values(), key=self._order)}
        self._is_settled = True
        self._found.clear()

    def _note_queue(self, row: Row) -> None:
        if row.waiters:
            self._awaited[row.name] = None
        else:
            self._awaited.pop(row.name, None)

    # Reading.

    def of_shards(self, shards: Container[int]) -> list[Row]:
        """All rows of some shards."""
        return [row for row in chain(self._rows.values(), self._unheld.values()) if row.shard in shards]

    def oldest(self, count: int) -> list[Row]:
        """Those held longest."""
        if not self._is_settled:
            return nsmallest(count, self._rows.values(), key=self._order)
        return list(islice(self._rows.values(), count))

    def longest_queues(self, count: int) -> list[Row]:
        rows = (row for name in self._awaited if (row := self.get(name)) is not None)
        return nlargest(count, rows, key=lambda row: (row.waiters, -row.since_ms))

    def awaited_names(self) -> list[str]:
        return list(self._awaited)

    def templates(self, count: int, sample: int = 4_000) -> list[tuple[str, int]]:
        """How names are built, most frequent first, by a sample from all over the list."""
        until, known = self._templates
        if self._now() < until:
            return known[:count]
        names = self._in_order()
        counts: dict[str, int] = {}
        for name in names[:: max(1, len(names) // sample)]:
            template = template_of(name)
            counts[template] = counts.get(template, 0) + 1
        found = nlargest(_TEMPLATES_MAX, counts.items(), key=lambda item: (item[1], item[0]))
        self._templates = self._now() + _TEMPLATES_S, found
        return found[:count]

    def page(self, wanted: Wanted, offset: int, count: int) -> RollPage:
        """Some of the rows that are wanted.

        Raises:
            KeyError: there is no such order.
        """
        if wanted.sort not in SORTS:
            raise KeyError(wanted.sort)
        names = self._names(wanted)
        rows = (self.get(name) for name in names[offset : offset + count])
        return RollPage([row for row in rows if row is not None], len(names))

    def _names(self, wanted: Wanted) -> list[str]:
        started = self._now()
        found = self._found.get(wanted)
        if found is not None and started < found.until:
            return self._up_to_date(found, wanted)
        names = self._ordered(wanted)
        ended = self._now()
        self._found.pop(wanted, None)
        while len(self._found) >= _FOUND_MAX:
            del self._found[next(iter(self._found))]
        self._found[wanted] = _Found(names, ended + _REST * (ended - started))
        return names

    def _up_to_date(self, found: _Found, wanted: Wanted) -> list[str]:
        touched = found.touched
        if not touched:
            return found.names
        there = self._matching([name for name in touched if self.get(name) is not None], wanted)
        names = [name for name in found.names if name not in touched]
        names = there[::-1] + names if wanted.is_reversed else names + there
        if wanted.sort == "name":
            names.sort(reverse=wanted.is_reversed)
        found.names, found.touched = names, {} if len(names) <= _FEW else None
        return names

    def _ordered(self, wanted: Wanted) -> list[str]:
        if wanted.sort == "name":
            names = self._matching(self._in_order(), wanted)
        elif self._is_settled:
            names = self._matching(chain(self._rows, self._unheld), wanted)
        else:
            names = self._matching((row.name for row in sorted(self._rows.values(), key=self._order)), wanted)
        if wanted.sort == "queue":
            # Only those that were found: quicker than sorting all first.
            awaited = self._awaited
            first = sorted((name for name in names if name in awaited), key=self._queue_of)
            names = first + [name for name in names if name not in awaited]
        return names[::-1] if wanted.is_reversed else names

    def _queue_of(self, name: str) -> int:
        row = self.get(name)
        return -row.waiters if row is not None else 0

    def _matching(self, names: Iterable[str], wanted: Wanted) -> list[str]:
        # One pass for each filter, as a comprehension: a function called for each of half a million names is slow.
        search = wanted.search[:_PATTERN_CHARS_MAX]
        if search and "*" not in search:
            # The quickest, and it leaves the least to the others.
            names = [name for name in names if search in name]
        if wanted.state == "held":
            names = [name for name in names if name in self._rows]
        elif wanted.state == "awaited":
            names = [name for name in names if name in self._awaited]
        if wanted.prefix:
            names = [name for name in names if name.startswith(wanted.prefix)]
        if "*" in search:
            matches = _pattern(search).fullmatch
            names = [name for name in names if matches(name)]
        if wanted.sessions is not None:
            sessions, rows = wanted.sessions, self._rows
            names = [name for name in names if name in rows and rows[name].session in sessions]
        return list(names)

    def _in_order(self) -> list[str]:
        if self._changed:
            changed = self._changed
            names = [name for name in self._sorted if name not in changed]
            names += sorted(name for name in changed if name in self._rows or name in self._unheld)
            # Two sorted runs: the sort sees that, and merges them.
            names.sort()
            self._sorted, self._changed = names, set()
        return self._sorted


def _pattern(search: str) -> "re.Pattern[str]":
    # Stars in a row would be tried in every division.
    parts = re.split(r"\*+", search)
    return re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)


def _fence(row: Row) -> int:
    return row.fence


def _since(row: Row) -> int:
    return row.since_ms
