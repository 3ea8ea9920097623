"""A guard for SQLite, in the caller's own transaction, by `sqlite3` or aiosqlite.

::

    guard = Guard()
    with connection:                       # commits, or rolls back
        guard.enter(connection, hold)      # first, before anything is read
        ...

1. A file has one writer at a time: `enter` makes the caller that one until the transaction ends. Another waits as
   long as its `timeout=` says, and then has `sqlite3.OperationalError: database is locked`, which says nothing
   about the fence.
2. Outside of a transaction a guard guards nothing, and refuses. `sqlite3` begins one by itself before the guard's
   statement, unless `isolation_level=None` (or, from Python 3.12 on, `autocommit=True`) says not to.
3. A transaction that has read before, and whose snapshot is old, is told by SQLite that the database is locked.
   Roll back and enter first.

SQLite 3.35 or newer. The statements and their laws are in `fencehold.guards.statements`.
"""

import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fencehold.errors import UsageError
from fencehold.guards import statements
from fencehold.guards.offer import Offered, offer_of
from fencehold.guards.statements import TABLE, FencedUpdate

if TYPE_CHECKING:
    import aiosqlite

__all__ = ["AsyncGuard", "Guard", "async_fenced_update", "fenced_update"]

_LEGACY = -1
"""What `autocommit` is from Python 3.12 on where `isolation_level` decides."""


class Guard:
    """Guards what is in the same file, on a `sqlite3.Connection`."""

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """`strict`: a name without a mark is an error; `register` the names there are.

        Raises:
            UsageError: that is no name of a table.
        """
        self._said = statements.statements("sqlite", "named", table, strict)

    def enter(self, connection: sqlite3.Connection, hold: Offered, name: str | None = None) -> None:
        """Raise the mark: the first statement of a holder's first transaction, before it reads anything.

        Raises:
            StaleFence: another has held the name since; roll back.
            UsageError: there is no transaction, no fence for that name, or (strict) no mark.
            sqlite3.Error: as it is.
        """
        offer = offer_of(hold, name)
        _blocking(connection)
        _begun(connection)
        row = _first(connection, self._said.raising, self._said.values(offer))
        _still_open(connection)
        self._said.judge(offer, row)

    def check(self, connection: sqlite3.Connection, hold: Offered, name: str | None = None) -> None:
        """Refuse a stale fence, in the transaction that writes. Raises as `enter`, and does the same."""
        self.enter(connection, hold, name)

    def register(self, connection: sqlite3.Connection, *names: str) -> None:
        """Have names known, with no fence seen yet; those that are known stay as they are."""
        for name in names:
            connection.execute(self._said.registering, {"name": name})

    def raise_all(self, connection: sqlite3.Connection, hold: Offered, name: str | None = None) -> None:
        """Raise every mark to this fence, after a restore: whoever was given a smaller one before is refused."""
        connection.execute(self._said.raising_all, {"fence": offer_of(hold, name).fence})

    def create(self, connection: sqlite3.Connection) -> None:
        """Make the table, if there is none: for tests and small programs. Else, use a migration."""
        connection.execute(statements.script("sqlite", self._said.table))


class AsyncGuard:
    """The same on an `aiosqlite.Connection`."""

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """As `Guard`."""
        self._said = statements.statements("sqlite", "named", table, strict)

    async def enter(self, connection: "aiosqlite.Connection", hold: Offered, name: str | None = None) -> None:
        """As `Guard.enter`."""
        offer = offer_of(hold, name)
        _awaited(connection)
        _begun(connection)
        row = await _afirst(connection, self._said.raising, self._said.values(offer))
        _still_open(connection)
        self._said.judge(offer, row)

    async def check(self, connection: "aiosqlite.Connection", hold: Offered, name: str | None = None) -> None:
        """As `Guard.check`."""
        await self.enter(connection, hold, name)

    async def register(self, connection: "aiosqlite.Connection", *names: str) -> None:
        """As `Guard.register`."""
        for name in names:
            await connection.execute_fetchall(self._said.registering, {"name": name})

    async def raise_all(self, connection: "aiosqlite.Connection", hold: Offered, name: str | None = None) -> None:
        """As `Guard.raise_all`."""
        await connection.execute_fetchall(self._said.raising_all, {"fence": offer_of(hold, name).fence})

    async def create(self, connection: "aiosqlite.Connection") -> None:
        """As `Guard.create`."""
        await connection.execute_fetchall(statements.script("sqlite", self._said.table))


def fenced_update(
    connection: sqlite3.Connection,
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

    `set` and `where` are SQL with places as `:id` for the values. Without `set` only the fence is raised: do that
    first, then read the row.

    Raises:
        StaleFence: the row has seen a greater fence, and was not written.
        UsageError: there is no transaction, or `where` means several rows; roll back.
        sqlite3.Error: as it is.
    """
    offer = offer_of(hold, name)
    said, given = _update(table, set, where, column), statements.with_fence(values, offer)
    _blocking(connection)
    _begun(connection)
    written = connection.execute(said.update, given).rowcount
    _still_open(connection)
    mark = _first(connection, said.look, given) if written == 0 else None
    return said.judge(offer, written, mark)


async def async_fenced_update(
    connection: "aiosqlite.Connection",
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
    _awaited(connection)
    _begun(connection)
    async with connection.execute(said.update, given) as cursor:
        written = cursor.rowcount
    _still_open(connection)
    mark = await _afirst(connection, said.look, given) if written == 0 else None
    return said.judge(offer, written, mark)


def begins(connection: Any) -> bool:
    """Whether the next write is part of a transaction, or begins one; of a connection of either driver."""
    mode = getattr(connection, "autocommit", _LEGACY)
    by_itself = connection.isolation_level is not None if mode == _LEGACY else not mode
    return bool(connection.in_transaction or by_itself)


def _begun(connection: Any) -> None:
    if not begins(connection):
        raise _no_transaction()


def _still_open(connection: Any) -> None:
    """Refuse if the statement was a transaction of its own after all."""
    if not connection.in_transaction:
        raise _no_transaction()


def _first(connection: sqlite3.Connection, sql: str, values: dict[str, Any]) -> int | None:
    """The only value of the only row. All are fetched: a statement that is not over would keep a commit away."""
    cursor = connection.cursor()
    cursor.row_factory = None
    rows = cursor.execute(sql, values).fetchall()
    cursor.close()
    return rows[0][0] if rows else None


async def _afirst(connection: "aiosqlite.Connection", sql: str, values: dict[str, Any]) -> int | None:
    async with connection.execute(sql, values) as cursor:
        cursor.row_factory = None
        rows = list(await cursor.fetchall())
    return rows[0][0] if rows else None


def _update(table: str, sets: str, where: str, column: str) -> FencedUpdate:
    return statements.fenced_update("sqlite", "named", table, sets, where, column)


def _blocking(connection: Any) -> None:
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError(f"Guard takes a connection of sqlite3, AsyncGuard one of aiosqlite, not {connection!r}")


def _awaited(connection: Any) -> None:
    if isinstance(connection, sqlite3.Connection) or not hasattr(connection, "in_transaction"):
        raise UsageError(f"AsyncGuard takes a connection of aiosqlite, Guard one of sqlite3, not {connection!r}")


def _no_transaction() -> UsageError:
    return UsageError("a guard works in the transaction that writes: execute BEGIN, or set an isolation_level")
