"""The guards for SQLAlchemy: connections and sessions, blocking and awaited, on all three databases."""

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.dialects import oracle
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from fencehold import UsageError
from fencehold.guards import sqlalchemy as guards
from fencehold.guards.alembic import create_fences, drop_fences
from rig.mariadb import DATABASE, IN_THE_CLEAR, USER
from tests.unit.guards import amounts
from tests.unit.guards.sql_laws import GuardLaws, balance, offer, seen
from tests.unit.guards.sql_places import (
    AwaitedLine,
    Line,
    MysqlPlace,
    Place,
    PostgresPlace,
    SqlitePlace,
)

WAIT_S = 30
WALLET = Table(
    "wallet", MetaData(), Column("id", Integer), Column("balance", BigInteger), Column("fence", BigInteger)
)


def _update(sets: str, where: str, values: dict[str, Any]) -> Any:
    """The same update as the other drivers have in words."""
    places = {name: f":{name}" for name in values}
    statement = update(WALLET).where(text(where.format(**places)).bindparams(**_in(where, values)))
    if sets:
        column, _, value = sets.format(**places).partition(" = ")
        statement = statement.values({column: text(value).bindparams(**_in(sets, values))})
    return statement


def _in(sql: str, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if f"{{{name}}}" in sql}


class BlockingLine(Line):
    def update(self, hold: Any, sets: str, where: str, **values: Any) -> bool:
        return guards.fenced_update(self.connection, _update(sets, where, values), WALLET.c.fence, hold)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        result = self.connection.execute(text(sql.replace(":", r"\:")))
        return [tuple(row) for row in result] if result.returns_rows else []


class AsyncLine(AwaitedLine):
    def update(self, hold: Any, sets: str, where: str, **values: Any) -> bool:
        statement = _update(sets, where, values)
        return self.run(guards.async_fenced_update(self.connection, statement, WALLET.c.fence, hold))

    async def fetched(self, sql: str) -> list[tuple[Any, ...]]:
        result = await self.connection.execute(text(sql.replace(":", r"\:")))
        return [tuple(row) for row in result] if result.returns_rows else []


class Through:
    """SQLAlchemy between the tests and a place."""

    awaited = False
    drivers: tuple[str, str]

    def where(self) -> str:
        raise NotImplementedError

    def connecting(self) -> dict[str, Any]:
        return {}

    def engine(self) -> Engine:
        return create_engine(
            f"{self.drivers[0]}://{self.where()}", poolclass=NullPool, connect_args=self.connecting()
        )

    def async_engine(self) -> Any:
        url = f"{self.drivers[1]}://{self.where()}"
        return create_async_engine(url, poolclass=NullPool, connect_args=self.connecting())

    def line(self, *, strict: bool = False, autocommit: bool = False, isolation: str = "") -> Line:
        level = "AUTOCOMMIT" if autocommit else isolation
        how: dict[str, Any] = {"isolation_level": level} if level else {}
        if not self.awaited:
            return BlockingLine(self.engine().connect().execution_options(**how), guards.Guard(strict=strict))

        async def connect() -> Any:
            connection = await self.async_engine().connect()
            return await connection.execution_options(**how)

        return AsyncLine(connect, guards.AsyncGuard(strict=strict))


class OnPostgres(Through, PostgresPlace):
    drivers = ("postgresql+psycopg", "postgresql+psycopg")

    def where(self) -> str:
        return self.url.partition("://")[2]

    def connecting(self) -> dict[str, Any]:
        return {"options": "-c synchronous_commit=off"}


class OnMysql(Through, MysqlPlace):
    drivers = ("mysql+pymysql", "mysql+aiomysql")

    def where(self) -> str:
        return f"{USER}:{USER}@127.0.0.1:{self.server.port}/{DATABASE}"

    def connecting(self) -> dict[str, Any]:
        # aiomysql has no such argument: it is in the clear unless told otherwise.
        return {} if self.awaited else {**IN_THE_CLEAR}


class OnSqlite(Through, SqlitePlace):
    drivers = ("sqlite", "sqlite+aiosqlite")
    weak = strong = "SERIALIZABLE"

    def where(self) -> str:
        return f"/{self.file}"

    def connecting(self) -> dict[str, Any]:
        return {"timeout": WAIT_S, "check_same_thread": False}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[type[Any]], Any]]:
    """Each kind of place, started when it is first asked for."""
    with contextlib.ExitStack() as stack:
        made: dict[type[Any], Any] = {}

        def find(kind: type[Any]) -> Any:
            if kind not in made:
                made[kind] = kind(tmp_path_factory.mktemp("sqlite")) if kind is OnSqlite else kind()
                stack.callback(made[kind].close)
            return made[kind]

        yield find


def _ready(place: Any, *, awaited: bool) -> Any:
    place.awaited = awaited
    place.prepare()
    if isinstance(place, MysqlPlace):
        return place
    with place.lines(1) as (line,):
        line.create()
        line.commit()
    return place


@pytest.mark.parametrize("kind", [OnPostgres, OnMysql, OnSqlite])
class TestBlocking(GuardLaws):
    @pytest.fixture
    def place(self, places: Any, kind: type[Any]) -> Place:
        found: Place = _ready(places(kind), awaited=False)
        return found

    @pytest.fixture
    def writes(self, kind: type[Any]) -> int:
        return amounts.writes(10_000 if kind is OnPostgres else 1_000)


@pytest.mark.parametrize("kind", [OnPostgres, OnMysql, OnSqlite])
class TestAsync(GuardLaws):
    @pytest.fixture
    def place(self, places: Any, kind: type[Any]) -> Place:
        found: Place = _ready(places(kind), awaited=True)
        return found

    @pytest.fixture
    def writes(self) -> int:
        return amounts.writes(640)


@pytest.fixture(params=[OnPostgres, OnMysql, OnSqlite])
def place(request: pytest.FixtureRequest, places: Any) -> Any:
    return _ready(places(request.param), awaited=False)


@pytest.fixture
def small(places: Any) -> Any:
    return _ready(places(OnSqlite), awaited=False)


def test_a_session_and_its_connection_are_guarded_alike(place: Any) -> None:
    """A guard takes either: it is the same transaction."""
    with Session(place.engine()) as session:
        guards.Guard().enter(session, offer(7))
        guards.Guard().check(session.connection(), offer(7))
        session.rollback()
    assert seen(place, lambda line: line.value("SELECT count(*) FROM fencehold_fences")) == 0


def test_begin_by_an_event_is_a_transaction(small: Any) -> None:
    """The way SQLAlchemy's pages tell to have real transactions in SQLite: no isolation level, and a BEGIN."""
    engine = small.engine()
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.connect() as connection:
        guards.Guard().enter(connection, offer(7))
        connection.rollback()
    assert seen(small, lambda line: line.value("SELECT count(*) FROM fencehold_fences")) == 0


def test_what_cannot_be_guarded_is_refused(small: Any) -> None:
    """Engines, connections of the other kind, databases without statements."""
    with pytest.raises(UsageError, match="takes a Connection or Session"):
        guards.Guard().enter(small.engine(), offer(7))
    with small.engine().connect() as connection:
        with pytest.raises(UsageError, match="AsyncConnection"):
            guards.AsyncGuard().enter(connection, offer(7)).send(None)
        with pytest.raises(UsageError, match="where"):
            guards.fenced_update(connection, update(WALLET), WALLET.c.fence, offer(7))
        connection.dialect.name = "oracle"
        with pytest.raises(UsageError, match="not for oracle"):
            guards.Guard().enter(connection, offer(7))


def test_a_fenced_update_is_an_update_like_any_other(place: Any) -> None:
    """Who executes it by other means looks at the count of rows."""
    with Session(place.engine()) as session:
        for fence, rows in ((7, 1), (7, 1), (6, 0)):
            statement = guards.fenced(update(WALLET).where(WALLET.c.id == 1), WALLET.c.fence, offer(fence))
            assert session.execute(statement.values(balance=fence)).rowcount == rows  # type: ignore[attr-defined]
        session.rollback()


@pytest.mark.parametrize("dialect", [OnPostgres, OnMysql, OnSqlite])
def test_a_migration_makes_the_table_and_drops_it(places: Any, dialect: type[Any]) -> None:
    """Alembic runs the SQL of the database it migrates."""
    place = _ready(places(dialect), awaited=False)
    with place.engine().connect() as connection:
        op = Operations(MigrationContext.configure(connection))
        create_fences(op, "migrated")
        guards.Guard("migrated").enter(connection, offer(7))
        connection.rollback()
        create_fences(op, "migrated")
        drop_fences(op, "migrated")
        connection.commit()
        assert not inspect(connection).has_table("migrated")


def test_a_migration_is_written_as_sql_too() -> None:
    """`alembic upgrade --sql` shows what would be run."""
    written = io.StringIO()
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": written}
    )
    create_fences(Operations(context))
    drop_fences(Operations(context))
    assert "CREATE TABLE IF NOT EXISTS fencehold_fences" in written.getvalue()
    assert "DROP TABLE fencehold_fences" in written.getvalue()
    with pytest.raises(UsageError, match="not for 'oracle'"):
        create_fences(Operations(MigrationContext.configure(dialect=oracle.dialect())))  # type: ignore[no-untyped-call]


async def test_an_awaited_session_is_entered_by_its_guard(small: Any) -> None:
    """A session that is awaited is a session like any other."""

    async def main() -> int:
        engine = small.async_engine()
        async with AsyncSession(engine) as session:
            await guards.AsyncGuard().enter(session, offer(7))
            found = (await session.execute(select(WALLET.c.balance))).scalar_one()
        await engine.dispose()
        return int(found)

    assert (await main()) == seen(small, balance)
