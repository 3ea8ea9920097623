"""The store: spans of time in which somebody held a name, or waited for it, in an SQLite file with a bound.

1. What is written is written together with the position it came from, in one transaction: after a crash the store
   goes on from there, and nothing is in it twice.
2. It has a bound in rows, bytes and days. Beyond it the oldest go, a few at a time; what has not ended stays.
3. Spans are filed by how long they lasted (`_CLASSES_MS`). Those of one class that cover an instant began no
   longer before it than the class lasts, so they are found without a look at all that ever happened to the name.
4. A file that cannot be read is renamed, and a new one begun: all that is in it came from the journal.
"""

import contextlib
import os
import sqlite3
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

HOLD, WAIT = 0, 1
_CLASSES_MS = (64, 2_048, 65_536, 2_097_152, 67_108_864)
_LONGER, _OPEN = len(_CLASSES_MS), len(_CLASSES_MS) + 1
_VERSION = 2
_PRUNED_AT_ONCE = 5_000
_SLICES_MAX = 16
_VACUUMED_PAGES = 4_096
_DAY_MS = 86_400_000

_SCHEMA = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions (
    shard INTEGER NOT NULL, session INTEGER NOT NULL, who TEXT NOT NULL, PRIMARY KEY (shard, session)
) WITHOUT ROWID;
CREATE TABLE gaps (
    first INTEGER NOT NULL, last INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL,
    shard INTEGER NOT NULL
);
CREATE TABLE spans (
    id INTEGER PRIMARY KEY,
    what INTEGER NOT NULL,
    name TEXT NOT NULL,
    fence INTEGER NOT NULL,
    mode TEXT NOT NULL,
    session INTEGER NOT NULL,
    who TEXT NOT NULL,
    owner TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER,
    class INTEGER NOT NULL,
    waited INTEGER,
    ended TEXT,
    by TEXT,
    late INTEGER,
    ticket INTEGER NOT NULL,
    position INTEGER NOT NULL,
    shard INTEGER NOT NULL
);
CREATE INDEX spans_of_name ON spans (name, what, class, since);
CREATE INDEX open_spans ON spans (id) WHERE until IS NULL;
CREATE INDEX open_waits ON spans (shard, ticket) WHERE what = 1 AND until IS NULL;
"""
_OF_VERSION_1 = """
ALTER TABLE spans ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gaps ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions RENAME TO sessions_of_version_1;
CREATE TABLE sessions (
    shard INTEGER NOT NULL, session INTEGER NOT NULL, who TEXT NOT NULL, PRIMARY KEY (shard, session)
) WITHOUT ROWID;
INSERT INTO sessions SELECT 0, session, who FROM sessions_of_version_1;
DROP TABLE sessions_of_version_1;
DROP INDEX open_waits;
CREATE INDEX open_waits ON spans (shard, ticket) WHERE what = 1 AND until IS NULL;
"""
"""It knew one shard."""
_POSITION = "position"


class Bounds(NamedTuple):
    """What the history may take; beyond, the oldest is dropped."""

    rows_max: int = 1_000_000
    bytes_max: int = 1 << 30
    days_max: int = 30


class Span(NamedTuple):
    """A hold, or a wait, as it is kept. Times are Unix milliseconds."""

    what: int
    name: str
    fence: int
    mode: str
    session: int
    who: str
    """What its client said of itself, and its principal, as the recorder wrote it."""
    owner: str
    since: int
    position: int
    """Where in the journal it began."""
    until: int | None = None
    """None: it has not ended, as far as is known."""
    waited: int | None = None
    """How long a hold was waited for, in milliseconds; None: not known."""
    ended: str | None = None
    by: str | None = None
    late: int | None = None
    """When its holder wanted to release it, though it had ended."""
    ticket: int = 0
    shard: int = 0
    """Where it was granted, or waited for: sessions, tickets and positions are that shard's."""


class Gap(NamedTuple):
    """Positions of a shard of which nothing is known here, and between which times they were."""

    first: int
    last: int
    since: int
    until: int
    shard: int = 0


_COLUMNS = ", ".join(Span._fields)
_INSERT = f"INSERT INTO spans ({_COLUMNS}, class) VALUES ({', '.join('?' * (len(Span._fields) + 1))})"
_SELECT = f"SELECT {_COLUMNS} FROM spans"


_CLASS = " + ".join(f"(?3 - since > {most})" for most in _CLASSES_MS)
"""That of a span which ends at the third value, as `class_of` says it."""
_END_HOLD = (
    f"UPDATE spans SET until = max(since, ?3), ended = ?4, by = ?5, class = {_CLASS} "
    f"WHERE name = ?1 AND what = {HOLD} AND class = {_OPEN} AND fence = ?2"
)


def class_of(since: int, until: int | None) -> int:
    """How long a span lasted, roughly."""
    if until is None:
        return _OPEN
    return bisect_left(_CLASSES_MS, until - since)


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
            self._put_aside()
            self._open()
        self._positions = _positions(self._db)
        self._sessions: dict[int, dict[int, str]] = {}
        for shard, session, who in self._db.execute("SELECT shard, session, who FROM sessions"):
            self.sessions(shard)[session] = who
        self.rows = int(self._db.execute("SELECT count(*) FROM spans").fetchone()[0])
        self._last_id = int(self._db.execute("SELECT coalesce(max(id), 0) FROM spans").fetchone()[0])
        self._pruned_to = self._fact("pruned_to")
        """All spans up to this id are gone, but for those that have not ended."""

    def _open(self) -> None:
        # Names and clients are not for everybody on this machine.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        db = self._db
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA journal_size_limit = {16 << 20}")
        db.execute(f"PRAGMA cache_size = {-(16 << 10)}")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version == 1:
            db.executescript(f"BEGIN; {_OF_VERSION_1} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION:
            # Of a later version, or of something else: not to be written into.
            raise sqlite3.DatabaseError(f"its version is {version}, not {_VERSION}")
        db.execute("SELECT * FROM spans LIMIT 1").fetchone()

    def _put_aside(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        for ending in ("", "-wal", "-shm"):
            file = Path(f"{self.path}{ending}")
            if file.exists():
                file.replace(Path(f"{self.path}.damaged{ending}"))
        self.was_damaged = True

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

    # Written, in one transaction.

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self, position: int, shard: int = 0) -> None:
        """Keep all that was written since `begin`, and that it is of entries of a shard up to this position."""
        self.set_fact(f"{_POSITION}:{shard}" if shard else _POSITION, position)
        self._db.execute("COMMIT")
        self._positions[shard] = position

    def rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def set_fact(self, key: str, value: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    @property
    def known_since(self) -> int:
        """From when on the past is known, in Unix milliseconds; 0: nothing was written yet."""
        return self._fact("known_since")

    def add(self, spans: Iterable[Span]) -> None:
        """Add spans, of which some have ended already."""
        before = self._db.total_changes
        self._db.executemany(_INSERT, ((*span, class_of(span.since, span.until)) for span in spans))
        added = self._db.total_changes - before
        self.rows += added
        self._last_id += added

    def end(self, name: str, fence: int, until: int, ended: str, by: str | None) -> Span | None:
        """End the hold with a fence, if it is known; says which that was."""
        return self._end(
            "name = ? AND what = 0 AND class = ? AND fence = ?", (name, _OPEN, fence), until, ended, by
        )

    def end_all(self, holds: Collection[tuple[str, int, int, str, str | None]]) -> None:
        """End holds, those that are known: of each what `end` is given.

        When a session ends there are thousands: one statement for all takes half as long as two for each.
        """
        if self._has_stayed():
            for hold in holds:
                self.end(*hold)
        else:
            self._db.executemany(_END_HOLD, holds)

    def _has_stayed(self) -> bool:
        """Whether something is open whose neighbours were dropped: it gets another number when it ends."""
        row = self._db.execute("SELECT 1 FROM spans WHERE until IS NULL AND id <= ? LIMIT 1", (self._pruned_to,))
        return row.fetchone() is not None

    def end_wait(self, ticket: int, until: int, ended: str, shard: int = 0) -> list[Span]:
        """End the waits, one for each name, with a ticket."""
        found: list[Span] = []
        where = "what = 1 AND until IS NULL AND shard = ? AND ticket = ?"
        while (span := self._end(where, (shard, ticket), until, ended, None)) is not None:
            found.append(span)
        return found

    def waits_of(self, ticket: int, shard: int = 0) -> list[Span]:
        """The waits with a ticket that have not ended."""
        where = "what = 1 AND until IS NULL AND shard = ? AND ticket = ?"
        rows = self._db.execute(f"{_SELECT} WHERE {where}", (shard, ticket))
        return [Span(*row) for row in rows]

    def _end(self, where: str, values: tuple[Any, ...], until: int, ended: str, by: str | None) -> Span | None:
        row = self._db.execute(f"SELECT id, {_COLUMNS} FROM spans WHERE {where} LIMIT 1", values).fetchone()
        if row is None:
            return None
        number, span = row[0], Span(*row[1:])
        until = max(until, span.since)
        kept_as = number
        if number <= self._pruned_to:
            # It stayed when its neighbours were dropped; from now on it is dropped like any other, in its turn.
            self._last_id += 1
            kept_as = self._last_id
        self._db.execute(
            "UPDATE spans SET id = ?, until = ?, ended = ?, by = ?, class = ? WHERE id = ?",
            (kept_as, until, ended, by, class_of(span.since, until), number),
        )
        return span._replace(until=until, ended=ended, by=by)

    def note_late(self, name: str, fence: int, late: int) -> None:
        """A holder wanted to release a hold that had ended."""
        for number in range(_OPEN):
            changed = self._db.execute(
                "UPDATE spans SET late = ? WHERE id = (SELECT id FROM (SELECT id, fence FROM spans WHERE name = ? "
                "AND what = 0 AND class = ? ORDER BY since DESC LIMIT 1000) WHERE fence = ? LIMIT 1)",
                (late, name, number, fence),
            ).rowcount
            if changed:
                return

    def open_spans(self, shard: int = 0) -> list[tuple[int, Span]]:
        """All of a shard that has not ended, with its number."""
        where = "until IS NULL AND shard = ?"
        rows = self._db.execute(f"SELECT id, {_COLUMNS} FROM spans WHERE {where} ORDER BY id", (shard,))
        return [(row[0], Span(*row[1:])) for row in rows]

    def end_unknown(self, number: int, until: int) -> None:
        """A span ended in a gap, at this time at the latest."""
        self._db.execute(
            "UPDATE spans SET until = max(since, ?), ended = 'unknown', class = ? WHERE id = ?",
            (until, _LONGER, number),
        )

    def add_gap(self, gap: Gap) -> None:
        self._db.execute("INSERT INTO gaps VALUES (?, ?, ?, ?, ?)", gap)
        self._db.execute("DELETE FROM gaps WHERE rowid <= (SELECT max(rowid) FROM gaps) - 1000")

    def know(self, session: int, who: str, shard: int = 0) -> None:
        """A session is somebody's."""
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
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = self._db.execute("PRAGMA page_size").fetchone()
        return int(pages * page_bytes)

    def keep_bound(self, now: int | None = None) -> None:
        """Drop the oldest until there is no more than there may be; or much of it, if there is far too much."""
        for _ in range(_SLICES_MAX):
            if not self.prune(now):
                return

    def prune(self, now: int | None = None) -> bool:
        """Drop some of the oldest, if there is too much; says whether there is more to drop."""
        now = int(time.time() * 1000) if now is None else now
        self.begin()
        try:
            dropped = self._drop(self._too_many(now))
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self.rollback()
            raise
        if self.size_bytes > self.bounds.bytes_max:
            # As a script: `execute` steps a pragma once, and each step gives back one page.
            self._db.executescript(f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})")
        return dropped

    def _too_many(self, now: int) -> int:
        too_many = self.rows - self.bounds.rows_max
        if self.size_bytes > self.bounds.bytes_max:
            too_many = max(too_many, self._to_free())
        if too_many <= 0:
            too_many = self._too_old(now - self.bounds.days_max * _DAY_MS)
        return min(max(too_many, 0), _PRUNED_AT_ONCE)

    def _to_free(self) -> int:
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        # Pages that are free are given back; only if that is not enough, more is dropped.
        in_use_bytes = int(self.size_bytes * (pages - free) / max(pages, 1))
        return 0 if in_use_bytes <= self.bounds.bytes_max else self.rows // 20 + 1

    def _too_old(self, before: int) -> int:
        """How many of the next to go ended before a time."""
        rows = self._db.execute(
            "SELECT until FROM spans WHERE id > ? ORDER BY id LIMIT ?", (self._pruned_to, _PRUNED_AT_ONCE)
        )
        count = ended = 0
        for number, (until,) in enumerate(rows, 1):
            if until is not None and until >= before:
                break
            ended += until is not None
            count = number
        return count if ended else 0

    def _drop(self, count: int) -> bool:
        if not count:
            return False
        row = self._db.execute(
            "SELECT id, since FROM spans WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?", (self._pruned_to, count - 1)
        ).fetchone()
        if row is None:
            return False
        up_to, since = row
        gone = self._db.execute(
            "DELETE FROM spans WHERE id > ? AND id <= ? AND until IS NOT NULL", (self._pruned_to, up_to)
        ).rowcount
        self.rows -= gone
        self._pruned_to = up_to
        self.set_fact("pruned_to", up_to)
        self.set_fact("known_since", max(self.known_since, since))
        return True

    # Read.

    def spans(self, what: int, name: str, since: int | None, until: int | None, count: int) -> list[Span]:
        """The newest of what covers any instant between two times, the newest first."""
        found: list[Span] = []
        latest = until if until is not None else 1 << 62
        for number in range(_OPEN + 1):
            most = _CLASSES_MS[number] if number < _LONGER else 1 << 61
            earliest = since - most if since is not None else -(1 << 62)
            rows = self._db.execute(
                f"{_SELECT} WHERE name = ? AND what = ? AND class = ? AND since BETWEEN ? AND ? "
                "AND (until IS NULL OR until >= ?) ORDER BY since DESC LIMIT ?",
                (name, what, number, earliest, latest, since if since is not None else -1, count),
            )
            found.extend(Span(*row) for row in rows)
        found.sort(key=lambda span: (span.since, span.position, span.fence), reverse=True)
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


def positions_in(path: Path) -> dict[int, int]:
    """Up to which position of each shard a file knows the past; empty if it is not there, or cannot be read."""
    if not path.exists():
        return {}
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return _positions(db)
    except sqlite3.Error:
        return {}


def _positions(db: sqlite3.Connection) -> dict[int, int]:
    rows = db.execute("SELECT key, value FROM facts WHERE key = ? OR key LIKE ?", (_POSITION, f"{_POSITION}:%"))
    return {int(key.partition(":")[2] or 0): int(value) for key, value in rows}
