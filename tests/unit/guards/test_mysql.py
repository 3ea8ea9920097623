"""The guard for MySQL and MariaDB, by PyMySQL and by aiomysql."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import aiomysql
import pymysql
import pytest

from fencehold import StaleFence, UsageError
from fencehold.guards import mysql
from rig.mariadb import DATABASE, IN_THE_CLEAR
from tests.unit.guards.sql_laws import AwaitedLaws, ServedLaws, balance, mark, offer
from tests.unit.guards.sql_places import AwaitedLine, Line, MysqlPlace, Place, Updating


class BlockingLine(Updating, Line):
    def update(self, hold: Any, sets: str, where: str, **values: Any) -> bool:
        return mysql.fenced_update(self.connection, hold, "wallet", **self.arguments(sets, where, values))


class AsyncLine(Updating, AwaitedLine):
    def update(self, hold: Any, sets: str, where: str, **values: Any) -> bool:
        given = self.arguments(sets, where, values)
        return self.run(mysql.async_fenced_update(self.connection, hold, "wallet", **given))

    async def fetched(self, sql: str) -> list[tuple[Any, ...]]:
        async with self.connection.cursor() as cursor:
            await cursor.execute(sql)
            return list(await cursor.fetchall())

    def close(self) -> None:
        self.run(self.connection.ensure_closed())
        self._runner.close()


class BlockingPlace(MysqlPlace):
    def line(self, *, strict: bool = False, autocommit: bool = False, isolation: str = "") -> Line:
        connection = pymysql.connect(
            **self.arguments,
            **IN_THE_CLEAR,
            database=DATABASE,
            autocommit=autocommit,
            init_command=_begin(isolation),
        )
        return BlockingLine(connection, mysql.Guard(strict=strict))

    def awaited_line(self, *, strict: bool = False, autocommit: bool = False, isolation: str = "") -> Line:
        async def connect() -> Any:
            return await aiomysql.connect(
                **self.arguments, db=DATABASE, autocommit=autocommit, init_command=_begin(isolation)
            )

        return AsyncLine(connect, mysql.AsyncGuard(strict=strict))


def _begin(isolation: str) -> str:
    return f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation or 'REPEATABLE READ'}"


@pytest.fixture(scope="module")
def server() -> Iterator[BlockingPlace]:
    with closing(BlockingPlace()) as place:
        yield place


class TestBlocking(ServedLaws):
    """By a connection that blocks."""


class TestAsync(AwaitedLaws):
    """By one that is awaited."""


@pytest.fixture
def place(server: BlockingPlace) -> Place:
    server.prepare()
    return server


@pytest.mark.parametrize("awaited", [False, True])
def test_the_table_is_made_where_there_is_none(server: BlockingPlace, place: Place, awaited: bool) -> None:
    """For tests and small programs; a program's own tables come from its migrations."""
    server.server.sql(f"DROP TABLE {DATABASE}.fencehold_fences")
    line = server.awaited_line() if awaited else server.line()
    line.create()
    line.enter(offer(7))
    line.rollback()
    line.close()


def test_a_transaction_that_was_begun_on_an_autocommit_connection_is_one(place: Place) -> None:
    """What counts is the transaction, and not how it was begun."""
    with place.lines(1, autocommit=True) as (line,):
        line.connection.begin()
        line.enter(offer(7))
        line.commit()
        assert mark(line) == 7
        with pytest.raises(UsageError, match="in the transaction that writes"):
            line.enter(offer(8))


class _WithoutStatus:
    """A connection as mysqlclient has it: it knows whether it commits by itself, and no more."""

    def __init__(self, connection: Any) -> None:
        self.get_autocommit = connection.get_autocommit
        self.cursor = connection.cursor
        self.commit = connection.commit


def test_a_driver_that_keeps_no_status_must_not_commit_by_itself(place: Place) -> None:
    """Where a transaction cannot be seen, only autocommit turned off is good enough."""
    guard = mysql.Guard()
    with place.lines(1) as (line,):
        guard.enter(_WithoutStatus(line.connection), offer(7))
        with pytest.raises(StaleFence):
            guard.check(_WithoutStatus(line.connection), offer(6))
        line.rollback()
    with place.lines(1, autocommit=True) as (line,):
        line.connection.begin()
        with pytest.raises(UsageError, match="turn autocommit off"):
            guard.enter(_WithoutStatus(line.connection), offer(7))
        line.rollback()


def test_a_read_before_entering_is_old_and_nobody_tells(place: Place) -> None:
    """In REPEATABLE READ the snapshot is that of the first read: this is why one enters before it."""
    with place.lines(2, isolation="REPEATABLE READ") as (late, other):
        assert balance(late) == 100
        other.enter(offer(33))
        other.rows("UPDATE wallet SET balance = 60")
        other.commit()
        late.enter(offer(34))
        assert balance(late) == 100, "old"
        late.rollback()
        late.enter(offer(34))
        assert balance(late) == 60
        late.rollback()


def test_an_update_tells_stale_from_absent_by_what_is_there_now(place: Place) -> None:
    """Also where the transaction's own snapshot has an older fence of the row."""
    with place.lines(2, isolation="REPEATABLE READ") as (late, other):
        assert late.value("SELECT fence FROM wallet") == 0
        assert other.update(offer(34), "", "id = {id}", id=1)
        other.commit()
        with pytest.raises(StaleFence) as refused:
            late.update(offer(33), "balance = 0", "id = {id}", id=1)
        assert refused.value.mark == 34
        late.rollback()


@pytest.mark.parametrize("flag", [0, pymysql.constants.CLIENT.FOUND_ROWS])
@pytest.mark.parametrize("cursor", [pymysql.cursors.Cursor, pymysql.cursors.DictCursor, pymysql.cursors.SSCursor])
def test_any_cursor_and_any_way_to_count_rows_will_do(
    server: BlockingPlace, place: Place, flag: int, cursor: Any
) -> None:
    """What a write gives back does not hang on how the connection was made."""
    connection = pymysql.connect(
        **server.arguments, **IN_THE_CLEAR, database=DATABASE, client_flag=flag, cursorclass=cursor
    )
    line = BlockingLine(connection, mysql.Guard())
    for fence in (7, 7, 8):
        line.check(offer(fence))
        assert line.update(offer(fence), "balance = 1", "id = {id}", id=1)
    with pytest.raises(StaleFence):
        line.check(offer(7))
    with pytest.raises(StaleFence):
        line.update(offer(7), "balance = 2", "id = {id}", id=1)
    assert line.update(offer(8), "balance = 2", "id = {id}", id=2) is False
    line.rollback()
    line.close()


def test_a_table_without_transactions_is_refused(server: BlockingPlace, place: Place) -> None:
    """Its marks would stay when a write is rolled back, and be seen before it is committed."""
    server.server.sql(f"ALTER TABLE {DATABASE}.fencehold_fences ENGINE = MyISAM")
    with place.lines(1) as (line,):
        with pytest.raises(UsageError, match="InnoDB"):
            line.enter(offer(7))
        line.rollback()
    server.server.sql(f"DROP TABLE {DATABASE}.fencehold_fences")


def test_each_guard_takes_its_own_kind_of_connection(place: Place) -> None:
    """A connection that is awaited is not for `Guard`, nor the other way round."""
    with pytest.raises(UsageError, match="MySQL driver"):
        mysql.Guard().enter(object(), offer(7))
    with place.lines(1) as (line,), pytest.raises(UsageError, match="is for Guard"):
        mysql.AsyncGuard().enter(line.connection, offer(7)).send(None)
