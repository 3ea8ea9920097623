"""Packs: spans that ended by the thousand, kept by the dozen.

A row of its own for each, and its place in an index of a million names, costs ten times what it takes to pack it
with its neighbours. So what is written at once and has ended is a *slice*: sorted by name, and cut into packs.

1. A slice is of holds, or of waits, of one class (`CLASSES_MS`) that were written one after the other: it covers
   little more time than they lasted, so few slices are looked at for an instant.
2. In a slice packs are found by the first name in each: of one name there is one, or some that follow each other.
3. For all that ever happened to a name every slice is looked at. So that there are not many, four of one kind and
   level become one of the next, until it would be too large, or of too long a time.
4. A slice is dropped as a whole, in its turn.
"""

import sqlite3
from collections.abc import Iterator
from operator import itemgetter
from typing import TypeAlias

import msgspec

from fencehold.observe.history.span import HOLD, NAME, SINCE, UNTIL, Span, age

PACK_SPANS = 64
_MERGED = 4
_SLICE_SPANS_MAX = 32_768
Kind: TypeAlias = tuple[int, int]
"""What spans of a slice are, holds or waits, and their class."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Span]).decode
_name, _since, _until = itemgetter(NAME), itemgetter(SINCE), itemgetter(UNTIL)
_NEWEST = "SELECT id, rows, until FROM slices WHERE what = ? AND class = ? AND level = ? ORDER BY id DESC LIMIT ?"
_OF_NAME = (
    "SELECT number, first, last, since, until, spans FROM packs WHERE slice = ? AND first <= ? "
    "ORDER BY first DESC, number DESC"
)


class Packs:
    """Those in one file."""

    def __init__(self, db: sqlite3.Connection, slice_spans_max: int, merged_ms_max: int) -> None:
        """A slice is dropped as a whole, so it is to be a small part of all that is kept: in spans, and in time.

        `merged_ms_max`: slices become one only if they ended within such a time.
        """
        self._db = db
        self.slice_spans_max = min(slice_spans_max, _SLICE_SPANS_MAX)
        self._merged_ms_max = merged_ms_max

    def add(self, slice_id: int, kind: Kind, spans: list[Span]) -> None:
        """Keep spans of one kind that have ended, `slice_spans_max` at the most, behind all that are kept."""
        self._insert(slice_id, kind, 0, spans)
        self._merge(kind, 0)

    def _insert(self, slice_id: int, kind: Kind, level: int, spans: list[Span]) -> None:
        # Those of one name stay in their order, which is about that of time.
        spans.sort(key=_name)
        rows = []
        for number in range(0, len(spans), PACK_SPANS):
            pack = spans[number : number + PACK_SPANS]
            since, until = min(map(_since, pack)), max(map(_until, pack))
            rows.append((slice_id, pack[0].name, number, pack[-1].name, since, until, _encode(pack)))
        since, until = min(row[4] for row in rows), max(row[5] for row in rows)
        values = (slice_id, *kind, level, len(spans), since, until)
        self._db.execute("INSERT INTO slices VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        self._db.executemany("INSERT INTO packs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def _merge(self, kind: Kind, level: int) -> None:
        found = self._db.execute(_NEWEST, (*kind, level, _MERGED)).fetchall()
        if len(found) < _MERGED or sum(rows for _, rows, _ in found) > self.slice_spans_max:
            return
        ends = [until for _, _, until in found]
        if max(ends) - min(ends) > self._merged_ms_max:
            # Of quiet days: the oldest would be kept for as long as the newest.
            return
        spans: list[Span] = []
        for slice_id, _, _ in reversed(found):
            for (data,) in self._db.execute("SELECT spans FROM packs WHERE slice = ?", (slice_id,)):
                spans += _decode(data)
            self._db.execute("DELETE FROM packs WHERE slice = ?", (slice_id,))
            self._db.execute("DELETE FROM slices WHERE id = ?", (slice_id,))
        self._insert(found[0][0], kind, level + 1, spans)
        self._merge(kind, level + 1)

    def spans(self, what: int, name: str, since: int, until: int, count: int) -> list[Span]:
        """The newest of what covers any instant between two times, the newest first."""
        found: list[Span] = []
        slices = self._db.execute(
            "SELECT id, until FROM slices WHERE what = ? AND until >= ? AND since <= ? ORDER BY until DESC",
            (what, since, until),
        )
        for slice_id, newest in slices:
            if len(found) >= count and newest < found[count - 1].since:
                break
            more = list(self._of_slice(slice_id, name, since, until))
            if more:
                found.extend(more)
                found.sort(key=age, reverse=True)
                del found[count:]
        return found

    def _of_slice(self, slice_id: int, name: str, since: int, until: int) -> Iterator[Span]:
        needle = _encode(name)
        for _, _, last, first_at, last_at, data in self._db.execute(_OF_NAME, (slice_id, name)):
            if last < name:
                return
            # Most have it not: to look for its bytes takes a hundredth of what it takes to read them all.
            if first_at <= until and last_at >= since and needle in data:
                for span in _decode(data):
                    if span.name == name and span.since <= until and (span.until or 0) >= since:
                        yield span

    def note_late(self, name: str, fence: int, late: int) -> bool:
        """A holder wanted to release a hold that had ended; says whether it is here."""
        needle = _encode(name)
        slices = self._db.execute("SELECT id FROM slices WHERE what = ? ORDER BY until DESC", (HOLD,))
        for (slice_id,) in slices.fetchall():
            for number, first, last, _, _, data in self._db.execute(_OF_NAME, (slice_id, name)):
                if last < name:
                    break
                if needle in data and _notes_late(spans := _decode(data), name, fence, late):
                    self._db.execute(
                        "UPDATE packs SET spans = ? WHERE slice = ? AND first = ? AND number = ?",
                        (_encode(spans), slice_id, first, number),
                    )
                    return True
        return False

    def drop(self, after: int, up_to: int) -> int:
        """Drop the slices behind a number, up to another; how many spans those had."""
        span = (after, up_to)
        asked = "SELECT coalesce(sum(rows), 0) FROM slices WHERE id > ? AND id <= ?"
        (gone,) = self._db.execute(asked, span).fetchone()
        if gone:
            self._db.execute("DELETE FROM packs WHERE slice > ? AND slice <= ?", span)
            self._db.execute("DELETE FROM slices WHERE id > ? AND id <= ?", span)
        return int(gone)


def _notes_late(spans: list[Span], name: str, fence: int, late: int) -> bool:
    for place, span in enumerate(spans):
        if span.name == name and span.fence == fence:
            spans[place] = span._replace(late=late)
            return True
    return False
