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
   psycopg's `SerializationFailure` (40001): try the transaction again. It is told whether it is stale then.

The statements and their laws are in `fencehold.guards.statements`.
"""

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from fencehold.errors import UsageError
from fencehold.guards import statements
from fencehold.guards.offer import Offered, offer_of
from fencehold.guards.statements import TABLE, FencedUpdate

__all__ = ["AsyncGuard", "Guard", "async_fenced_update", "fenced_update"]

_IDLE = TransactionStatus.IDLE


class Guard:
    """Guards what is in the same database, on a `psycopg.Connection`."""

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """`strict`: a name without a mark is an error; `register` the names there are.

        Raises:
            UsageError: that is no name of a table.
        """
        self._said = statements.statements("postgresql", "pyformat", table, strict)

    def enter(self, connection: "Connection[Any]", hold: Offered, name: str | None = None) -> None:
        """Raise the mark: the first statement of a holder's first transaction, before it reads anything.

        Raises:
            StaleFence: another has held the name since; roll back.
            UsageError: there is no transaction, no fence for that name, or (strict) no mark.
            psycopg.Error: as it is; a `SerializationFailure` or `DeadlockDetected` may be tried again.
        """
        offer = offer_of(hold, name)
        _begun(connection, Connection)
        cursor = Cursor(connection, row_factory=tuple_row)
        row = cursor.execute(self._said.raising, self._said.values(offer)).fetchone()
        _still_open(connection)
        self._said.judge(offer, row[0] if row else None)

    def check(self, connection: "Connection[Any]", hold: Offered, name: str | None = None) -> None:
        """Refuse a stale fence, in the transaction that writes. Raises as `enter`, and does the same."""
        self.enter(connection, hold, name)

    def register(self, connection: "Connection[Any]", *names: str) -> None:
        """Have names known, with no fence seen yet; those that are known stay as they are."""
        for name in names:
            connection.execute(self._said.registering, {"name": self._said.name(name)})

    def raise_all(self, connection: "Connection[Any]", hold: Offered, name: str | None = None) -> None:
        """Raise every mark to this fence, after a restore: whoever was given a smaller one before is refused."""
        offer = offer_of(hold, name)
        connection.execute(self._said.raising_all, {"fence": offer.fence})

    def create(self, connection: "Connection[Any]") -> None:
        """Make the table, if there is none: for tests and small programs. Else, use a migration."""
        connection.execute(statements.script("postgresql", self._said.table))


class AsyncGuard:
    """The same on a `psycopg.AsyncConnection`."""

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """As `Guard`."""
        self._said = statements.statements("postgresql", "pyformat", table, strict)

    async def enter(self, connection: "AsyncConnection[Any]", hold: Offered, name: str | None = None) -> None:
        """As `Guard.enter`."""
        offer = offer_of(hold, name)
        _begun(connection, AsyncConnection)
        cursor = AsyncCursor(connection, row_factory=tuple_row)
        await cursor.execute(self._said.raising, self._said.values(offer))
        row = await cursor.fetchone()
        _still_open(connection)
        self._said.judge(offer, row[0] if row else None)

    async def check(self, connection: "AsyncConnection[Any]", hold: Offered, name: str | None = None) -> None:
        """As `Guard.check`."""
        await self.enter(connection, hold, name)

    async def register(self, connection: "AsyncConnection[Any]", *names: str) -> None:
        """As `Guard.register`."""
        for name in names:
            await connection.execute(self._said.registering, {"name": self._said.name(name)})

    async def raise_all(self, connection: "AsyncConnection[Any]", hold: Offered, name: str | None = None) -> None:
        """As `Guard.raise_all`."""
        offer = offer_of(hold, name)
        await connection.execute(self._said.raising_all, {"fence": offer.fence})

    async def create(self, connection: "AsyncConnection[Any]") -> None:
        """As `Guard.create`."""
        await connection.execute(statements.script("postgresql", self._said.table))


def fenced_update(
    connection: "Connection[Any]",
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
        psycopg.Error: as it is.
    """
    offer = offer_of(hold, name)
    said, given = _update(table, set, where, column), statements.with_fence(values, offer)
    _begun(connection, Connection)
    with Cursor(connection, row_factory=tuple_row) as cursor:
        written = cursor.execute(said.update, given).rowcount
        row = cursor.execute(said.look, given).fetchone() if written == 0 else None
    _still_open(connection)
    return said.judge(offer, written, row[0] if row else None)


async def async_fenced_update(
    connection: "AsyncConnection[Any]",
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
    _begun(connection, AsyncConnection)
    row = None
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        written = (await cursor.execute(said.update, given)).rowcount
        if written == 0:
            row = await (await cursor.execute(said.look, given)).fetchone()
    _still_open(connection)
    return said.judge(offer, written, row[0] if row else None)


def _update(table: str, sets: str, where: str, column: str) -> FencedUpdate:
    return statements.fenced_update("postgresql", "pyformat", table, sets, where, column)


def _begun(connection: "Connection[Any] | AsyncConnection[Any]", kind: type[Any]) -> None:
    """Refuse what is no connection of that kind, and one on which each statement commits by itself."""
    if not isinstance(connection, kind):
        raise UsageError(f"this guard takes a psycopg.{kind.__name__}, not {connection!r}")
    if connection.autocommit and connection.pgconn.transaction_status == _IDLE:
        raise _no_transaction()


def _still_open(connection: "Connection[Any] | AsyncConnection[Any]") -> None:
    """Refuse if the statement was a transaction of its own after all, as in a pipeline without one."""
    if connection.pgconn.transaction_status == _IDLE:
        raise _no_transaction()


def _no_transaction() -> UsageError:
    return UsageError(
        "a guard works in the transaction that writes: use `with connection.transaction():`, or no autocommit"
    )
