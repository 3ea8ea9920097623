"""The rows: holders and waiters of names, as rows of one file. Each method is a part of one transaction.

1. A fence is the one counter, raised in the transaction that grants. It is never set back, not by a release, not
   by a restart; a new file begins at the time of day in microseconds, so a file that was lost does not set it
   back, either. Places in the queue are counted by it, too.
2. An expired row does not count. It is deleted by the next grant of the name, or by a purge.
3. All times are the machine's (see `boot_clock`), read after the file's lock was taken: they only grow from one
   transaction to the next.
"""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from fencehold.backends.lease.queue_order import ALIVE_S, QueueStanding, retry_after
from fencehold.backends.lease.store import Busy, Taken

NS = 1_000_000_000
_ALIVE_NS = int(ALIVE_S * NS)
_PURGED_MAX = 200

TABLES = (
    """CREATE TABLE IF NOT EXISTS fencehold_state (
        id INTEGER PRIMARY KEY CHECK (id = 0), format INTEGER NOT NULL,
        fence INTEGER NOT NULL, life TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS fencehold_holds (
        name TEXT NOT NULL, token TEXT NOT NULL, permits INTEGER NOT NULL, fence INTEGER NOT NULL,
        since INTEGER NOT NULL, expires INTEGER NOT NULL, stamp TEXT NOT NULL, PRIMARY KEY (name, token))""",
    "CREATE INDEX IF NOT EXISTS fencehold_holds_expires ON fencehold_holds (expires)",
    """CREATE TABLE IF NOT EXISTS fencehold_queue (
        name TEXT NOT NULL, token TEXT NOT NULL, permits INTEGER NOT NULL, ticket INTEGER NOT NULL,
        since INTEGER NOT NULL, alive INTEGER NOT NULL, stamp TEXT NOT NULL, PRIMARY KEY (name, token))""",
    "CREATE INDEX IF NOT EXISTS fencehold_queue_ticket ON fencehold_queue (name, ticket)",
    "CREATE INDEX IF NOT EXISTS fencehold_queue_alive ON fencehold_queue (alive)",
)
FORMAT = 1

_HELD = """SELECT count(*), coalesce(sum(permits = 0), 0),
    coalesce(max(CASE WHEN permits NOT IN (0, :permits) THEN permits END), 0)
    FROM fencehold_holds WHERE name = :name AND expires > :now"""
_AHEAD = """SELECT count(*), coalesce(sum(permits = 0), 0),
    coalesce(max(CASE WHEN permits NOT IN (0, :permits) THEN permits END), 0)
    FROM fencehold_queue WHERE name = :name AND alive > :now AND ticket < :ticket"""
_LAST = (1 << 63) - 1


class WantedLease(NamedTuple):
    """What one acquire wants."""

    name: str
    token: str
    permits: int
    """How many may hold it at once; 0 for a lock."""
    ttl_ns: int
    stamp: str
    waits: bool


class SeenRow(NamedTuple):
    """A holder or a waiter, as it is shown."""

    stamp: str
    permits: int
    fence: int
    age: float
    left: float


class LeaseRows:
    """The rows at one moment; `save` writes the counter back, if it was raised."""

    def __init__(self, db: sqlite3.Connection, now: int, fence: int = 0) -> None:
        self._db = db
        self._now = now
        self._fence = self._saved = fence

    # Reading only.

    def glance(self, wanted: WantedLease) -> Busy | None:
        """The answer to an acquire, if it is Busy and changes nothing."""
        found = self._find(wanted)
        if found is not None:
            return None
        ticket, alive, since = self._place(wanted)
        standing = self._standing(wanted, ticket)
        is_known = not wanted.waits or (ticket != _LAST and alive - self._now > _ALIVE_NS // 2)
        if standing.is_turn(wanted.permits) or standing.other_limit or not is_known:
            return None
        return self._busy(wanted, standing, since)

    def holders(self, name: str) -> list[SeenRow]:
        """Who holds a name."""
        rows = self._db.execute(
            "SELECT stamp, permits, fence, since, expires FROM fencehold_holds WHERE name = ? AND expires > ? "
            "ORDER BY fence",
            (name, self._now),
        )
        return [self._row(*row) for row in rows]

    def queue(self, name: str) -> list[SeenRow]:
        """Who waits for a name, the next one first."""
        rows = self._db.execute(
            "SELECT stamp, permits, ticket, since, alive FROM fencehold_queue WHERE name = ? AND alive > ? "
            "ORDER BY ticket",
            (name, self._now),
        )
        return [self._row(*row) for row in rows]

    def next_token(self, name: str) -> str:
        """The token of the next waiter; empty if there is none."""
        row = self._db.execute(
            "SELECT token FROM fencehold_queue WHERE name = ? AND alive > ? ORDER BY ticket LIMIT 1",
            (name, self._now),
        ).fetchone()
        return row[0] if row else ""

    # Changing.

    def take(self, wanted: WantedLease) -> Taken | Busy:
        """Grant a name, or put the ask into the queue.

        Raises:
            UsageError: a semaphore is in use with another limit.
        """
        fence = self._find(wanted)
        if fence is not None:
            self.renew(wanted.name, wanted.token, wanted.ttl_ns)
            return Taken(fence)
        ticket, _, since = self._place(wanted)
        standing = self._standing(wanted, ticket)
        standing.check(wanted.name, wanted.permits)
        if standing.is_turn(wanted.permits):
            return self._grant(wanted, is_queued=ticket != _LAST)
        if wanted.waits:
            self._stand(wanted, ticket)
        return self._busy(wanted, standing, since)

    def renew(self, name: str, token: str, ttl_ns: int) -> bool:
        """Let a lease last so long from now; returns whether it was there."""
        return self._changed(
            "UPDATE fencehold_holds SET expires = ? WHERE name = ? AND token = ? AND expires > ?",
            (self._now + ttl_ns, name, token, self._now),
        )

    def release(self, name: str, token: str) -> bool:
        """Release a name; returns whether it was held."""
        was_there = self._changed(
            "DELETE FROM fencehold_holds WHERE name = ? AND token = ? AND expires > ?", (name, token, self._now)
        )
        return was_there or self._drop(name, token)

    def withdraw(self, name: str, token: str) -> None:
        """Remove all that an ask has."""
        self._drop(name, token)
        self._db.execute("DELETE FROM fencehold_queue WHERE name = ? AND token = ?", (name, token))

    def break_hold(self, name: str, fence: int) -> int:
        """Force-release a name; returns a fence above that of all holders, or 0."""
        was_there = self._changed(
            "DELETE FROM fencehold_holds WHERE name = ? AND expires > ? AND (? = 0 OR fence <= ?)",
            (name, self._now, fence, fence),
        )
        return self._raised() if was_there else 0

    def purge(self) -> None:
        """Delete some of the expired rows."""
        for table, end in (("fencehold_holds", "expires"), ("fencehold_queue", "alive")):
            old = f"SELECT rowid FROM {table} WHERE {end} <= ? LIMIT {_PURGED_MAX}"
            self._db.execute(f"DELETE FROM {table} WHERE rowid IN ({old})", (self._now,))

    def save(self) -> None:
        """The last thing before a commit."""
        if self._fence != self._saved:
            self._db.execute("UPDATE fencehold_state SET fence = ?", (self._fence,))

    # How.

    def _find(self, wanted: WantedLease) -> int | None:
        row = self._db.execute(
            "SELECT fence FROM fencehold_holds WHERE name = ? AND token = ? AND expires > ?",
            (wanted.name, wanted.token, self._now),
        ).fetchone()
        return row[0] if row else None

    def _place(self, wanted: WantedLease) -> tuple[int, int, int]:
        """The ticket of an ask, until when and since when it counts; the last of all, if it has no place."""
        row = self._db.execute(
            "SELECT ticket, alive, since FROM fencehold_queue WHERE name = ? AND token = ? AND alive > ?",
            (wanted.name, wanted.token, self._now),
        ).fetchone()
        return row or (_LAST, 0, self._now)

    def _standing(self, wanted: WantedLease, ticket: int) -> QueueStanding:
        asked = {"name": wanted.name, "permits": wanted.permits, "now": self._now, "ticket": ticket}
        holders, locks_held, held_limit = self._db.execute(_HELD, asked).fetchone()
        ahead, locks_ahead, other_limit = self._db.execute(_AHEAD, asked).fetchone()
        return QueueStanding(holders, locks_held, ahead, locks_ahead, held_limit or other_limit)

    def _busy(self, wanted: WantedLease, standing: QueueStanding, since: int) -> Busy:
        return Busy(retry_after(standing.ahead, (self._now - since) / NS)) if wanted.waits else Busy()

    def _grant(self, wanted: WantedLease, *, is_queued: bool) -> Taken:
        self._db.execute("DELETE FROM fencehold_holds WHERE name = ? AND expires <= ?", (wanted.name, self._now))
        if is_queued:
            # And all before it, which are gone: those still alive would have had their turn.
            self._db.execute(
                "DELETE FROM fencehold_queue WHERE name = ? AND (token = ? OR alive <= ?)",
                (wanted.name, wanted.token, self._now),
            )
        fence = self._raised()
        self._db.execute(
            "INSERT INTO fencehold_holds VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                wanted.name,
                wanted.token,
                wanted.permits,
                fence,
                self._now,
                self._now + wanted.ttl_ns,
                wanted.stamp,
            ),
        )
        return Taken(fence)

    def _stand(self, wanted: WantedLease, ticket: int) -> None:
        alive = self._now + _ALIVE_NS
        if ticket == _LAST:
            # One that was there and was considered gone is behind all others now.
            self._db.execute(
                "INSERT OR REPLACE INTO fencehold_queue VALUES (?, ?, ?, ?, ?, ?, ?)",
                (wanted.name, wanted.token, wanted.permits, self._raised(), self._now, alive, wanted.stamp),
            )
        else:
            self._db.execute(
                "UPDATE fencehold_queue SET alive = ? WHERE name = ? AND token = ?",
                (alive, wanted.name, wanted.token),
            )

    def _drop(self, name: str, token: str) -> bool:
        self._db.execute("DELETE FROM fencehold_holds WHERE name = ? AND token = ?", (name, token))
        return False

    def _raised(self) -> int:
        self._fence += 1
        return self._fence

    def _changed(self, sql: str, values: Sequence[object]) -> bool:
        return self._db.execute(sql, values).rowcount > 0

    def _row(self, stamp: str, permits: int, fence: int, since: int, end: int) -> SeenRow:
        return SeenRow(stamp, permits, fence, (self._now - since) / NS, (end - self._now) / NS)
