"""The file of the history: its tables, its versions, and what becomes of one that cannot be read.

| table | of what |
|---|---|
| `lasting` | spans that have not ended |
| `slices`, `packs` | spans that ended together with many others: see `packs` |
| `spans` | all others that have ended, a row each |
| `sessions` | who the sessions are that live |
| `gaps` | positions that are not known |
| `facts` | up to which position each shard is known, since when, and up to which number the oldest were dropped |

Slices and rows of `spans` are numbered together, in the order in which they were written.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

VERSION = 3
POSITION = "position"
_CACHE_KIB = 16 << 10
_WAL_BYTES_MAX = 16 << 20

_SESSIONS = """
CREATE TABLE sessions (
    shard INTEGER NOT NULL, session INTEGER NOT NULL, who TEXT NOT NULL, PRIMARY KEY (shard, session)
) WITHOUT ROWID;
"""
_LASTING = """
CREATE TABLE lasting (
    name TEXT NOT NULL,
    what INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    ticket INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    position INTEGER NOT NULL,
    mode TEXT NOT NULL,
    session INTEGER NOT NULL,
    who TEXT NOT NULL,
    owner TEXT NOT NULL,
    since INTEGER NOT NULL,
    waited INTEGER,
    PRIMARY KEY (name, what, fence, ticket, shard, position)
) WITHOUT ROWID;
CREATE INDEX lasting_waits ON lasting (shard, ticket) WHERE what = 1;
"""
_PACKS = """
CREATE TABLE slices (
    id INTEGER PRIMARY KEY,
    what INTEGER NOT NULL,
    class INTEGER NOT NULL,
    level INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL
);
CREATE TABLE packs (
    slice INTEGER NOT NULL,
    first TEXT NOT NULL,
    number INTEGER NOT NULL,
    last TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    spans BLOB NOT NULL,
    PRIMARY KEY (slice, first, number)
) WITHOUT ROWID;
"""
_SCHEMA = f"""
CREATE TABLE facts (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
{_SESSIONS}
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
{_LASTING}
{_PACKS}
"""
_TO_VERSION = {
    # It knew one shard.
    2: f"""
ALTER TABLE spans ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gaps ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions RENAME TO sessions_of_version_1;
{_SESSIONS}
INSERT INTO sessions SELECT 0, session, who FROM sessions_of_version_1;
DROP TABLE sessions_of_version_1;
DROP INDEX open_waits;
CREATE INDEX open_waits ON spans (shard, ticket) WHERE what = 1 AND until IS NULL;
""",
    # What had not ended stood among what had. What ended in a gap kept its number though those behind it were
    # dropped, and would never go itself.
    3: f"""
{_LASTING}
{_PACKS}
INSERT OR REPLACE INTO lasting
    SELECT name, what, fence, ticket, shard, position, mode, session, who, owner, since, waited
    FROM spans WHERE until IS NULL;
DELETE FROM spans WHERE until IS NULL;
UPDATE spans SET id = id + (SELECT max(id) FROM spans) + (SELECT value FROM facts WHERE key = 'pruned_to')
    WHERE id <= (SELECT value FROM facts WHERE key = 'pruned_to');
DROP INDEX open_spans;
DROP INDEX open_waits;
""",
}
"""What makes a file of the version before one of this."""


def connected(path: Path) -> sqlite3.Connection:
    """Open a history, begin it, or make of an older version what is read here.

    Raises:
        OSError, sqlite3.OperationalError: it cannot be written.
        sqlite3.DatabaseError: it is damaged, of a later version, or something else.
    """
    # Other users of this machine are not to read who locks what.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db)
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    # Some builds of SQLite write zeros over all that is deleted: here that is as much as is written.
    db.execute("PRAGMA secure_delete = FAST")
    db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
    db.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > VERSION or version < 0:
        # Of a later version, or of something else: not to be written into.
        raise sqlite3.DatabaseError(f"its version is {version}, not {VERSION}")
    steps = [_TO_VERSION[number] for number in range(version + 1, VERSION + 1)] if version else [_SCHEMA]
    if steps:
        db.executescript(f"BEGIN; {''.join(steps)} PRAGMA user_version = {VERSION}; COMMIT;")
    db.execute("SELECT * FROM spans LIMIT 1").fetchone()


def put_aside(path: Path) -> None:
    """Rename a file that cannot be read, and what SQLite keeps beside it."""
    for ending in ("", "-wal", "-shm"):
        file = Path(f"{path}{ending}")
        if file.exists():
            file.replace(Path(f"{path}.damaged{ending}"))


def positions_in(path: Path) -> dict[int, int]:
    """Up to which position of each shard a file knows the past; empty if it is not there, or cannot be read."""
    if not path.exists():
        return {}
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return positions(db)
    except sqlite3.Error:
        return {}


def positions(db: sqlite3.Connection) -> dict[int, int]:
    """Up to which position of each shard the past is known."""
    rows = db.execute("SELECT key, value FROM facts WHERE key = ? OR key LIKE ?", (POSITION, f"{POSITION}:%"))
    return {int(key.partition(":")[2] or 0): int(value) for key, value in rows}
