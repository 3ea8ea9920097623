"""Events as rows of a table, in Postgres or SQLite: unique by place, the cursor in the same transaction.

`fencehold_events` has a row per event, with the CloudEvent whole in `event`; rows may be deleted at will.
`fencehold_cursors` has how far it got, per cluster, table and shard. Both are made if they are not there.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencehold.drivers.address import Scheme, identifier
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable, UsageError
from fencehold.sinks.port import Cursors, Declared, Delivery, Record, cursors_of
from fencehold.sinks.worker import Worker

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_TABLE = identifier("table", "fencehold_events", length_max=40)
SQLITE = Scheme(
    names=("sqlite",),
    form="sqlite:///var/lib/fencehold/events.db",
    options=(_TABLE,),
    takes_tls=False,
    hosts_min=0,
    hosts_max=0,
)
POSTGRES = Scheme(
    names=("postgresql", "postgres"),
    form="postgresql://user:password@host:5432/database",
    port=5432,
    options=(_TABLE,),
    hosts_min=0,
    has_usual_host=True,
)
_CONNECT_S = 10
_BUSY_S = 10.0
_COLUMNS = "cluster, shard, position, idx, id, kind, subject, event"

_TABLES = """
CREATE TABLE IF NOT EXISTS {table} (
    cluster text NOT NULL, shard integer NOT NULL, position bigint NOT NULL, idx bigint NOT NULL,
    id text NOT NULL, kind text NOT NULL, subject text NOT NULL, event {json} NOT NULL,
    PRIMARY KEY (cluster, shard, position, idx)
);
CREATE INDEX IF NOT EXISTS {table}_subject ON {table} (subject, position);
CREATE TABLE IF NOT EXISTS fencehold_cursors (
    cluster text NOT NULL, target text NOT NULL, position bigint NOT NULL, idx bigint NOT NULL,
    PRIMARY KEY (cluster, target)
);
"""


def _row(cluster: str, record: Record) -> tuple[Any, ...]:
    place = (cluster, record.shard, record.position, record.index)
    return *place, record.id, record.kind, record.subject, record.body.decode()


def _target(table: str, shard: int) -> str:
    """The key of a shard's cursor: of the first, as before there were several, the table."""
    return f"{table}/{shard}" if shard else table


def _moved(cluster: str, table: str, batch: Sequence[Record]) -> list[tuple[str, str, int, int]]:
    return [(cluster, _target(table, shard), *cursor) for shard, cursor in cursors_of(batch).items()]


def _cursors(table: str, rows: Iterable[tuple[Any, ...]]) -> Cursors:
    """Those of this table: others may begin with its name, and no name has a slash."""
    own = [(target.partition("/"), position, index) for target, position, index in rows]
    return {int(shard or 0): (position, index) for (name, _, shard), position, index in own if name == table}


class SqliteRows:
    """A table in a file of SQLite."""

    declared = Declared("sqlite", Delivery.EXACTLY_ONCE, "a row of the database, written with the events")

    def __init__(self, path: Path, cluster: str, table: str = "fencehold_events") -> None:
        self._path = path
        self._cluster = cluster
        self._table = table
        self._connection: sqlite3.Connection | None = None
        self._worker = Worker()

    @classmethod
    def of(cls, url: str, cluster: str) -> "SqliteRows":
        """Raises UsageError: the URL names no file."""
        said = SQLITE.parse(url)
        if not said.path:
            raise said.refusal(f"it names a file: write {SQLITE.form}")
        return cls(Path(f"/{said.path}"), cluster, said.options["table"])

    async def open(self, shards: int = 1) -> Cursors:
        return await self._worker.do(self._open)

    async def deliver(self, batch: Sequence[Record]) -> None:
        await self._worker.do(self._write, batch)

    async def close(self) -> None:
        await self._worker.end(self._close)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _open(self) -> Cursors:
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(
                    self._path, timeout=_BUSY_S, check_same_thread=False, isolation_level=None
                )
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.executescript(_TABLES.format(table=self._table, json="text"))
            asked = "SELECT target, position, idx FROM fencehold_cursors WHERE cluster = ?"
            rows = self._connection.execute(asked, (self._cluster,)).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return _cursors(self._table, rows)

    def _write(self, batch: Sequence[Record]) -> None:
        connection = self._connection
        if connection is None:
            raise Unavailable(f"{self._path} is not open")
        marks = ", ".join("?" * len(_COLUMNS.split(",")))
        rows = f"INSERT OR IGNORE INTO {self._table} ({_COLUMNS}) VALUES ({marks})"
        moved = "INSERT OR REPLACE INTO fencehold_cursors VALUES (?, ?, ?, ?)"
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(rows, [_row(self._cluster, record) for record in batch])
            connection.executemany(moved, _moved(self._cluster, self._table, batch))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> FenceholdError:
        said = f"{self._path}: {error}"
        if isinstance(error, sqlite3.OperationalError) and "unable to open" not in str(error):
            return Unavailable(said)
        return UsageError(said)


class PostgresRows:
    """A table in Postgres."""

    declared = Declared("postgresql", Delivery.EXACTLY_ONCE, "a row of the database, written with the events")

    def __init__(self, params: dict[str, Any], where: str, cluster: str, table: str) -> None:
        self._params = {"connect_timeout": _CONNECT_S, **params}
        self._where = where
        self._cluster = cluster
        self._table = table
        self._connection: AsyncConnection[Any] | None = None

    @classmethod
    def of(cls, url: str, cluster: str) -> "PostgresRows":
        """Raises UsageError: the URL is none."""
        # Here, as the driver comes with an extra.
        from fencehold.drivers.postgres.address import PostgresAddress  # noqa: PLC0415

        address = PostgresAddress.parse(url, POSTGRES)
        return cls(address.params, str(address), cluster, address.options["table"])

    async def open(self, shards: int = 1) -> Cursors:
        import psycopg  # noqa: PLC0415

        await self.close()
        try:
            self._connection = await psycopg.AsyncConnection.connect(**self._params)
            async with self._connection.transaction():
                # Two that make the tables at the same time would conflict.
                await self._connection.execute("SELECT pg_advisory_xact_lock(hashtext('fencehold_events'))")
                await self._connection.execute(_TABLES.format(table=self._table, json="jsonb").encode())
            asked = "SELECT target, position, idx FROM fencehold_cursors WHERE cluster = %s"
            async with self._connection.transaction():
                rows = await (await self._connection.execute(asked, (self._cluster,))).fetchall()
        except psycopg.Error as error:
            raise await self._not_opened(error) from error
        return _cursors(self._table, rows)

    async def deliver(self, batch: Sequence[Record]) -> None:
        import psycopg  # noqa: PLC0415

        from fencehold.drivers.postgres.failures import Rejected as Said  # noqa: PLC0415
        from fencehold.drivers.postgres.failures import first_line, is_lost, refusal  # noqa: PLC0415

        if self._connection is None:
            raise Unavailable(f"{self._where} is not open")
        try:
            async with self._connection.transaction(), self._connection.cursor() as cursor:
                await self._write(cursor, batch)
        except psycopg.Error as error:
            code = error.sqlstate or ""
            if is_lost(code):
                raise OutcomeUnknown(f"{self._where}: {first_line(error)}") from error
            raise refusal(Said(code, first_line(error)), self._where) from error

    async def _write(self, cursor: Any, batch: Sequence[Record]) -> None:
        marks = ", ".join(["%s"] * len(_COLUMNS.split(",")))
        rows = f"INSERT INTO {self._table} ({_COLUMNS}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        await cursor.executemany(rows, [_row(self._cluster, record) for record in batch])
        moved = (
            "INSERT INTO fencehold_cursors VALUES (%s, %s, %s, %s) ON CONFLICT (cluster, target) "
            "DO UPDATE SET position = excluded.position, idx = excluded.idx"
        )
        await cursor.executemany(moved, _moved(self._cluster, self._table, batch))

    async def _not_opened(self, error: Any) -> FenceholdError:
        from fencehold.drivers.postgres.failures import Rejected as Said  # noqa: PLC0415
        from fencehold.drivers.postgres.failures import first_line, is_denied, refusal, unreached  # noqa: PLC0415
        from fencehold.errors import PermissionDenied  # noqa: PLC0415

        if error.sqlstate:
            return refusal(Said(error.sqlstate, first_line(error)), self._where)
        denied = PermissionDenied if await is_denied(error, self._params, _CONNECT_S) else None
        return unreached(error, self._where, denied)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                await connection.close()
