"""The file: its URL, one connection to it, reading and writing, and what its errors mean.

1. What was committed is on disk when it is answered (`synchronous=FULL`): a grant, and with it a fence, survives a
   power failure.
2. Reading takes no lock that blocks others. Writing waits for others for as long as the URL says, and no longer.
3. A file that was removed or replaced while it was in use is no longer used: others have another one. That raises
   an error once; then the file that is there now is opened.
4. A file that was last written under another boot of the machine is cleared of all holds, when it is opened. One
   that is written under another boot *later* is used by two machines, and serves neither.
5. What fails before the commit is rolled back: certainly nothing happened. A commit that fails may have been
   written completely, and be found by the next reader of the file: its outcome is unknown.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

from fencehold.backends.sqlite import boot_clock
from fencehold.backends.sqlite.rows import FORMAT, TABLES, LeaseRows
from fencehold.drivers.address import Scheme, parts_of, refusal, seconds
from fencehold.errors import FenceholdError, OutcomeUnknown, PermissionDenied, Unavailable, Unsupported, UsageError

SCHEME = Scheme(
    names=("sqlite",),
    form="write sqlite:///file.db for a path from here, or sqlite:////var/lib/app/locks.db for one from the root",
    options=(seconds("timeout", 2.0, most=60.0),),
    takes_tls=False,
    hosts_min=0,
    hosts_max=0,
)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_FOREIGN = (sqlite3.SQLITE_NOTADB,)
_PURGE_EVERY = 256
"""Transactions."""
_RETRY_S = 0.005


class SqliteAddress(NamedTuple):
    """A parsed URL."""

    path: Path
    timeout: float = 2.0
    """Seconds."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read `sqlite:///path/to/file.db[?timeout=2]`.

        Three slashes begin a relative path, four an absolute one, as everywhere. `timeout` is how long another
        process may lock the file before a call fails.

        Raises:
            UsageError: it is none; the message says what to write instead.
        """
        parts = parts_of(url)
        if parts.hosts + parts.path in ("", "/", "/:memory:", ":memory:"):
            why = f"it needs a file that processes share; for one process, use memory://. Else {SCHEME.form}"
            raise refusal(url, why)
        said = SCHEME.parse(url)
        if "\0" in said.path:
            raise said.refusal(f"a path has no NUL in it: {SCHEME.form}")
        # Made absolute now: a process that changes its directory later must not find another file.
        return cls(Path(said.path).absolute(), said.options["timeout"])

    def __str__(self) -> str:
        return f"sqlite:///{self.path}"


def code_of(error: sqlite3.Error) -> int:
    """The kind of an error, without its details."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another connection holds the lock."""
    return code_of(error) in _LOCKED


def failure(error: sqlite3.Error, path: Path) -> FenceholdError:
    """The error for a step that failed before its commit."""
    code = code_of(error)
    if code in _LOCKED:
        return Unavailable(f"{path} is locked by another process that does not end its transaction ({error})")
    if code in _FORBIDDEN:
        return PermissionDenied(f"{path} cannot be written to by this user ({error})")
    if code in _FOREIGN:
        return UsageError(f"{path} exists and is not a SQLite database: choose another file")
    if code == sqlite3.SQLITE_CANTOPEN:
        return unopened(path)
    return Unavailable(f"{path}: SQLite said: {error}")


def unopened(path: Path) -> FenceholdError:
    """Why a file cannot be opened."""
    if path.is_dir():
        return UsageError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        return Unavailable(f"the folder {path.parent} is not there: make it first")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        return PermissionDenied(f"{path} cannot be written to by this user: it needs the file and its folder")
    return Unavailable(f"{path} cannot be opened")


def doubt(error: sqlite3.Error, path: Path) -> OutcomeUnknown:
    """The error for a commit that failed."""
    return OutcomeUnknown(f"{path}: whether it was written is unknown: {error}")


Part: TypeAlias = Callable[[LeaseRows], Any]
"""A part of a transaction."""
Outcome: TypeAlias = tuple[Any, FenceholdError | None]


class LeaseFile:
    """Used by one thread at a time."""

    def __init__(self, address: SqliteAddress) -> None:
        self._path = address.path
        self._timeout = address.timeout
        self._life = boot_clock.life()
        self._db: sqlite3.Connection | None = None
        self._identity: tuple[int, int] = (0, 0)
        self._transactions = 0

    def read(self, part: Part) -> Any:
        """The result of a part that only reads.

        Raises:
            FenceholdError: see `failure`.
        """
        try:
            return part(LeaseRows(self._opened(), boot_clock.now()))
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def write(self, parts: Sequence[Part]) -> list[Outcome]:
        """Do several parts in one transaction. An error of a part is its outcome, and does not affect the others.

        Raises:
            FenceholdError: nothing was written; or, if it is OutcomeUnknown, all of it may have been.
        """
        try:
            db = self._opened()
            db.execute("BEGIN IMMEDIATE")
            outcomes = self._do(db, parts)
        except (sqlite3.Error, FenceholdError) as error:
            self._roll_back()
            raise self._failed(error) if isinstance(error, sqlite3.Error) else error from error
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise doubt(error, self._path) from error
        return outcomes

    def close(self) -> None:
        """Close the file. It is opened again when it is needed."""
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _do(self, db: sqlite3.Connection, parts: Sequence[Part]) -> list[Outcome]:
        fence, life = db.execute("SELECT fence, life FROM fencehold_state").fetchone()
        if life != self._life:
            raise Unavailable(
                f"{self._path} is in use on another machine, too (boot id {life}): sqlite:// is for one"
            )
        rows = LeaseRows(db, boot_clock.now(), fence)
        outcomes = [_outcome(part, rows) for part in parts]
        self._transactions += 1
        if self._transactions % _PURGE_EVERY == 0:
            rows.purge()
        rows.save()
        return outcomes

    def _roll_back(self) -> None:
        if self._db is None or not self._db.in_transaction:
            return
        try:
            self._db.execute("ROLLBACK")
        except sqlite3.Error:
            # What is not committed when a connection ends is rolled back.
            self.close()

    def _failed(self, error: sqlite3.Error) -> FenceholdError:
        if not is_locked(error):
            self.close()
        return failure(error, self._path)

    # Opening.

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            return self._open()
        if self._found() != self._identity:
            self.close()
            raise Unavailable(f"{self._path} was removed or replaced while it was in use: what was held is lost")
        return self._db

    def _open(self) -> sqlite3.Connection:
        boot_clock.check_is_local(self._path)
        # Used by its own thread only; but closed by a thread that forks.
        self._db = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._patiently(self._prepare, self._db)
            self._db.execute(f"PRAGMA busy_timeout = {int(self._timeout * 1000)}")
        except BaseException:
            self.close()
            raise
        self._identity = self._found()
        return self._db

    def _prepare(self, db: sqlite3.Connection) -> None:
        self._log_ahead(db)
        db.execute("PRAGMA synchronous = FULL")
        if self._is_ready(db):
            return
        db.execute("BEGIN IMMEDIATE")
        for statement in TABLES:
            db.execute(statement)
        # Beyond all fences of a file that was here before: there are never a million grants a second.
        fence = time.time_ns() // 1_000
        db.execute("INSERT OR IGNORE INTO fencehold_state VALUES (0, ?, ?, ?)", (FORMAT, fence, self._life))
        self._begin_life(db)
        db.execute("COMMIT")

    def _is_ready(self, db: sqlite3.Connection) -> bool:
        """Whether all tables are there already: opening takes no lock then."""
        try:
            row = db.execute("SELECT format, life FROM fencehold_state").fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return False
            raise
        if row is not None and row[0] != FORMAT:
            raise UsageError(f"{self._path} was written by another version of Fencehold (format {row[0]})")
        return row is not None and row[1] == self._life

    def _begin_life(self, db: sqlite3.Connection) -> None:
        (life,) = db.execute("SELECT life FROM fencehold_state").fetchone()
        if life != self._life:
            db.execute("DELETE FROM fencehold_holds")
            db.execute("DELETE FROM fencehold_queue")
            db.execute("UPDATE fencehold_state SET life = ?", (self._life,))

    def _log_ahead(self, db: sqlite3.Connection) -> None:
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise Unsupported(f"{self._path} cannot have a write-ahead log, but {mode!r}: use another file system")

    def _patiently(self, step: Callable[[sqlite3.Connection], None], db: sqlite3.Connection) -> None:
        """Retry what SQLite refuses without waiting while others open the file, too."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                step(db)
                return
            except sqlite3.OperationalError as error:
                if not is_locked(error) or time.monotonic() > until:
                    raise
                self._roll_back()
                time.sleep(_RETRY_S)

    def _found(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path)
        except OSError:
            return (0, 0)
        return found.st_dev, found.st_ino


def _outcome(part: Part, rows: LeaseRows) -> Outcome:
    try:
        return part(rows), None
    except FenceholdError as error:
        return None, error
