"""A guard for MySQL and MariaDB, in the caller's own transaction, by PyMySQL or mysqlclient, or by aiomysql.

::

    guard = Guard()
    connection.begin()
    guard.enter(connection, hold)          # first, before anything is read
    ...
    connection.commit()

1. The mark is a row that is locked until the transaction ends: a newer holder waits for an older one that is just
   committing, and an older one that comes later is refused. The wait is bounded by `innodb_lock_wait_timeout`.
2. Outside of a transaction a guard guards nothing, and refuses. With `autocommit` on, a transaction that was begun
   is seen by what PyMySQL and aiomysql keep of the server's status; mysqlclient keeps none, so turn it off there.
3. In REPEATABLE READ, MySQL's default, a transaction reads the snapshot of its first read, and gets no error if
   that is old. So `enter` comes before any read: the snapshot is taken after the mark was raised.
4. Two transactions that enter names unknown so far, side by side, may end in a deadlock (1213), which is the
   driver's own error: retry. `register` names beforehand where that is frequent.
5. `LAST_INSERT_ID()` of the session is the mark afterwards: it is how MySQL tells it in the same statement.

The statements and their laws are in `fencehold.guards.statements`.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from fencehold.errors import UsageError
from fencehold.guards import drivers
from fencehold.guards.drivers import Updated, Values
from fencehold.guards.offer import Offer
from fencehold.guards.statements import FencedUpdate, Statements

__all__ = ["AsyncGuard", "Guard", "async_fenced_update", "fenced_update"]

_IN_TRANSACTION = 1
"""A bit of the status that the server sends with each reply."""


class _Mysql(drivers.Driver):
    dialect = "mysql"
    style = "pyformat"
    is_async: bool

    def begun(self, connection: Any) -> None:
        commit = getattr(connection, "commit", None)
        if commit is None or not hasattr(connection, "get_autocommit"):
            raise UsageError(f"this guard takes a connection of a MySQL driver, not {connection!r}")
        if inspect.iscoroutinefunction(commit) is not self.is_async:
            raise UsageError(f"{connection!r} is for {'Guard' if self.is_async else 'AsyncGuard'}")
        if connection.get_autocommit():
            _in_transaction(connection, unknown=0)

    def still_open(self, connection: Any) -> None:
        """Afterwards it may be none in a table without transactions."""
        _in_transaction(connection, unknown=_IN_TRANSACTION)

    def judge(self, said: Statements, offer: Offer, told: int | None) -> None:
        said.judge_mysql(offer, told)


class _Blocking(_Mysql, drivers.BlockingDriver[Any]):
    is_async = False

    def execute(self, connection: Any, sql: str, values: Values | None = None) -> None:
        self.told(connection, sql, values)

    def told(self, connection: Any, sql: str, values: Values | None) -> int | None:
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            told: int | None = cursor.lastrowid
        return told

    def updated(self, connection: Any, said: FencedUpdate, values: Values) -> Updated:
        with connection.cursor() as cursor:
            cursor.execute(said.update, values)
            if written := _written(cursor):
                return Updated(written, None)
            cursor.execute(said.look, values)
            return Updated(0, _value(cursor.fetchone()))


class _Awaited(_Mysql, drivers.AwaitedDriver[Any]):
    is_async = True

    async def execute(self, connection: Any, sql: str, values: Values | None = None) -> None:
        await self.told(connection, sql, values)

    async def told(self, connection: Any, sql: str, values: Values | None) -> int | None:
        async with connection.cursor() as cursor:
            await cursor.execute(sql, values)
            told: int | None = cursor.lastrowid
        return told

    async def updated(self, connection: Any, said: FencedUpdate, values: Values) -> Updated:
        async with connection.cursor() as cursor:
            await cursor.execute(said.update, values)
            if written := _written(cursor):
                return Updated(written, None)
            await cursor.execute(said.look, values)
            return Updated(0, _value(await cursor.fetchone()))


class Guard(drivers.BlockingGuard[Any]):
    """Guards what is in the same database, on a connection of PyMySQL or mysqlclient."""

    _driver = _Blocking()


class AsyncGuard(drivers.AwaitedGuard[Any]):
    """The same on a connection of aiomysql."""

    _driver = _Awaited()


fenced_update = Guard._driver.fenced_update
async_fenced_update = AsyncGuard._driver.fenced_update


def _written(cursor: Any) -> int:
    """How many rows an update matched. MySQL does not count a matched row that stays as it was."""
    return max(cursor.rowcount, 1) if cursor.lastrowid else 0


def _value(row: Any) -> int | None:
    """The only value of a row, which may be a dictionary."""
    values = row.values() if isinstance(row, Mapping) else row
    return next(iter(values or ()), None)


def _in_transaction(connection: Any, unknown: int) -> None:
    """Refuse a connection without a transaction; `unknown` is the status for drivers that keep none."""
    if not getattr(connection, "server_status", unknown) & _IN_TRANSACTION:
        raise UsageError(
            "a guard works in the transaction that writes, on a table of InnoDB: "
            "call begin(), or turn autocommit off"
        )
