"""The guard for SQLite, by `sqlite3` and by aiosqlite."""

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from fencehold import StaleFence, UsageError
from fencehold.guards import Offer, sqlite
from fencehold.guards.__main__ import main
from tests.unit.guards import amounts
from tests.unit.guards.sql_laws import GuardLaws, balance, offer
from tests.unit.guards.sql_places import AwaitedLine, Line, Place, SqlitePlace, Updating

WAIT_S = 30


class BlockingLine(Updating, Line):
    style = ":{}"

    def update(self, hold: Any, sets: str, where: str, **values: Any) -> bool:
        return sqlite.fenced_update(self.connection, hold, "wallet", **self.arguments(sets, where, values))


class AsyncLine(Updating, AwaitedLine):
    style = ":{}"

    def update(self, hold: Any, sets: str, where: str, **values: Any) -> bool:
        given = self.arguments(sets, where, values)
        return self.run(sqlite.async_fenced_update(self.connection, hold, "wallet", **given))

    async def fetched(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.connection.execute_fetchall(sql)]


class BlockingPlace(SqlitePlace):
    def line(self, *, strict: bool = False, autocommit: bool = False, isolation: str = "") -> Line:
        level: Any = None if autocommit else "DEFERRED"
        connection = sqlite3.connect(self.file, timeout=WAIT_S, isolation_level=level, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")
        return BlockingLine(connection, sqlite.Guard(strict=strict))


class AsyncPlace(SqlitePlace):
    def line(self, *, strict: bool = False, autocommit: bool = False, isolation: str = "") -> Line:
        level: Any = None if autocommit else "DEFERRED"

        async def connect() -> aiosqlite.Connection:
            connection = await aiosqlite.connect(self.file, timeout=WAIT_S, isolation_level=level)
            await connection.execute_fetchall("PRAGMA synchronous = OFF")
            return connection

        return AsyncLine(connect, sqlite.AsyncGuard(strict=strict))


def _ready(place: Place) -> Place:
    place.prepare()
    with place.lines(1) as (line,):
        line.create()
        line.commit()
    return place


class TestBlocking(GuardLaws):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return _ready(BlockingPlace(tmp_path))

    @pytest.fixture
    def writes(self) -> int:
        return amounts.writes(10_000)


class TestAsync(GuardLaws):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return _ready(AsyncPlace(tmp_path))

    @pytest.fixture
    def writes(self) -> int:
        return amounts.writes(1_000)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    place = _ready(BlockingPlace(tmp_path))
    with contextlib.closing(sqlite3.connect(place.file, timeout=0)) as connection:  # type: ignore[attr-defined]
        yield connection


def test_a_transaction_that_was_begun_by_hand_is_one(tmp_path: Path) -> None:
    """Without an isolation level, BEGIN makes it right."""
    place = _ready(BlockingPlace(tmp_path))
    with place.lines(1, autocommit=True) as (line,):
        line.rows("BEGIN IMMEDIATE")
        line.enter(offer(7))
        line.rows("ROLLBACK")


def test_any_row_factory_will_do(connection: sqlite3.Connection) -> None:
    """The guard reads its own rows."""
    connection.row_factory = lambda cursor, row: {"is": row}
    sqlite.Guard().enter(connection, Offer("a", 2))
    with pytest.raises(StaleFence):
        sqlite.Guard().enter(connection, Offer("a", 1))


def test_who_has_read_an_older_state_is_told_so(tmp_path: Path) -> None:
    """Entering after a read is too late: if somebody wrote meanwhile, SQLite refuses, and it is no StaleFence."""
    place = _ready(BlockingPlace(tmp_path))
    with place.lines(2) as (late, other):
        late.rows("BEGIN")
        balance(late)
        other.enter(offer(33))
        other.commit()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            late.enter(offer(34))
        late.rollback()
        late.enter(offer(34))
        late.rollback()


def test_a_busy_file_is_the_drivers_own_error(connection: sqlite3.Connection, tmp_path: Path) -> None:
    """Not to have been asked says nothing about the fence."""
    with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as other:
        sqlite.Guard().enter(other, offer(34))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            sqlite.Guard().enter(connection, offer(33))
        other.rollback()


async def _entered_by(guard: Any, connection: Any) -> None:
    await guard.enter(connection, offer(7))


def test_each_guard_takes_its_own_kind_of_connection(connection: sqlite3.Connection) -> None:
    """A connection that is awaited is not for `Guard`, nor the other way round."""
    with pytest.raises(UsageError, match="aiosqlite"):
        sqlite.Guard().enter(object(), offer(7))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="aiosqlite"):
        _entered_by(sqlite.AsyncGuard(), connection).send(None)


@pytest.mark.parametrize("table", ["", "a b", "a;b", 'a"', "a.b.c", "1a", "ä", "a" * 64, None])
def test_a_table_is_called_by_a_plain_name(table: Any) -> None:
    """Nothing that would have to be quoted gets into a statement."""
    with pytest.raises(UsageError, match="letters, digits"):
        sqlite.Guard(table)


def test_a_table_may_have_another_name(connection: sqlite3.Connection) -> None:
    """The table is made, and used, by the name it is given; with a schema, too."""
    guard = sqlite.Guard("main.other_marks")
    guard.create(connection)
    guard.enter(connection, offer(7))
    assert connection.execute("SELECT name, fence FROM other_marks").fetchall() == [("wallet:1", 7)]


def test_an_update_needs_a_where_and_leaves_the_word_fence_to_us(connection: sqlite3.Connection) -> None:
    """What would update every row, or another fence, is refused."""
    with pytest.raises(UsageError, match="where="):
        sqlite.fenced_update(connection, offer(7), "wallet", where=" ")
    with pytest.raises(UsageError, match="'fence' is the hold's"):
        sqlite.fenced_update(connection, offer(7), "wallet", where="id = 1", values={"fence": 1})


@pytest.mark.parametrize(
    ("dialect", "type_"), [("postgresql", "bigint"), ("mysql", "InnoDB"), ("sqlite", "ROWID")]
)
def test_the_sql_of_a_migration_is_printed(dialect: str, type_: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For each database, under the name that is asked for."""
    assert main([dialect, "app.fences"]) == 0
    printed = capsys.readouterr().out
    assert "CREATE TABLE IF NOT EXISTS app.fences (" in printed
    assert type_ in printed


@pytest.mark.parametrize("words", [[], ["oracle"], ["sqlite", "a b"], ["sqlite", "a", "b"]])
def test_what_cannot_be_printed_says_how_to_ask(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Usage goes to stderr, with exit code 2."""
    assert main(words) == 2
    assert "usage: python -m fencehold.guards {postgresql,mysql,sqlite}" in capsys.readouterr().err


def test_the_module_is_a_command() -> None:
    """`python -m fencehold.guards sqlite` can be fed to sqlite3."""
    done = subprocess.run(
        [sys.executable, "-m", "fencehold.guards", "sqlite"], capture_output=True, text=True, check=True
    )
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(done.stdout)
        sqlite.Guard().enter(connection, offer(7))
