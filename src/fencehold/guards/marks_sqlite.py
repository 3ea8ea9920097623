"""Marks in a SQLite file, for the processes of one machine.

They are those of `fencehold.guards.sqlite`: if the application has its data in this file, guarded by that table,
the middleware and the data share one mark.

1. One statement raises the mark and reads it: SQLite allows one writer at a time, and the result is of that step.
2. Every commit is on the disk before it is acknowledged (`synchronous = FULL`): a mark never goes back after a
   power cut.
3. The event loop never waits for the disk: all is done in one thread of the store's own, in order.
4. A file that others keep busy for longer than `timeout_s` is `Unavailable`; nothing happened.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from fencehold.errors import Unavailable, UsageError
from fencehold.guards import statements
from fencehold.guards.marks import unknown
from fencehold.guards.offer import Offer
from fencehold.guards.statements import TABLE

T = TypeVar("T")


class SqliteMarks:
    """Marks in a file. Close it, or use it with `async with`."""

    def __init__(
        self, path: str | os.PathLike[str], *, strict: bool = False, table: str = TABLE, timeout_s: float = 5.0
    ) -> None:
        """File and table are made when they are first used; `:memory:` is refused, as it would be lost."""
        if os.fspath(path) in ("", ":memory:"):
            raise UsageError("marks are kept in a file: for marks in memory there is MemoryMarks")
        self._path = os.fspath(path)
        self._said = statements.statements("sqlite", "named", table, strict)
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, "fencehold marks")
        self._connection: sqlite3.Connection | None = None

    async def register(self, name: str) -> None:
        """Register a name, with no fence seen yet. Raises as `raise_to`."""
        values = {"name": Offer(name, 1).checked().name}
        await self._in_thread(lambda connection: connection.execute(self._said.registering, values).close())

    async def raise_to(self, name: str, fence: int) -> int:
        """As `MarkStore` says; cancelled, it is done anyway."""
        offer = Offer(name, fence).checked()
        said, values = self._said.raising, self._said.values(offer)
        rows = await self._in_thread(lambda connection: connection.execute(said, values).fetchall())
        if not rows:
            raise unknown(name)
        return int(rows[0][0])

    async def aclose(self) -> None:
        """Close the file, after the work in progress. Idempotent."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """The same, for callers without an event loop."""
        if self._connection is not None:
            self._thread.submit(self._connection.close).result()
            self._connection = None
        self._thread.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _in_thread(self, step: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, step)
        except sqlite3.Error as error:
            # SQLite rolls a statement back that fails, also at its commit: there is no outcome to doubt.
            raise Unavailable(f"marks in {self._path}: {error}") from error

    def _do(self, step: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = self._open()
        return step(self._connection)

    def _open(self) -> sqlite3.Connection:
        # No transactions but those of SQLite itself: each statement is one.
        connection = sqlite3.connect(
            self._path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(statements.script("sqlite", self._said.table))
        except sqlite3.Error:
            connection.close()
            raise
        return connection
