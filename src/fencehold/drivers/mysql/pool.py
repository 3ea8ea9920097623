"""The connections of one client: a few, each used by one step at a time.

1. A step that was begun is ended, whether or not a caller waits for it: a connection is never left in the middle.
2. A step has a bound. What was not sent by then is not sent (`Unavailable`); else its outcome is unknown.
3. A deadlock, or a lock that is not granted in time, is tried again a few times: the server did nothing.
4. A connection that failed is not used again, and neither is one that the server has closed or that was idle for
   long.
5. A child process has none of them. It must not close them either: what it would send to the server, and do in the
   event loop, is about its parent's.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import aiomysql
import pymysql

from fencehold.drivers.mysql.address import MysqlAddress
from fencehold.drivers.mysql.failures import is_lost, is_passing, refusal, words_of
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable, Unsupported

_TRIES = 8
_PAUSE_S = 0.005
_IDLE_S_MAX = 120.0
_CLOSING_S = 1.0


class MysqlAnswer(NamedTuple):
    """What one statement gave."""

    rows: tuple[tuple[Any, ...], ...]
    changed: int


class _MysqlConnection:
    """One connection."""

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._used_at = loop.time()
        _connections.add(self)

    @property
    def is_fresh(self) -> bool:
        """Whether it can be used, as far as this side can tell."""
        connection = self._connection
        return (
            not connection.closed
            and not connection._reader.eof_received
            and connection._reader.exception() is None
            and self._loop.time() - self._used_at < _IDLE_S_MAX
        )

    async def run(self, sql: str) -> list[MysqlAnswer]:
        """The answers to all statements of a text. Not by a cursor: that would ask for every warning, too."""
        connection = self._connection
        answers = []
        await connection.query(sql)
        while True:
            result = connection._result
            answers.append(MysqlAnswer(result.rows or (), result.affected_rows or 0))
            if not result.has_next:
                self._used_at = self._loop.time()
                return answers
            await connection.next_result()

    def cut(self) -> None:
        """End it at once."""
        _connections.discard(self)
        self._connection.close()

    async def close(self) -> None:
        """Tell the server, and disconnect."""
        writer = self._connection._writer
        with suppress(Exception):
            async with asyncio.timeout(_CLOSING_S):
                await self._connection.ensure_closed()
                await writer.wait_closed()
        self.cut()


_connections: set[_MysqlConnection] = set()
"""All of this process. In a child they stay here, never used and never closed."""


class MysqlPool:
    """All connections of one client. Belongs to the event loop it was made on."""

    def __init__(self, address: MysqlAddress, connect_timeout: float, session: str) -> None:
        """`session` is the SQL that each connection begins with."""
        self._address = address
        self._connect_timeout = connect_timeout
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(address.connections)
        self._idle: deque[_MysqlConnection] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, sql: str, *, is_read: bool = False) -> "asyncio.Task[list[MysqlAnswer]]":
        """Have a step done; await the task behind a shield.

        It raises:
            Unavailable, PermissionDenied, UsageError: nothing happened.
            OutcomeUnknown: it may have, or may yet; not of what only reads.
        """
        task = self._loop.create_task(self._run(sql, is_read=is_read))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def do(self, sql: str, *, is_read: bool = False) -> list[MysqlAnswer]:
        """Begin a step, and wait for its answers."""
        return await asyncio.shield(self.begin(sql, is_read=is_read))

    def after(self, sql: str, then: Callable[[list[MysqlAnswer]], str]) -> None:
        """Read something, and do what follows from it, if anything: in the background."""
        task = self._loop.create_task(self._in_background(sql, then))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    async def _in_background(self, sql: str, then: Callable[[list[MysqlAnswer]], str]) -> None:
        text = then(await self._run(sql, is_read=True))
        if text:
            await self._run(text, is_read=False)

    async def close(self) -> None:
        """End what is under way, and all connections."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSING_S)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._idle:
            await self._idle.pop().close()
        # The sockets of those that were cut are closed by the loop, in a moment.
        await asyncio.sleep(0)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Retrieved here: callers that wait for it get it anyway, and if there are none, asyncio must not
            # complain.
            task.exception()

    async def _run(self, sql: str, *, is_read: bool) -> list[MysqlAnswer]:
        is_sent = False
        try:
            async with asyncio.timeout(self._address.timeout), self._slots:
                connection = await self._connection()
                is_sent = True
                return await self._run_on(connection, sql, is_read=is_read)
        except TimeoutError as error:
            said = f"{self._address} did not answer in {self._address.timeout:g} s"
            raise self._doubt(said, is_read or not is_sent) from error
        except pymysql.err.MySQLError as error:
            if is_lost(error):
                raise self._doubt(f"{self._address}: {words_of(error)}", is_read) from error
            raise refusal(error, self._address) from error

    async def _run_on(self, connection: _MysqlConnection, sql: str, *, is_read: bool) -> list[MysqlAnswer]:
        tries = 1
        while True:
            try:
                answers = await connection.run(sql)
            except pymysql.err.MySQLError as error:
                if is_lost(error):
                    self._lost(connection)
                    if is_read and tries == 1:
                        # Reading twice does no harm.
                        return await self._run_on(await self._connect(), sql, is_read=False)
                    raise
                await self._roll_back(connection)
                if not is_passing(error) or tries == _TRIES:
                    self._idle.append(connection)
                    raise
            except BaseException:
                connection.cut()
                raise
            else:
                self._idle.append(connection)
                return answers
            await _pause(connection, tries)
            tries += 1

    def _lost(self, connection: _MysqlConnection) -> None:
        """With one connection the others are gone as a rule, and just do not know it yet."""
        connection.cut()
        while self._idle:
            self._idle.pop().cut()

    async def _roll_back(self, connection: _MysqlConnection) -> None:
        """After an error the transaction it was in is open still: end it, or the connection with it."""
        try:
            await connection.run("ROLLBACK")
        except BaseException:
            connection.cut()
            raise

    async def _connection(self) -> _MysqlConnection:
        while self._idle:
            # The one used last: what is not needed grows old, and is closed.
            connection = self._idle.pop()
            if connection.is_fresh:
                return connection
            connection.cut()
        return await self._connect()

    async def _connect(self) -> _MysqlConnection:
        try:
            async with asyncio.timeout(self._connect_timeout):
                arguments = self._address.arguments()
                connection = _MysqlConnection(await aiomysql.connect(autocommit=None, **arguments), self._loop)
                return await _cut_unless_done(connection, lambda: connection.run(self._session))
        except TimeoutError as error:
            raise Unavailable(f"{self._address} was not reached in {self._connect_timeout:g} s") from error
        except (pymysql.err.MySQLError, OSError) as error:
            if is_lost(error):
                raise Unavailable(f"{self._address}: {words_of(error)}") from error
            raise refusal(error, self._address) from error
        except RuntimeError as error:
            # The one thing it says of a package that is missing, when a server wants a password encrypted.
            raise Unsupported(
                f"{self._address}: {error}: pip install 'fencehold[mysql]', or use ssl=on"
            ) from error

    def _doubt(self, said: str, is_nothing: bool) -> FenceholdError:
        return Unavailable(said) if is_nothing else OutcomeUnknown(f"{said}: it may have been done")


async def _cut_unless_done(connection: _MysqlConnection, step: Callable[[], Any]) -> _MysqlConnection:
    try:
        await step()
    except BaseException:
        connection.cut()
        raise
    return connection


async def _pause(connection: _MysqlConnection, tries: int) -> None:
    try:
        await asyncio.sleep(_PAUSE_S * tries * random.uniform(0.5, 1.5))
    except BaseException:
        connection.cut()
        raise
