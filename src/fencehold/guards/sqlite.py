"""A guard for SQLite, in the caller's own transaction, by `sqlite3` or aiosqlite.

::

    guard = Guard()
    with connection:                       # commits, or rolls back
        guard.enter(connection, hold)      # first, before anything is read
        ...

1. A file has one writer at a time: `enter` makes the caller that one until the transaction ends. Another waits as
   long as its `timeout=` says, and then gets `sqlite3.OperationalError: database is locked`, which says nothing
   about the fence.
2. Outside of a transaction a guard guards nothing, and refuses. `sqlite3` implicitly begins one before the guard's
   statement, unless `isolation_level=None` (or, from Python 3.12 on, `autocommit=True`) says not to.
3. A transaction that has read before, and whose snapshot is old, gets "database is locked" from SQLite.
   Roll back and enter first.

SQLite 3.35 or newer. The statements and their laws are in `fencehold.guards.statements`.
"""

import sqlite3
from typing import TYPE_CHECKING, Any

from fencehold.errors import UsageError
from fencehold.guards import drivers
from fencehold.guards.drivers import Updated, Values
from fencehold.guards.statements import FencedUpdate

if TYPE_CHECKING:
    import aiosqlite

__all__ = ["AsyncGuard", "Guard", "async_fenced_update", "fenced_update"]

_LEGACY = -1
"""What `autocommit` is from Python 3.12 on where `isolation_level` decides."""


def begins(connection: Any) -> bool:
    """Whether the next write is part of a transaction, or begins one; of a connection of either driver."""
    mode = getattr(connection, "autocommit", _LEGACY)
    by_itself = connection.isolation_level is not None if mode == _LEGACY else not mode
    return bool(connection.in_transaction or by_itself)


class _Sqlite(drivers.Driver):
    dialect = "sqlite"
    style = "named"

    def begun(self, connection: Any) -> None:
        if not begins(connection):
            raise _no_transaction()

    def still_open(self, connection: Any) -> None:
        if not connection.in_transaction:
            raise _no_transaction()


class _Blocking(_Sqlite, drivers.BlockingDriver[sqlite3.Connection]):
    def begun(self, connection: Any) -> None:
        if not isinstance(connection, sqlite3.Connection):
            raise UsageError(
                f"Guard takes a connection of sqlite3, AsyncGuard one of aiosqlite, not {connection!r}"
            )
        super().begun(connection)

    def execute(self, connection: sqlite3.Connection, sql: str, values: Values | None = None) -> None:
        connection.execute(sql, values or {})

    def told(self, connection: sqlite3.Connection, sql: str, values: Values) -> int | None:
        """All rows are fetched: a statement that is not finished would prevent a commit."""
        cursor = connection.cursor()
        cursor.row_factory = None
        rows = cursor.execute(sql, values).fetchall()
        cursor.close()
        return rows[0][0] if rows else None

    def updated(self, connection: sqlite3.Connection, said: FencedUpdate, values: Values) -> Updated:
        written = connection.execute(said.update, values).rowcount
        return Updated(written, self.told(connection, said.look, values) if written == 0 else None)


class _Awaited(_Sqlite, drivers.AwaitedDriver["aiosqlite.Connection"]):
    def begun(self, connection: Any) -> None:
        if isinstance(connection, sqlite3.Connection) or not hasattr(connection, "in_transaction"):
            raise UsageError(
                f"AsyncGuard takes a connection of aiosqlite, Guard one of sqlite3, not {connection!r}"
            )
        super().begun(connection)

    async def execute(self, connection: "aiosqlite.Connection", sql: str, values: Values | None = None) -> None:
        await connection.execute_fetchall(sql, values)

    async def told(self, connection: "aiosqlite.Connection", sql: str, values: Values) -> int | None:
        async with connection.execute(sql, values) as cursor:
            cursor.row_factory = None
            rows = list(await cursor.fetchall())
        return rows[0][0] if rows else None

    async def updated(self, connection: "aiosqlite.Connection", said: FencedUpdate, values: Values) -> Updated:
        async with connection.execute(said.update, values) as cursor:
            written = cursor.rowcount
        return Updated(written, await self.told(connection, said.look, values) if written == 0 else None)


class Guard(drivers.BlockingGuard[sqlite3.Connection]):
    """Guards what is in the same file, on a `sqlite3.Connection`."""

    _driver = _Blocking()


class AsyncGuard(drivers.AwaitedGuard["aiosqlite.Connection"]):
    """The same on an `aiosqlite.Connection`."""

    _driver = _Awaited()


fenced_update = Guard._driver.fenced_update
async_fenced_update = AsyncGuard._driver.fenced_update


def _no_transaction() -> UsageError:
    return UsageError("a guard works in the transaction that writes: execute BEGIN, or set an isolation_level")
