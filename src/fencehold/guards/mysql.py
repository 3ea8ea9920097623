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
3. In REPEATABLE READ, MySQL's default, a transaction reads what was there at its first read, and is not told that
   it is old. So `enter` comes before any read: the snapshot is taken after the mark was raised.
4. Two transactions that enter names unknown so far, side by side, may end in a deadlock (1213), which is the
   driver's own error: try again. `register` names beforehand where that is often.
5. `LAST_INSERT_ID()` of the session is the mark afterwards: it is how MySQL tells it in the same statement.

The statements and their laws are in `fencehold.guards.statements`.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from fencehold.errors import UsageError
from fencehold.guards import statements
from fencehold.guards.offer import Offered, offer_of
from fencehold.guards.statements import TABLE, FencedUpdate

__all__ = ["AsyncGuard", "Guard", "async_fenced_update", "fenced_update"]

_IN_TRANSACTION = 1
"""A bit of the status that the server sends with each reply."""


class Guard:
    """Guards what is in the same database, on a connection of PyMySQL or mysqlclient."""

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """`strict`: a name without a mark is an error; `register` the names there are.

        Raises:
            UsageError: that is no name of a table.
        """
        self._said = statements.statements("mysql", "pyformat", table, strict)

    def enter(self, connection: Any, hold: Offered, name: str | None = None) -> None:
        """Raise the mark: the first statement of a holder's first transaction, before it reads anything.

        Raises:
            StaleFence: another has held the name since; roll back.
            UsageError: there is no transaction, no fence for that name, or (strict) no mark.
            pymysql.Error: as it is, or as the driver's own is called; a deadlock may be tried again.
        """
        offer = offer_of(hold, name)
        _begun(connection, is_async=False)
        told = _told(connection, self._said.raising, self._said.values(offer))
        _still_open(connection)
        self._said.judge_mysql(offer, told)

    def check(self, connection: Any, hold: Offered, name: str | None = None) -> None:
        """Refuse a stale fence, in the transaction that writes. Raises as `enter`, and does the same."""
        self.enter(connection, hold, name)

    def register(self, connection: Any, *names: str) -> None:
        """Have names known, with no fence seen yet; those that are known stay as they are."""
        for name in names:
            _told(connection, self._said.registering, {"name": self._said.name(name)})

    def raise_all(self, connection: Any, hold: Offered, name: str | None = None) -> None:
        """Raise every mark to this fence, after a restore: whoever was given a smaller one before is refused."""
        _told(connection, self._said.raising_all, {"fence": offer_of(hold, name).fence})

    def create(self, connection: Any) -> None:
        """Make the table, if there is none: for tests and small programs. MySQL commits what was begun."""
        _told(connection, statements.script("mysql", self._said.table))


class AsyncGuard:
    """The same on a connection of aiomysql."""

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """As `Guard`."""
        self._said = statements.statements("mysql", "pyformat", table, strict)

    async def enter(self, connection: Any, hold: Offered, name: str | None = None) -> None:
        """As `Guard.enter`."""
        offer = offer_of(hold, name)
        _begun(connection, is_async=True)
        told = await _atold(connection, self._said.raising, self._said.values(offer))
        _still_open(connection)
        self._said.judge_mysql(offer, told)

    async def check(self, connection: Any, hold: Offered, name: str | None = None) -> None:
        """As `Guard.check`."""
        await self.enter(connection, hold, name)

    async def register(self, connection: Any, *names: str) -> None:
        """As `Guard.register`."""
        for name in names:
            await _atold(connection, self._said.registering, {"name": self._said.name(name)})

    async def raise_all(self, connection: Any, hold: Offered, name: str | None = None) -> None:
        """As `Guard.raise_all`."""
        await _atold(connection, self._said.raising_all, {"fence": offer_of(hold, name).fence})

    async def create(self, connection: Any) -> None:
        """As `Guard.create`."""
        await _atold(connection, statements.script("mysql", self._said.table))


def fenced_update(
    connection: Any,
    hold: Offered,
    table: str,
    *,
    set: str = "",
    where: str,
    values: Mapping[str, Any] | None = None,
    name: str | None = None,
    column: str = "fence",
) -> bool:
    """Update one row that has a fence of its own, and that fence; False if there is no such row.

    `set` and `where` are SQL with places as `%(id)s` for the values. Without `set` only the fence is raised: do
    that first, then read the row.

    Raises:
        StaleFence: the row has seen a greater fence, and was not written.
        UsageError: there is no transaction, or `where` means several rows; roll back.
        pymysql.Error: as it is, or as the driver's own is called.
    """
    offer = offer_of(hold, name)
    said, given = _update(table, set, where, column), statements.with_fence(values, offer)
    _begun(connection, is_async=False)
    with connection.cursor() as cursor:
        cursor.execute(said.update, given)
        written, mark = _written(cursor), None
        if written == 0:
            cursor.execute(said.look, given)
            mark = _value(cursor.fetchone(), column)
    _still_open(connection)
    return said.judge(offer, written, mark)


async def async_fenced_update(
    connection: Any,
    hold: Offered,
    table: str,
    *,
    set: str = "",
    where: str,
    values: Mapping[str, Any] | None = None,
    name: str | None = None,
    column: str = "fence",
) -> bool:
    """As `fenced_update`."""
    offer = offer_of(hold, name)
    said, given = _update(table, set, where, column), statements.with_fence(values, offer)
    _begun(connection, is_async=True)
    async with connection.cursor() as cursor:
        await cursor.execute(said.update, given)
        written, mark = _written(cursor), None
        if written == 0:
            await cursor.execute(said.look, given)
            mark = _value(await cursor.fetchone(), column)
    _still_open(connection)
    return said.judge(offer, written, mark)


def _told(connection: Any, sql: str, values: Mapping[str, Any] | None = None) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        told: int | None = cursor.lastrowid
    return told


async def _atold(connection: Any, sql: str, values: Mapping[str, Any] | None = None) -> int | None:
    async with connection.cursor() as cursor:
        await cursor.execute(sql, values)
        told: int | None = cursor.lastrowid
    return told


def _written(cursor: Any) -> int:
    """How many rows an update met. A row that stays as it was is not counted by MySQL, and met all the same."""
    return max(cursor.rowcount, 1) if cursor.lastrowid else 0


def _value(row: Any, column: str) -> int | None:
    """The only value of a row, which may be a dictionary."""
    value: int | None = row[column] if isinstance(row, Mapping) else row[0] if row else None
    return value


def _update(table: str, sets: str, where: str, column: str) -> FencedUpdate:
    return statements.fenced_update("mysql", "pyformat", table, sets, where, column)


def _begun(connection: Any, *, is_async: bool) -> None:
    """Refuse what is no connection of that kind, and one on which each statement commits by itself."""
    commit = getattr(connection, "commit", None)
    if commit is None or not hasattr(connection, "get_autocommit"):
        raise UsageError(f"this guard takes a connection of a MySQL driver, not {connection!r}")
    if inspect.iscoroutinefunction(commit) is not is_async:
        raise UsageError(f"{connection!r} is for {'Guard' if is_async else 'AsyncGuard'}")
    if connection.get_autocommit() and not _status(connection) & _IN_TRANSACTION:
        raise _no_transaction()


def _still_open(connection: Any) -> None:
    """Refuse if the statement was a transaction of its own after all, as in a table without transactions."""
    if not _status(connection, _IN_TRANSACTION) & _IN_TRANSACTION:
        raise _no_transaction()


def _status(connection: Any, unknown: int = 0) -> int:
    status: int = getattr(connection, "server_status", unknown)
    return status


def _no_transaction() -> UsageError:
    return UsageError(
        "a guard works in the transaction that writes, on a table of InnoDB: call begin(), or turn autocommit off"
    )
