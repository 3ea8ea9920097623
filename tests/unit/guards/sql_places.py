"""Databases that guards are tried on, and connections to them with one face, whatever driver is behind.

A `Place` is a database; a `Line` is one connection with its guard. An async one has an event loop of its own,
which runs while it is called, so that each test is written once.
"""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pymysql

from fencehold.guards.offer import Offered
from fencehold.guards.statements import script
from rig.mariadb import DATABASE, USER, MariaDB
from rig.postgres import Postgres, reachable_folder
from rig.processes import await_true

T = TypeVar("T")

MARKS = "fencehold_fences"
COLUMNS = "id integer PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL"


class Line:
    """A connection and its guard."""

    def __init__(self, connection: Any, guard: Any) -> None:
        self.connection = connection
        self.guard = guard

    def enter(self, hold: Offered, name: str | None = None) -> None:
        self.guard.enter(self.connection, hold, name)

    def check(self, hold: Offered, name: str | None = None) -> None:
        self.guard.check(self.connection, hold, name)

    def register(self, *names: str) -> None:
        self.guard.register(self.connection, *names)

    def raise_all(self, hold: Offered) -> None:
        self.guard.raise_all(self.connection, hold)

    def create(self) -> None:
        self.guard.create(self.connection)

    def update(self, hold: Offered, sets: str, where: str, **values: Any) -> bool:
        """`fenced_update` of the table `wallet`."""
        raise NotImplementedError

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.execute(sql)
        rows = cursor.fetchall() if cursor.description else []
        cursor.close()
        return [tuple(row) for row in rows]

    def value(self, sql: str) -> Any:
        rows = self.rows(sql)
        return rows[0][0] if rows else None

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class AwaitedLine(Line):
    """The same of a driver that is awaited."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], guard: Any) -> None:
        self._runner = asyncio.Runner()
        super().__init__(self.run(connect()), guard)

    def run(self, awaitable: Awaitable[T]) -> T:
        async def main() -> T:
            return await awaitable

        return self._runner.run(main())

    def enter(self, hold: Offered, name: str | None = None) -> None:
        self.run(self.guard.enter(self.connection, hold, name))

    def check(self, hold: Offered, name: str | None = None) -> None:
        self.run(self.guard.check(self.connection, hold, name))

    def register(self, *names: str) -> None:
        self.run(self.guard.register(self.connection, *names))

    def raise_all(self, hold: Offered) -> None:
        self.run(self.guard.raise_all(self.connection, hold))

    def create(self) -> None:
        self.run(self.guard.create(self.connection))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.run(self.fetched(sql))

    async def fetched(self, sql: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def commit(self) -> None:
        self.run(self.connection.commit())

    def rollback(self) -> None:
        self.run(self.connection.rollback())

    def close(self) -> None:
        self.run(self.connection.close())
        self._runner.close()


class Place:
    """A database with a table of marks, a wallet with a balance of 100, and a log. Subclasses know a driver."""

    weak: str
    """An isolation level as SQL has it."""
    strong: str
    told_of_old_reads = True
    """Whether a transaction of the strong level that met an older mark is told to try again."""

    def line(self, *, strict: bool = False, autocommit: bool = False, isolation: str = "") -> Line:
        raise NotImplementedError

    @contextlib.contextmanager
    def lines(self, count: int, **how: Any) -> Iterator[list[Line]]:
        """Some connections, closed in the end."""
        with contextlib.ExitStack() as stack:
            made = []
            for _ in range(count):
                line = self.line(**how)
                stack.callback(line.close)
                made.append(line)
            yield made

    def is_conflict(self, error: Exception) -> bool:
        """Whether the database asks to try the transaction again."""
        raise NotImplementedError

    def await_blocked(self) -> None:
        """Until somebody waits for a lock; at once where that cannot be seen."""

    def prepare(self) -> None:
        """Make the tables anew."""
        raise NotImplementedError

    def close(self) -> None:
        """The end."""


class PostgresPlace(Place):
    weak = "READ COMMITTED"
    strong = "SERIALIZABLE"

    def __init__(self) -> None:
        self.folder = reachable_folder()
        self.server = Postgres(self.folder)
        self.server.start()
        self.url = f"postgresql://owner@127.0.0.1:{self.server.port}/postgres"

    def close(self) -> None:
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def prepare(self) -> None:
        self.server.sql(
            f"DROP TABLE IF EXISTS {MARKS}, other_marks, wallet, log; CREATE TABLE wallet ({COLUMNS});"
            "CREATE TABLE log (seq bigserial PRIMARY KEY, fence bigint NOT NULL);"
            "INSERT INTO wallet VALUES (1, 100, 0)"
        )

    def is_conflict(self, error: Exception) -> bool:
        return getattr(getattr(error, "orig", error), "sqlstate", "") in ("40001", "40P01")

    def await_blocked(self) -> None:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await_true(lambda: self.server.sql(waiting) != "0", "somebody waits for a lock")


class MysqlPlace(Place):
    weak = "READ COMMITTED"
    strong = "REPEATABLE READ"
    told_of_old_reads = False

    def __init__(self) -> None:
        self.folder = reachable_folder()
        # Nothing here outlives the server: commits need not wait for the disk.
        self.server = MariaDB(self.folder, "--innodb-flush-log-at-trx-commit=0")
        self.server.start()
        self.arguments: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.server.port,
            "user": USER,
            "password": USER,
        }

    def close(self) -> None:
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def prepare(self) -> None:
        # Emptied rather than made anew, which takes a second.
        log = "seq bigint AUTO_INCREMENT PRIMARY KEY, fence bigint NOT NULL"
        for statement in (
            script("mysql", f"{DATABASE}.{MARKS}"),
            f"CREATE TABLE IF NOT EXISTS {DATABASE}.wallet ({COLUMNS})",
            f"CREATE TABLE IF NOT EXISTS {DATABASE}.log ({log})",
            *(f"DELETE FROM {DATABASE}.{table}" for table in (MARKS, "wallet", "log")),
            f"INSERT INTO {DATABASE}.wallet VALUES (1, 100, 0)",
        ):
            self.server.sql(statement)

    def is_conflict(self, error: Exception) -> bool:
        cause = getattr(error, "orig", error)
        return isinstance(cause, pymysql.err.OperationalError) and cause.args[0] in (1020, 1213)

    def await_blocked(self) -> None:
        # Not by innodb_trx: that is looked at anew only if nobody has read it for a tenth of a second.
        waiting = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"
        await_true(lambda: self.server.sql(waiting)[0][1] != "0", "somebody waits for a lock")


class SqlitePlace(Place):
    weak = strong = "SERIALIZABLE"

    def __init__(self, folder: Path) -> None:
        self.file = folder / "app.db"
        self.connections = 0

    def prepare(self) -> None:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            connection.executescript(
                "PRAGMA journal_mode = WAL;"
                f"DROP TABLE IF EXISTS {MARKS}; DROP TABLE IF EXISTS other_marks;"
                "DROP TABLE IF EXISTS wallet; DROP TABLE IF EXISTS log;"
                f"CREATE TABLE wallet ({COLUMNS});"
                "CREATE TABLE log (seq INTEGER PRIMARY KEY, fence bigint NOT NULL);"
                "INSERT INTO wallet VALUES (1, 100, 0);"
            )

    def is_conflict(self, error: Exception) -> bool:
        cause = getattr(error, "orig", error)
        return isinstance(cause, sqlite3.OperationalError) and "locked" in str(cause)


class Updating:
    """How a driver's module updates a row that has a fence of its own; mixed into a line of it."""

    fenced_update: ClassVar[Callable[..., Any]]
    style: ClassVar[str] = "%({})s"

    def arguments(self, sets: str, where: str, values: Mapping[str, Any]) -> dict[str, Any]:
        places = {name: self.style.format(name) for name in values}
        return {"set": sets.format(**places), "where": where.format(**places), "values": values}
