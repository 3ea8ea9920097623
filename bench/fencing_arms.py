"""A set that is kept as one value, in each store that has a guard: read whole, changed, written whole.

*none*: the fence is not checked. *check*: it is checked with the write, and not raised before the read, which is
how fencing is often explained. *full*: raised, then read, then checked with the write.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol

Guarding = Literal["none", "check", "full"]
_BUSY_S = 5.0
_MAKE = "CREATE TABLE IF NOT EXISTS sets (name VARCHAR(200) PRIMARY KEY, elements TEXT NOT NULL)"


class Arm(Protocol):
    """One store, opened by one process."""

    def make(self, name: str) -> None:
        """An empty set."""

    def read(self, name: str, hold: Any) -> list[str]:
        """What is in the set. Raises `StaleFence` if the hold is stale, and the arm asks."""
        ...

    def write(self, name: str, hold: Any, elements: list[str]) -> None:
        """Have this be the set. Raises `StaleFence` as `read`; then nothing was written."""

    def elements(self, name: str) -> list[str]:
        """What is in the set, to be looked at when all is over."""
        ...

    def close(self) -> None: ...


class Sql:
    """A row in a database."""

    def __init__(
        self,
        connection: Any,
        begin: Callable[[], AbstractContextManager[object]],
        guard: Any,
        guarding: Guarding,
        mark: str,
    ) -> None:
        """`begin` is a transaction, `mark` is what stands for a value in a statement."""
        self._connection, self._begin, self._guard, self._guarding = connection, begin, guard, guarding
        self._mark = mark

    def make(self, name: str) -> None:
        self._do(_MAKE)
        if self._guarding != "none":
            self._guard.create(self._connection)
        with self._begin():
            self._do("DELETE FROM sets WHERE name = ?", name)
            self._do("INSERT INTO sets (name, elements) VALUES (?, ?)", name, "[]")

    def read(self, name: str, hold: Any) -> list[str]:
        with self._begin():
            if self._guarding == "full":
                self._guard.enter(self._connection, hold)
            return self._elements(name)

    def write(self, name: str, hold: Any, elements: list[str]) -> None:
        with self._begin():
            if self._guarding != "none":
                self._guard.check(self._connection, hold)
            self._do("UPDATE sets SET elements = ? WHERE name = ?", json.dumps(elements), name)

    def elements(self, name: str) -> list[str]:
        with self._begin():
            return self._elements(name)

    def close(self) -> None:
        self._connection.close()

    def _elements(self, name: str) -> list[str]:
        rows = self._do("SELECT elements FROM sets WHERE name = ?", name)
        found: list[str] = json.loads(rows[0][0])
        return found

    def _do(self, text: str, *values: object) -> list[Any]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(text.replace("?", self._mark), values)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()


def sqlite(where: str, guarding: Guarding) -> Sql:
    from fencehold.guards.sqlite import Guard  # noqa: PLC0415 - each arm needs only its own driver

    connection = sqlite3.connect(where, timeout=_BUSY_S, isolation_level=None)

    @contextlib.contextmanager
    def begin() -> Iterator[None]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    return Sql(connection, begin, Guard(), guarding, "?")


def postgres(where: str, guarding: Guarding) -> Sql:
    import psycopg  # noqa: PLC0415

    from fencehold.guards.psycopg import Guard  # noqa: PLC0415

    timeout = f"-c lock_timeout={int(_BUSY_S * 1000)}"
    connection = psycopg.connect(where, autocommit=True, options=timeout)
    return Sql(connection, connection.transaction, Guard(), guarding, "%s")


def mysql(where: str, guarding: Guarding) -> Sql:
    import pymysql  # noqa: PLC0415

    from fencehold.guards.mysql import Guard  # noqa: PLC0415

    connection = pymysql.connect(**json.loads(where), autocommit=False)

    @contextlib.contextmanager
    def begin() -> Iterator[None]:
        try:
            connection.begin()
            yield
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    return Sql(connection, begin, Guard(), guarding, "%s")


class Redis:
    """A key in a Redis."""

    def __init__(self, where: str, guarding: Guarding) -> None:
        import redis  # noqa: PLC0415

        from fencehold.guards.redis import Guard  # noqa: PLC0415

        self._client = redis.Redis.from_url(where)
        self._guard, self._guarding = Guard(self._client), guarding

    def make(self, name: str) -> None:
        self._client.set(name, "[]")

    def read(self, name: str, hold: Any) -> list[str]:
        if self._guarding == "full":
            self._guard.enter(hold)
        return self.elements(name)

    def write(self, name: str, hold: Any, elements: list[str]) -> None:
        if self._guarding == "none":
            self._client.set(name, json.dumps(elements))
            return
        with self._guard.transaction(hold) as transaction:
            transaction.set(name, json.dumps(elements))

    def elements(self, name: str) -> list[str]:
        found: list[str] = json.loads(self._client.get(name) or b"[]")
        return found

    def close(self) -> None:
        self._client.close()


class File:
    """A file of a folder, replaced whole."""

    def __init__(self, where: str, guarding: Guarding) -> None:
        from fencehold.guards.files import Guard  # noqa: PLC0415

        self._folder, self._guard, self._guarding = Path(where), Guard(), guarding

    def make(self, name: str) -> None:
        self._path(name).write_text("[]")

    def read(self, name: str, hold: Any) -> list[str]:
        if self._guarding == "full":
            self._guard.enter(self._path(name), hold)
        return self.elements(name)

    def write(self, name: str, hold: Any, elements: list[str]) -> None:
        data = json.dumps(elements).encode()
        if self._guarding != "none":
            self._guard.replace(self._path(name), data, hold)
            return
        unfinished = self._path(name).with_suffix(f".{hold.fence}")
        unfinished.write_bytes(data)
        unfinished.replace(self._path(name))

    def elements(self, name: str) -> list[str]:
        found: list[str] = json.loads(self._path(name).read_bytes())
        return found

    def close(self) -> None:
        pass

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


STORES: dict[str, Callable[[str, Guarding], Arm]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "mysql": mysql,
    "redis": Redis,
    "file": File,
}
"""Each by where it is: a path, a URL, or what its driver takes as JSON."""
