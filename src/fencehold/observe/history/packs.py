"""Packs: spans that ended by the thousand, kept by the dozen.

A row of its own for each, and its place in an index of a million names, costs ten times what it takes to pack it
with its neighbours. So what is written at once and has ended is a *slice*: sorted by name, and cut into packs.

1. A slice is of spans of one class (`CLASSES_MS`) that were written together: it covers little more time than they
   lasted, so few slices are looked at for an instant.
2. In a slice packs are found by the first name in each: of one name there is one, or some that follow each other.
3. A slice is dropped as a whole, in its turn.
"""

import sqlite3
from collections.abc import Iterator
from operator import itemgetter

import msgspec

from fencehold.observe.history.span import NAME, SINCE, UNTIL, Span, newest_first

PACK_SPANS = 64
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Span]).decode
_name, _since, _until = itemgetter(NAME), itemgetter(SINCE), itemgetter(UNTIL)
_OF_NAME = (
    "SELECT number, first, last, since, until, spans FROM packs WHERE slice = ? AND first <= ? "
    "ORDER BY first DESC, number DESC"
)


class Packs:
    """Those in one file."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, slice_id: int, spans: list[Span]) -> None:
        """Keep spans that have ended, all of one class; they are sorted."""
        spans.sort(key=_name)
        rows = []
        for number in range(0, len(spans), PACK_SPANS):
            pack = spans[number : number + PACK_SPANS]
            since, until = min(map(_since, pack)), max(map(_until, pack))
            rows.append((slice_id, pack[0].name, number, pack[-1].name, since, until, _encode(pack)))
        since, until = min(row[4] for row in rows), max(row[5] for row in rows)
        self._db.execute("INSERT INTO slices VALUES (?, ?, ?, ?)", (slice_id, len(spans), since, until))
        self._db.executemany("INSERT INTO packs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def spans(self, what: int, name: str, since: int, until: int, count: int) -> list[Span]:
        """The newest of what covers any instant between two times, the newest first."""
        found: list[Span] = []
        slices = self._db.execute(
            "SELECT id, until FROM slices WHERE until >= ? AND since <= ? ORDER BY until DESC", (since, until)
        )
        for slice_id, newest in slices:
            if len(found) >= count and newest < found[count - 1].since:
                break
            more = [span for span in self._of_slice(slice_id, name, since, until) if span.what == what]
            if more:
                found.extend(more)
                found.sort(key=newest_first, reverse=True)
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
        for (slice_id,) in self._db.execute("SELECT id FROM slices ORDER BY until DESC").fetchall():
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
        if span.name == name and span.fence == fence and span.what == 0:
            spans[place] = span._replace(late=late)
            return True
    return False
