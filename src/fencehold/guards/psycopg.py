"""A guard for Postgres, in the caller's own transaction, by psycopg 3.

::

    guard = Guard()
    with connection.transaction():
        guard.enter(connection, hold)      # first, before anything is read
        ...                                # read, think
        guard.check(connection, hold)      # before writing, where `enter` was in another transaction
        ...                                # write

1. The mark is a row that is locked until the transaction ends: a newer holder waits for an older one that is just
   committing, and an older one that comes later is refused. Bound the wait by `lock_timeout`.
2. Outside of a transaction a guard guards nothing, and refuses.
3. In REPEATABLE READ and SERIALIZABLE, a mark that another has raised since the transaction's first statement is
   psycopg's `SerializationFailure` (40001): retry the transaction. Then the guard shows whether the fence is
   stale.

The statements and their laws are in `fencehold.guards.statements`.
"""

from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from fencehold.errors import UsageError
from fencehold.guards import drivers
from fencehold.guards.drivers import Updated, Values
from fencehold.guards.statements import FencedUpdate

__all__ = ["AsyncGuard", "Guard", "async_fenced_update", "fenced_update"]

_IDLE = TransactionStatus.IDLE


class _Psycopg(drivers.Driver):
    dialect = "postgresql"
    style = "pyformat"
    kind: type[Any]

    def begun(self, connection: Any) -> None:
        if not isinstance(connection, self.kind):
            raise UsageError(f"this guard takes a psycopg.{self.kind.__name__}, not {connection!r}")
        if connection.autocommit:
            self.still_open(connection)

    def still_open(self, connection: Any) -> None:
        """Afterwards it may be none in a pipeline without a transaction."""
        if connection.pgconn.transaction_status == _IDLE:
            raise UsageError(
                "a guard works in the transaction that writes: "
                "use `with connection.transaction():`, or no autocommit"
            )


class _Blocking(_Psycopg, drivers.BlockingDriver["Connection[Any]"]):
    kind = Connection

    def execute(self, connection: "Connection[Any]", sql: str, values: Values | None = None) -> None:
        connection.execute(sql, values)

    def told(self, connection: "Connection[Any]", sql: str, values: Values) -> int | None:
        row = Cursor(connection, row_factory=tuple_row).execute(sql, values).fetchone()
        return row[0] if row else None

    def updated(self, connection: "Connection[Any]", said: FencedUpdate, values: Values) -> Updated:
        with Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(said.update, values)
            if cursor.rowcount < 0:
                # In a pipeline, which has not asked yet.
                with connection.pipeline() as pipeline:
                    pipeline.sync()
            written = cursor.rowcount
        return Updated(written, self.told(connection, said.look, values) if written == 0 else None)


class _Awaited(_Psycopg, drivers.AwaitedDriver["AsyncConnection[Any]"]):
    kind = AsyncConnection

    async def execute(self, connection: "AsyncConnection[Any]", sql: str, values: Values | None = None) -> None:
        await connection.execute(sql, values)

    async def told(self, connection: "AsyncConnection[Any]", sql: str, values: Values) -> int | None:
        cursor = await AsyncCursor(connection, row_factory=tuple_row).execute(sql, values)
        row = await cursor.fetchone()
        return row[0] if row else None

    async def updated(self, connection: "AsyncConnection[Any]", said: FencedUpdate, values: Values) -> Updated:
        async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(said.update, values)
            if cursor.rowcount < 0:
                async with connection.pipeline() as pipeline:
                    await pipeline.sync()
            written = cursor.rowcount
        return Updated(written, await self.told(connection, said.look, values) if written == 0 else None)


class Guard(drivers.BlockingGuard["Connection[Any]"]):
    """Guards what is in the same database, on a `psycopg.Connection`."""

    _driver = _Blocking()


class AsyncGuard(drivers.AwaitedGuard["AsyncConnection[Any]"]):
    """The same on a `psycopg.AsyncConnection`."""

    _driver = _Awaited()


fenced_update = Guard._driver.fenced_update
async_fenced_update = AsyncGuard._driver.fenced_update
