"""A guard on a connection or a session of SQLAlchemy.

1. The dialect says which statement is used; those that have none are refused.
2. It works in the transaction that SQLAlchemy has begun, or begins with it. On a connection in `AUTOCOMMIT` it
   guards nothing, and refuses.
3. Of a session with several databases, give the connection that is meant: `session.connection(bind_arguments=…)`.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sqlalchemy import BigInteger, Text, bindparam, text
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.sql.elements import TextClause

from fencehold.errors import UsageError
from fencehold.guards import sqlite, statements
from fencehold.guards.offer import Offered, offer_of
from fencehold.guards.statements import TABLE, Dialect, Statements

if TYPE_CHECKING:
    # Without greenlet, which only awaited sessions need, this module of SQLAlchemy cannot be imported.
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

Connected: TypeAlias = "Connection | Session | scoped_session[Any]"
AsyncConnected: TypeAlias = "AsyncConnection | AsyncSession"

_DIALECTS: dict[str, Dialect] = {
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}


class _Said(NamedTuple):
    """The statements for one dialect, made once: SQLAlchemy then caches their compiled form."""

    words: Statements
    raising: TextClause
    registering: TextClause
    raising_all: TextClause


class Guard:
    """Guards what is in the same database, on a `Connection` or a `Session`."""

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """`strict`: a name without a mark is an error; `register` the names there are.

        Raises:
            UsageError: that is no name of a table.
        """
        self._said = {dialect: _said(dialect, table, strict) for dialect in statements.DIALECTS}
        self._table = table

    def enter(self, connection: Connected, hold: Offered, name: str | None = None) -> None:
        """Raise the mark: the first statement of a holder's first transaction, before it reads anything.

        Raises:
            StaleFence: another has held the name since; roll back.
            UsageError: there is no transaction, no fence for that name, or (strict) no mark.
            sqlalchemy.exc.DBAPIError: as it is; deadlocks and serialization failures may be retried.
        """
        offer = offer_of(hold, name)
        on = connected(connection)
        said = self._said[dialect_of(on)]
        result = on.execute(said.raising, said.words.values(offer))
        _still_open(on)
        if said.words.dialect == "mysql":
            said.words.judge_mysql(offer, result.lastrowid)
        else:
            said.words.judge(offer, result.scalar_one_or_none())

    def check(self, connection: Connected, hold: Offered, name: str | None = None) -> None:
        """Refuse a stale fence, in the transaction that writes. Raises as `enter`, and does the same."""
        self.enter(connection, hold, name)

    def register(self, connection: Connected, *names: str) -> None:
        """Register names, with no fence seen yet; names that are registered stay as they are. Idempotent."""
        on = connected(connection)
        said = self._said[dialect_of(on)]
        for name in names:
            on.execute(said.registering, {"name": said.words.name(name)})

    def raise_all(self, connection: Connected, hold: Offered, name: str | None = None) -> None:
        """Raise every mark to this fence, after a restore: holders with a smaller one are refused."""
        on = connected(connection)
        on.execute(self._said[dialect_of(on)].raising_all, {"fence": offer_of(hold, name).fence})

    def create(self, connection: Connected) -> None:
        """Make the table, if there is none: for tests and small programs. Else, use a migration."""
        on = connected(connection)
        on.exec_driver_sql(statements.script(dialect_of(on), self._table))


class AsyncGuard:
    """The same on an `AsyncConnection` or an `AsyncSession`."""

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """As `Guard`."""
        self._guard = Guard(table, strict=strict)

    async def enter(self, connection: AsyncConnected, hold: Offered, name: str | None = None) -> None:
        """As `Guard.enter`."""
        await _awaited(connection).run_sync(self._guard.enter, hold, name)

    async def check(self, connection: AsyncConnected, hold: Offered, name: str | None = None) -> None:
        """As `Guard.check`."""
        await _awaited(connection).run_sync(self._guard.check, hold, name)

    async def register(self, connection: AsyncConnected, *names: str) -> None:
        """As `Guard.register`."""
        await _awaited(connection).run_sync(self._guard.register, *names)

    async def raise_all(self, connection: AsyncConnected, hold: Offered, name: str | None = None) -> None:
        """As `Guard.raise_all`."""
        await _awaited(connection).run_sync(self._guard.raise_all, hold, name)

    async def create(self, connection: AsyncConnected) -> None:
        """As `Guard.create`."""
        await _awaited(connection).run_sync(self._guard.create)


def connected(given: Any) -> Connection:
    """The connection of what was given, in a transaction from now on.

    Raises:
        UsageError: it is neither connection nor session, or it is in autocommit mode.
    """
    connection = given.connection() if isinstance(given, Session | scoped_session) else given
    if not isinstance(connection, Connection):
        raise UsageError(f"Guard takes a Connection or Session, AsyncGuard the async ones, not {given!r}")
    if _commits_by_itself(connection):
        raise _no_transaction()
    return connection


def dialect_of(connection: Connection) -> Dialect:
    """The dialect of its SQL.

    Raises:
        UsageError: there are no statements for it.
    """
    name = connection.dialect.name
    if name not in _DIALECTS:
        raise UsageError(f"there are guards for {', '.join(_DIALECTS)}, not for {name}")
    return _DIALECTS[name]


def _commits_by_itself(connection: Connection) -> bool:
    if not connection.in_transaction():
        connection.begin()
    driver = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        # The documentation tells programs to set isolation_level to None and to execute BEGIN: that is a
        # transaction.
        return not sqlite.begins(driver)
    try:
        return connection.dialect.detect_autocommit_setting(connection.connection.dbapi_connection)  # type: ignore[arg-type]
    except (AttributeError, NotImplementedError):
        return connection.get_isolation_level() == "AUTOCOMMIT"


def _still_open(connection: Connection) -> None:
    """Refuse if the statement was a transaction of its own after all, where that can be seen."""
    driver = connection.connection.driver_connection
    if connection.dialect.name == "sqlite" and not getattr(driver, "in_transaction", True):
        raise _no_transaction()


def _no_transaction() -> UsageError:
    return UsageError("a guard works in the transaction that writes: this connection is in AUTOCOMMIT")


def _awaited(connection: Any) -> Any:
    if not hasattr(connection, "run_sync"):
        raise UsageError(f"AsyncGuard takes an AsyncConnection or AsyncSession, not {connection!r}")
    return connection


def _said(dialect: Dialect, table: str, strict: bool) -> _Said:
    words = statements.statements(dialect, "named", table, strict)
    fence = bindparam("fence", type_=BigInteger)
    name = bindparam("name", type_=Text)
    return _Said(
        words,
        text(words.raising).bindparams(name, fence),
        text(words.registering).bindparams(name),
        text(words.raising_all).bindparams(fence),
    )
