"""A serial connection: made when needed, used by one statement at a time, bounded in time, made anew when lost.

1. The caller names the moment when waiting ends. Then the connection is cut, and nothing is waited for any more.
2. A statement is never given up midway: a cancelled call of psycopg has the server cancel the statement, waits for
   that whatever the bound, and may cancel a commit that waits for a standby. So callers run `ask` in a task that
   is never cancelled.
3. The connection is cut by shutting the socket down, not by closing it: a task that waits on it wakes up with an
   error.
4. A connection that died while it was idle is found out before something is sent, as well as that can be known:
   "certainly absent" is worth more than "don't know".
5. Of several servers the one that answered last is asked first, and each gets its share of the time: a server that
   does not answer does not block the next one.
6. A warning that comes with a reply puts it in doubt: so the server says that it gave up waiting for a standby
   and committed nevertheless.
"""

import asyncio
import os
import select
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.errors import Diagnostic
from psycopg.pq import Format
from psycopg.types.numeric import Int8

from fencehold.drivers.postgres.failures import Rejected, ReplyLost, first_line, is_denied, is_lost, unreached
from fencehold.errors import FenceholdError, Unavailable

Host: TypeAlias = dict[str, Any]
"""What libpq needs to know of one server."""
Greet: TypeAlias = Callable[[AsyncConnection[Any], Host], Awaitable[None]]
"""Looks at a new connection before it is used, and refuses what cannot be used."""
Row = tuple[Any, ...]
_DRAINS_MAX = 4


def shown(host: Host) -> str:
    """Which server: host and port."""
    name = host.get("host") or host.get("hostaddr") or "localhost"
    return f"{name}:{host['port']}" if host.get("port") else str(name)


class SerialConnection:
    """A connection to the first of several servers that `greet` takes. Belongs to the event loop it is used on."""

    def __init__(
        self,
        hosts: Sequence[Host],
        where: object,
        *,
        greet: Greet,
        refusal: Callable[[Rejected], FenceholdError],
        denied: type[Unavailable],
    ) -> None:
        """`refusal` makes the error for a refused statement, `denied` is the one for a refused login."""
        self._hosts = hosts
        self._where = where
        self._greet = greet
        self._refusal = refusal
        self._denied = denied
        self._cursor: AsyncRawCursor[Any] | None = None
        """The connection's only cursor: to make one for each statement took a fifth of our part of an append."""
        self._lock = asyncio.Lock()
        self._first = 0
        self._warning = ""
        self._connecting: asyncio.Timeout | None = None
        self._ended = False

    async def ask(self, statement: str, *params: int | bytes, until: float) -> list[Row]:
        """What one statement gives; it is a transaction of its own. `until` is in the loop's time.

        Raises:
            Unavailable, or what `refusal` makes of it: certainly nothing happened.
            ReplyLost: it may have happened, and may yet.
        """
        typed = [Int8(param) if isinstance(param, int) else param for param in params]
        rows = await self._serially(until, statement, typed)
        if self._warning:
            raise ReplyLost(f"{self._where}: Postgres warned: {self._warning}")
        return rows

    async def run(self, script: str, *, until: float) -> None:
        """Run some statements as one transaction, or one that cannot be part of any. Raises as `ask`."""
        await self._serially(until, script, None)

    def cut(self) -> None:
        """End whatever is under way; whatever comes later is refused."""
        self._ended = True
        if self._connecting is not None:
            self._connecting.reschedule(asyncio.get_running_loop().time())
        if self._cursor is not None:
            _cut(self._cursor)

    async def end(self) -> None:
        """Close the connection. It was cut, and nothing is under way any more."""
        await self._drop()

    async def _serially(self, until: float, text: str, params: list[Any] | None) -> list[Row]:
        await self._wait_for_others(until)
        try:
            return await self._execute(await self._ready(until), until, text, params)
        finally:
            self._lock.release()

    async def _wait_for_others(self, until: float) -> None:
        if not self._lock.locked():
            # At once: this spares an append a timer.
            await self._lock.acquire()
            return
        try:
            async with asyncio.timeout_at(until):
                await self._lock.acquire()
        except TimeoutError:
            raise Unavailable(f"{self._where}: what was asked before takes too long; try again later") from None

    async def _execute(
        self, cursor: AsyncRawCursor[Any], until: float, text: str, params: list[Any] | None
    ) -> list[Row]:
        self._warning = ""
        timer = asyncio.get_running_loop().call_at(until, _cut, cursor)
        try:
            if params is None:
                await cursor.connection.execute(text.encode())
                return []
            await cursor.execute(text.encode(), params, prepare=True)
            # Not by its `description`: making that takes long.
            return await cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []
        except psycopg.Error as error:
            if cursor.connection.closed or is_lost(error.sqlstate or ""):
                await self._drop()
                raise ReplyLost(f"{self._where}: the reply was lost: {first_line(error)}") from error
            raise self._refusal(Rejected(error.sqlstate or "", first_line(error))) from error
        except BaseException:
            await self._drop()
            raise
        finally:
            timer.cancel()

    async def _ready(self, until: float) -> AsyncRawCursor[Any]:
        if self._cursor is not None and not _is_dead(self._cursor):
            return self._cursor
        await self._drop()
        return await self._connect(until)

    async def _connect(self, until: float) -> AsyncRawCursor[Any]:
        hosts, refusals = self._hosts, list[Unavailable]()
        for turn in range(len(hosts)):
            if self._ended:
                raise Unavailable(f"{self._where}: it was closed")
            index = (self._first + turn) % len(hosts)
            now = asyncio.get_running_loop().time()
            share_s = (until - now) / (len(hosts) - turn)
            try:
                cursor = await self._reach(hosts[index], now + share_s)
            except Unavailable as error:
                refusals.append(error)
            else:
                self._first = index
                return cursor
        kind = self._denied if all(isinstance(refused, self._denied) for refused in refusals) else Unavailable
        raise kind("; ".join(map(str, refusals)))

    async def _reach(self, host: Host, until: float) -> AsyncRawCursor[Any]:
        connection = await self._connect_to(host, until)
        cursor = self._cursor = AsyncRawCursor(connection)
        cursor.format = Format.BINARY
        timer = asyncio.get_running_loop().call_at(until, _cut, cursor)
        try:
            await self._greet(connection, host)
        except psycopg.Error as error:
            await self._drop()
            raise Unavailable(f"{shown(host)}: {first_line(error)}") from error
        except BaseException:
            await self._drop()
            raise
        finally:
            timer.cancel()
        connection.add_notice_handler(self._on_notice)
        return cursor

    async def _connect_to(self, host: Host, until: float) -> AsyncConnection[Any]:
        try:
            async with asyncio.timeout_at(until) as self._connecting:
                return await AsyncConnection.connect(autocommit=True, cursor_factory=AsyncRawCursor, **host)
        except TimeoutError:
            raise Unavailable(f"{shown(host)}: no answer in time") from None
        except (psycopg.Error, OSError) as error:
            left_s = until - asyncio.get_running_loop().time()
            denied = await is_denied(error, host, left_s)
            raise unreached(error, shown(host), self._denied if denied else None) from error
        finally:
            self._connecting = None

    async def _drop(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            await cursor.connection.close()

    def _on_notice(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warning = notice.message_primary or "no more"


def _cut(cursor: AsyncRawCursor[Any]) -> None:
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(cursor.connection.pgconn.socket)) as end:
        end.shutdown(socket.SHUT_RDWR)


def _is_dead(cursor: AsyncRawCursor[Any]) -> bool:
    """Whether the other side is known to have ended a connection on which nothing is under way."""
    connection = cursor.connection.pgconn
    try:
        for _ in range(_DRAINS_MAX):
            if not _has_input(connection.socket):
                return False
            # The server's last message, then the end; or a notice that is for no statement.
            connection.consume_input()
    except psycopg.Error:
        pass
    return True


def _has_input(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
