"""Lasting: spans that have not ended, as far as is known. One that ends is taken out, and added to the others."""

import sqlite3
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from fencehold.observe.history.span import HOLD, NAME, NEWEST_FIRST, WAIT, Span

_OF_ENDED = {"until", "ended", "by", "late"}
_FIELDS = tuple(field for field in Span._fields if field not in _OF_ENDED)
_PLACES = ", ".join(f"?{place}" for place, field in enumerate(Span._fields, 1) if field in _FIELDS)
_INTO = f"INTO lasting ({', '.join(_FIELDS)}) VALUES ({_PLACES})"
_SELECT = f"SELECT {', '.join('NULL' if field in _OF_ENDED else field for field in Span._fields)} FROM lasting"
_DELETE = "DELETE FROM lasting WHERE name = ? AND what = ? AND fence = ?"
_DELETE_ONE = "DELETE FROM lasting WHERE name = ? AND what = ? AND fence = ? AND ticket = ? AND shard = ?"
_OF_ENDS = {"until": "max(since, column3)", "ended": "column4", "by": "column5", "late": "NULL"}
_ENDED = (
    f"SELECT {', '.join(_OF_ENDS.get(field, field) for field in Span._fields)} "
    f"FROM (VALUES {{}}) CROSS JOIN lasting WHERE name = column1 AND what = {HOLD} AND fence = column2"
)
"""Holds with their ends: of each a name, a fence, when, how and by whom. The file is searched for each."""
_ENDS_AT_ONCE = 128
_name_of_span, _name_of_end = itemgetter(NAME), itemgetter(0)


class EndOfHold(NamedTuple):
    """How a hold ended whose beginning was written before."""

    name: str
    fence: int
    until: int
    ended: str
    by: str | None = None


class Lasting:
    """Those in one file."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.count: int = db.execute("SELECT count(*) FROM lasting").fetchone()[0]

    def add(self, spans: list[Span]) -> None:
        # Sorted, as they stand in the file.
        rows = sorted(spans, key=_name_of_span)
        added = self._db.executemany(f"INSERT OR IGNORE {_INTO}", rows).rowcount if rows else 0
        if added < len(rows):
            # A journal that was restored tells them again.
            self._db.executemany(f"INSERT OR REPLACE {_INTO}", rows)
        self.count += added

    def of_name(self, what: int, name: str, until: int, count: int) -> list[Span]:
        """The newest that had begun at a time."""
        where = f"WHERE name = ? AND what = ? AND since <= ? ORDER BY {NEWEST_FIRST} LIMIT ?"
        return self._read(where, (name, what, until, count))

    def of_shard(self, shard: int) -> list[Span]:
        return self._read("WHERE shard = ?", (shard,))

    def waits(self, ticket: int, shard: int) -> list[Span]:
        """The waits, one for each name, with a ticket."""
        return self._read(f"WHERE what = {WAIT} AND shard = ? AND ticket = ?", (shard, ticket))

    def take_holds(self, ends: Sequence[EndOfHold]) -> list[Span]:
        """Take out holds that have ended, those of them that are known.

        When a session ends there are thousands: one statement for many takes half as long as two for each.
        """
        first_ends: dict[tuple[str, int], EndOfHold] = {}
        for end in ends:
            first_ends.setdefault((end.name, end.fence), end)
        sorted_ends = sorted(first_ends.values(), key=_name_of_end)
        found: list[Span] = []
        for start in range(0, len(sorted_ends), _ENDS_AT_ONCE):
            part = sorted_ends[start : start + _ENDS_AT_ONCE]
            marks = ", ".join(["(?, ?, ?, ?, ?)"] * len(part))
            values = [value for end in part for value in end]
            found += map(Span._make, self._db.execute(_ENDED.format(marks), values))
        self._db.executemany(_DELETE, ((span.name, HOLD, span.fence) for span in found))
        self.count -= len(found)
        return found

    def take(self, spans: Iterable[Span], until: int, ended: str) -> list[Span]:
        """Take out these, which have ended at a time."""
        taken = [span._replace(until=max(until, span.since), ended=ended) for span in spans]
        keys = ((span.name, span.what, span.fence, span.ticket, span.shard) for span in taken)
        self.count -= max(0, self._db.executemany(_DELETE_ONE, keys).rowcount)
        return taken

    def _read(self, where: str, values: tuple[Any, ...]) -> list[Span]:
        return [Span._make(row) for row in self._db.execute(f"{_SELECT} {where}", values)]
