"""Notes: a table beside the locks, with holders and waiters. The locks are what counts.

1. A note is written by the statement that takes the lock, and removed by the one that releases it.
2. A note of a session that no longer has the lock is invalid, and is never shown: the server's own table of locks
   is read first.
3. It is not logged: no commit waits for the disk, and after a crash it is empty, as the locks are gone.
4. The statement that releases a lock notifies the longest waiter, if there is one.
"""

_LOCK_OF_MAKERS = 0x66656E6365686F6C
"""Clients that find no table create it one after the other."""

_TABLE = """\
CREATE UNLOGGED TABLE IF NOT EXISTS {table} (
    key bigint NOT NULL,                     -- of the advisory lock
    token text COLLATE "C" NOT NULL,
    pid integer NOT NULL,                    -- of the session
    is_shared boolean NOT NULL,
    is_held boolean NOT NULL,                -- else it waits
    at timestamptz NOT NULL,
    stamp text NOT NULL,                     -- JSON: who it is
    PRIMARY KEY (key, token)
);
"""
_TAKE = """
    WITH got AS MATERIALIZED (SELECT pg_try_advisory_lock{shared}($1) AS ok),
    noted AS (
        INSERT INTO {table} AS note (key, token, pid, is_shared, is_held, at, stamp)
        SELECT $1, $2, pg_backend_pid(), {is_shared}, ok, clock_timestamp(), $3 FROM got WHERE ok OR $4
        ON CONFLICT (key, token) DO UPDATE SET is_held = excluded.is_held, at = excluded.at
        WHERE note.is_held <> excluded.is_held
    ) SELECT ok FROM got
"""
_FREE = """
    WITH mine AS (
        DELETE FROM {table} WHERE key = $1 AND token = $2 AND pid = pg_backend_pid()
        RETURNING key, is_shared, is_held
    ), freed AS MATERIALIZED (
        SELECT CASE WHEN is_shared THEN pg_advisory_unlock_shared(key) ELSE pg_advisory_unlock(key) END AS ok
        FROM mine WHERE is_held
    ), next AS MATERIALIZED (
        SELECT pid, token FROM {table} WHERE key = $1 AND NOT is_held AND token <> $2
        AND EXISTS (SELECT FROM pg_stat_get_activity(pid)) ORDER BY at LIMIT 1
    ), told AS MATERIALIZED (
        SELECT pg_notify('{channel}' || pid, token) FROM next
    ) SELECT (SELECT ok FROM freed), (SELECT count(*) FROM told)
"""
_FAREWELL = """
    WITH mine AS (DELETE FROM {table} WHERE pid = pg_backend_pid() RETURNING key, is_held)
    SELECT pg_advisory_unlock_all(), (
        SELECT count(pg_notify('{channel}' || pid, token)) FROM {table}
        WHERE NOT is_held AND key IN (SELECT key FROM mine WHERE is_held))
"""
_HELD = """
    pg_locks AS held WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
    AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND held.classid = (($1::bigint >> 32) & 4294967295)::oid AND held.objid = ($1::bigint & 4294967295)::oid
"""
_UNDO = f"""
    SELECT pg_advisory_unlock($1) FROM (
        SELECT FROM {_HELD} AND held.pid = pg_backend_pid() AND held.mode = 'ExclusiveLock'
    ) AS mine
"""
_UNDO_SHARED = f"""
    SELECT pg_advisory_unlock_shared($1) FROM (
        SELECT FROM {_HELD} AND held.pid = pg_backend_pid() AND held.mode = 'ShareLock' AND NOT EXISTS (
            SELECT FROM {{table}} WHERE key = $1 AND pid = pg_backend_pid() AND is_held)
    ) AS mine
"""
_LOOK = f"""
    SELECT note.stamp, held.mode, extract(epoch FROM clock_timestamp() - note.at), held.pid, note.token,
    (SELECT application_name FROM pg_stat_activity AS session WHERE session.pid = held.pid)
    FROM (SELECT held.pid, held.mode FROM {_HELD}) AS held
    LEFT JOIN {{table}} AS note ON note.key = $1 AND note.pid = held.pid AND note.is_held
    ORDER BY note.at
"""


class Notes:
    """The statements, for a table."""

    def __init__(self, schema: str, table: str) -> None:
        self.name = f"{schema}.{table}"
        self.channel = f"fencehold_{schema}_{table}_"
        """Where a session listens, before the number of its process."""
        self._schema = schema
        self.script = f"CREATE SCHEMA IF NOT EXISTS {schema};\n{_TABLE.format(table=self.name)}"
        self.take = self._made(_TAKE, shared="", is_shared="false")
        self.take_shared = self._made(_TAKE, shared="_shared", is_shared="true")
        self.free = self._made(_FREE, channel=self.channel)
        self.farewell = self._made(_FAREWELL, channel=self.channel)
        """Release all, and notify the waiters."""
        self.undo = _UNDO.encode()
        self.undo_shared = self._made(_UNDO_SHARED)
        self.look = self._made(_LOOK)
        self.is_made = f"SELECT to_regclass('{self.name}') IS NOT NULL".encode()

    @property
    def making(self) -> bytes:
        """The table, made as one transaction."""
        return (
            f"DO $fencehold$ BEGIN PERFORM pg_advisory_xact_lock({_LOCK_OF_MAKERS}); "
            # To create an existing schema IF NOT EXISTS needs the right to create one.
            f"IF to_regnamespace('{self._schema}') IS NULL THEN CREATE SCHEMA {self._schema}; END IF; "
            f"{_TABLE.format(table=self.name)} END $fencehold$"
        ).encode()

    @property
    def sweep(self) -> bytes:
        """Remove the notes of sessions that are gone, and of a session that had this one's number before."""
        return (
            f"DELETE FROM {self.name} WHERE pid = pg_backend_pid() "
            "OR pid <> ALL (ARRAY(SELECT pid FROM pg_stat_activity WHERE pid IS NOT NULL))"
        ).encode()

    def _made(self, text: str, **words: str) -> bytes:
        return text.format(table=self.name, **words).encode()
