"""Ended: spans that are over, numbered in the order in which they were written.

Those that ended together with many others of their class are packed into slices (`packs`), the others are a row
each. A slice has one number.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from fencehold.observe.history.packs import Kind, Packs
from fencehold.observe.history.span import (
    CLASSES_MS,
    HOLD,
    LONGER,
    NEWEST_FIRST,
    Span,
    class_of,
)

PACKED_MIN = 128
"""So many spans of a kind, written at once, are packed. Where they are fewer there is time for a row each."""
_COLUMNS = ", ".join(Span._fields)
_INSERT = f"INSERT INTO spans ({_COLUMNS}, class, id) VALUES ({', '.join('?' * (len(Span._fields) + 2))})"
_SELECT = (
    f"SELECT {_COLUMNS} FROM spans WHERE name = ? AND what = ? AND class = ? AND since BETWEEN ? AND ? "
    f"AND until >= ? ORDER BY {NEWEST_FIRST} LIMIT ?"
)
_OLDEST = (
    "SELECT id, 1, until, since FROM spans WHERE id > ?1 "
    "UNION ALL SELECT id, rows, until, until FROM slices WHERE id > ?1 ORDER BY id"
)
_NOTE_LATE = (
    "UPDATE spans SET late = ? WHERE id = (SELECT id FROM (SELECT id, fence FROM spans "
    f"WHERE name = ? AND what = {HOLD} AND class = ? ORDER BY since DESC LIMIT 1000) WHERE fence = ? LIMIT 1)"
)


class Ended:
    """Those in one file."""

    def __init__(self, db: sqlite3.Connection, pruned_to: int, packs: Packs) -> None:
        self._db = db
        self._packs = packs
        self.pruned_to = pruned_to
        """All rows and slices up to this number are gone."""
        self.last = max(pruned_to, self._number("max(id) FROM spans"), self._number("max(id) FROM slices"))
        """The number of the newest."""
        self.count = self._number("count(*) FROM spans") + self._number("sum(rows) FROM slices")
        """How many spans they are."""

    def _number(self, asked: str) -> int:
        return int(self._db.execute(f"SELECT {asked}").fetchone()[0] or 0)

    # Written.

    def add(self, spans: list[Span]) -> None:
        self.count += len(spans)
        together = self._packs.slice_spans_max
        for kind, group in _by_kind(spans):
            if len(group) < PACKED_MIN or together < PACKED_MIN:
                rows = ((*span, kind[1], number) for number, span in enumerate(group, self.last + 1))
                self._db.executemany(_INSERT, rows)
                self.last += len(group)
                continue
            for start in range(0, len(group), together):
                self.last += 1
                self._packs.add(self.last, kind, group[start : start + together])

    def note_late(self, name: str, fence: int, late: int) -> None:
        """A holder wanted to release a hold that had ended."""
        for number in range(LONGER + 1):
            if self._db.execute(_NOTE_LATE, (late, name, number, fence)).rowcount:
                return
        self._packs.note_late(name, fence, late)

    # Dropped, the oldest first.

    def older_than(self, before: int, count_max: int) -> int:
        """How many of the next to go ended before a time, about `count_max` at the most."""
        count = 0
        with closing(self._db.execute(_OLDEST, (self.pruned_to,))) as oldest:
            for _, rows, until, _ in oldest:
                if until >= before or count >= count_max:
                    break
                count += rows
        return count

    def drop(self, count: int) -> int:
        """Drop so many, or somewhat more; says when the last of them began."""
        up_to, found, since_last = self.pruned_to, 0, 0
        with closing(self._db.execute(_OLDEST, (self.pruned_to,))) as oldest:
            for number, rows, _, since in oldest:
                up_to, found, since_last = number, found + rows, max(since_last, since)
                if found >= count:
                    break
        gone = (self.pruned_to, up_to)
        self._db.execute("DELETE FROM spans WHERE id > ? AND id <= ?", gone)
        self._packs.drop(*gone)
        self.count -= found
        self.pruned_to = up_to
        return since_last

    # Read.

    def spans(self, what: int, name: str, since: int, until: int, count: int) -> list[Span]:
        """The newest of what covers any instant between two times; of those, and of some that are older."""
        found = self._packs.spans(what, name, since, until, count)
        for number in range(LONGER + 1):
            earliest = since - CLASSES_MS[number] if number < LONGER else -1
            rows = self._db.execute(_SELECT, (name, what, number, max(earliest, -1), until, since, count))
            found.extend(map(Span._make, rows))
        return found


def _by_kind(spans: list[Span]) -> Iterable[tuple[Kind, list[Span]]]:
    """Holds and waits apart, and each by how long they lasted."""
    groups: dict[Kind, list[Span]] = {}
    short_ms = CLASSES_MS[0]
    for span in spans:
        lasted_ms = (span.until or 0) - span.since
        # Nearly all are short.
        kind = span.what, class_of(lasted_ms) if lasted_ms > short_ms else 0
        group = groups.get(kind)
        if group is None:
            group = groups[kind] = []
        group.append(span)
    return sorted(groups.items())
