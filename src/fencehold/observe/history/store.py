"""The store: spans of time in which a client held a name, or waited for it, in an SQLite file with a bound.

1. What is written is written together with the position it came from, in one transaction: after a crash the store
   goes on from there, and nothing is in it twice.
2. It has a bound in rows, bytes and days. Beyond it the oldest go, a few at a time; what has not ended stays.
3. A file that cannot be read is renamed, and a new one begun: all that is in it came from the journal.
"""

import sqlite3
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fencehold.observe.history import schema
from fencehold.observe.history.ended_spans import Ended
from fencehold.observe.history.lasting_spans import EndOfHold, Lasting
from fencehold.observe.history.packs import Packs
from fencehold.observe.history.span import UNTIL, Gap, Span, age

_PRUNED_AT_ONCE = 5_000
_PRUNED_IN_TURN = 16
_VACUUMED_PAGES = 4_096
_DAY_MS = 86_400_000
_SLICES_MIN = 50
_MERGED_PARTS = 100
"""A slice is merged four times at the most: nothing is kept for more than a twenty-fifth longer than it may be."""
_SPAN_BYTES = 128
"""About what a packed span takes."""


class Bounds(NamedTuple):
    """What the history may take; beyond, the oldest is dropped."""

    rows_max: int = 1_000_000
    bytes_max: int = 1 << 30
    days_max: int = 30

    @property
    def slice_spans_max(self) -> int:
        """How many spans may be dropped where one is too many."""
        return min(self.rows_max, self.bytes_max // _SPAN_BYTES) // _SLICES_MIN

    @property
    def merged_ms_max(self) -> int:
        """Of how long a time slices become one: a slice is kept as long as what in it ended last."""
        return self.days_max * _DAY_MS // _MERGED_PARTS


class Store:
    """One file, opened by one process."""

    def __init__(self, path: Path, bounds: Bounds | None = None) -> None:
        """Open it, or begin it.

        Raises:
            OSError, sqlite3.Error: it cannot be written.
        """
        self.path = path
        self.bounds = bounds or Bounds()
        self.was_damaged = False
        """A file that could not be read was renamed."""
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            schema.put_aside(path)
            self.was_damaged = True
            self._open()
        self._before = 0, 0, 0
        """How many lasted, how many had ended and the number of the newest, when the transaction began."""

    def _open(self) -> None:
        self._db = db = schema.connected(self.path)
        self._lasting = Lasting(db)
        packs = Packs(db, self.bounds.slice_spans_max, self.bounds.merged_ms_max)
        self._ended = Ended(db, self._fact("pruned_to"), packs)
        self._positions = schema.positions(db)
        self._sessions: dict[int, dict[int, str]] = {}
        for shard, session, who in db.execute("SELECT shard, session, who FROM sessions"):
            self.sessions(shard)[session] = who

    def _fact(self, key: str) -> int:
        row = self._db.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        self._db.close()

    def position(self, shard: int = 0) -> int:
        """Up to where the journal of a shard is known."""
        return self._positions.get(shard, 0)

    def sessions(self, shard: int = 0) -> dict[int, str]:
        """The sessions of a shard that live, and whose they are."""
        return self._sessions.setdefault(shard, {})

    @property
    def rows(self) -> int:
        """How many spans there are, packed or not."""
        return self._lasting.count + self._ended.count

    # Written, in one transaction.

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._before = self._lasting.count, self._ended.count, self._ended.last

    def commit(self, position: int, shard: int = 0) -> None:
        """Keep all that was written since `begin`, and that it is of entries of a shard up to this position."""
        self.set_fact(f"{schema.POSITION}:{shard}" if shard else schema.POSITION, position)
        self._db.execute("COMMIT")
        self._positions[shard] = position

    def rollback(self) -> None:
        # A file that is full may have ended it already.
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._lasting.count, self._ended.count, self._ended.last = self._before

    def set_fact(self, key: str, value: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    @property
    def known_since(self) -> int:
        """From when on the past is known, in Unix milliseconds; 0: nothing was written yet."""
        return self._fact("known_since")

    def add(self, spans: Iterable[Span]) -> None:
        """Add spans, of which some have ended already."""
        ended: list[Span] = []
        lasting: list[Span] = []
        for span in spans:
            (lasting if span[UNTIL] is None else ended).append(span)
        self._lasting.add(lasting)
        self._ended.add(ended)

    def end_holds(self, ends: Sequence[EndOfHold]) -> list[Span]:
        """Take out holds that have ended, those of them that are known; they are to be added again."""
        return self._lasting.take_holds(ends)

    def end(self, spans: Iterable[Span], until: int, ended: str) -> list[Span]:
        """Take out spans that have ended at a time; they are to be added again."""
        return self._lasting.take(spans, until, ended)

    def waits_of(self, ticket: int, shard: int = 0) -> list[Span]:
        """The waits, one for each name, with a ticket that have not ended."""
        return self._lasting.waits(ticket, shard)

    def lasting(self, shard: int = 0) -> list[Span]:
        """All of a shard that has not ended."""
        return self._lasting.of_shard(shard)

    def note_late(self, name: str, fence: int, late: int) -> None:
        """A holder wanted to release a hold that had ended."""
        self._ended.note_late(name, fence, late)

    def add_gap(self, gap: Gap) -> None:
        self._db.execute("INSERT INTO gaps VALUES (?, ?, ?, ?, ?)", gap)
        self._db.execute("DELETE FROM gaps WHERE rowid <= (SELECT max(rowid) FROM gaps) - 1000")

    def know(self, session: int, who: str, shard: int = 0) -> None:
        """A session lives, and whose it is."""
        self.sessions(shard)[session] = who
        self._db.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", (shard, session, who))

    def forget(self, session: int, shard: int = 0) -> None:
        if self.sessions(shard).pop(session, None) is not None:
            self._db.execute("DELETE FROM sessions WHERE shard = ? AND session = ?", (shard, session))

    def forget_all(self, shard: int = 0) -> None:
        self.sessions(shard).clear()
        self._db.execute("DELETE FROM sessions WHERE shard = ?", (shard,))

    # Its bound.

    @property
    def size_bytes(self) -> int:
        """Of the file itself."""
        return self._pragma("page_count") * self._pragma("page_size")

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def keep_bound(self, now: int | None = None) -> None:
        """Drop the oldest until there is no more than there may be; or much of it, if there is far too much."""
        for _ in range(_PRUNED_IN_TURN):
            if not self.prune(now):
                return

    def prune(self, now: int | None = None) -> bool:
        """Drop some of the oldest, if there is too much; says whether there may be more to drop."""
        count = self._too_many(int(time.time() * 1000) if now is None else now)
        if count:
            self._drop(count)
        if self.size_bytes > self.bounds.bytes_max:
            # As a script: `execute` steps a pragma once, and each step gives back one page.
            self._db.executescript(f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})")
        return count > 0

    def _drop(self, count: int) -> None:
        pruned_to = self._ended.pruned_to
        self.begin()
        try:
            since = self._ended.drop(count)
            self.set_fact("pruned_to", self._ended.pruned_to)
            self.set_fact("known_since", max(self.known_since, since))
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._ended.pruned_to = pruned_to
            self.rollback()
            raise

    def _too_many(self, now: int) -> int:
        too_many = self.rows - self.bounds.rows_max
        if self.size_bytes > self.bounds.bytes_max:
            too_many = max(too_many, self._to_free())
        if too_many <= 0:
            return self._ended.older_than(now - self.bounds.days_max * _DAY_MS, _PRUNED_AT_ONCE)
        # What lasts is not dropped, however much it is.
        return min(too_many, _PRUNED_AT_ONCE, self._ended.count)

    def _to_free(self) -> int:
        pages = self._pragma("page_count")
        # Pages that are free are given back; only if that is not enough, more is dropped.
        in_use_bytes = int(self.size_bytes * (pages - self._pragma("freelist_count")) / max(pages, 1))
        return 0 if in_use_bytes <= self.bounds.bytes_max else self.rows // 20 + 1

    # Read.

    def spans(self, what: int, name: str, since: int | None, until: int | None, count: int) -> list[Span]:
        """The newest of what covers any instant between two times, the newest first."""
        earliest, latest = -1 if since is None else since, 1 << 62 if until is None else until
        found = self._ended.spans(what, name, earliest, latest, count)
        found += self._lasting.of_name(what, name, latest, count)
        found.sort(key=age, reverse=True)
        return found[:count]

    def gaps(self, since: int | None, until: int | None, shards: Collection[int] = (0,)) -> list[Gap]:
        """The gaps of some shards between two times."""
        marks = ", ".join("?" * len(shards))
        rows = self._db.execute(
            f"SELECT first, last, since, until, shard FROM gaps WHERE until >= ? AND since <= ? "
            f"AND shard IN ({marks}) ORDER BY until DESC, first DESC LIMIT 100",
            (since if since is not None else -1, until if until is not None else 1 << 62, *shards),
        )
        return [Gap(*row) for row in rows]

    def has_gap_after(self, position: int, shard: int = 0) -> bool:
        """Whether anything that happened in a shard after a position is not known."""
        asked = "SELECT 1 FROM gaps WHERE shard = ? AND last > ? LIMIT 1"
        return self._db.execute(asked, (shard, position)).fetchone() is not None
