"""One connection: made when needed, used by one at a time, bounded in time, made anew when lost.

1. Whoever asks names the moment when waiting ends. Then the line is hung up, and nothing is waited for any more.
2. What is asked is never given up midway: a cancelled call of the driver has the server cancel the statement,
   waits for that whatever the bound, and may cancel a commit that waits for a standby. So callers run `ask` where
   nobody cancels it (see `crew`).
3. The line is hung up by shutting the socket, not by closing it: whoever waits on it wakes up and is told.
4. A connection that died while it was idle is found out before something is sent, as well as that can be known:
   "certainly absent" is worth more than "don't know".
5. Of several servers the one that answered last is asked first, and each gets its share of the time: a server
   that says nothing does not keep us from the next.
6. A warning that comes with a reply puts it in doubt: so the server says that it gave up waiting for a standby
   and committed nevertheless.
"""

import asyncio
import os
import select
import socket
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.errors import Diagnostic
from psycopg.pq import Format
from psycopg.types.numeric import Int8

from fencehold.drivers.postgres.admission import is_denied
from fencehold.engines.postgres.address import Address, shown
from fencehold.engines.postgres.failures import Lost, first_line, is_lost, refusal, unreached
from fencehold.engines.postgres.greeting import greet
from fencehold.errors import NotAdmitted, Unavailable

Row = tuple[Any, ...]
_DRAINS_MAX = 4


class Link:
    """A connection to whichever server takes writes."""

    def __init__(self, address: Address, *, statement_timeout_s: float) -> None:
        self._address = address
        self._statement_timeout_s = statement_timeout_s
        self._line: AsyncRawCursor[Any] | None = None
        """The connection's only cursor: to make one for each statement took a fifth of our part of an append."""
        self._lock = asyncio.Lock()
        self._first = 0
        self._warning = ""
        self._dialling: asyncio.Timeout | None = None
        self._ended = False

    async def ask(self, statement: str, *params: int | bytes, until: float) -> list[Row]:
        """What one statement gives; it is a transaction of its own. `until` is in the loop's time.

        Raises:
            Unavailable, UsageError, Damaged: certainly nothing happened.
            Lost: it may have happened, and may yet.
        """
        typed = [Int8(param) if isinstance(param, int) else param for param in params]
        rows = await self._in_turn(until, statement, typed)
        if self._warning:
            raise Lost(f"{self._address}: Postgres warned: {self._warning}")
        return rows

    async def run(self, script: str, *, until: float) -> None:
        """Run some statements as one transaction, or one that cannot be part of any. Raises as `ask`."""
        await self._in_turn(until, script, None)

    def hang_up(self) -> None:
        """End whatever is under way; whatever comes later is refused."""
        self._ended = True
        if self._dialling is not None:
            self._dialling.reschedule(asyncio.get_running_loop().time())
        if self._line is not None:
            _hang_up(self._line)

    async def end(self) -> None:
        """Let go of the connection. It was hung up, and nothing is under way any more."""
        await self._drop()

    async def _in_turn(self, until: float, text: str, params: list[Any] | None) -> list[Row]:
        await self._take_turn(until)
        try:
            return await self._told(await self._ready(until), until, text, params)
        finally:
            self._lock.release()

    async def _take_turn(self, until: float) -> None:
        if not self._lock.locked():
            # At once, then; and an append is spared a timer.
            await self._lock.acquire()
            return
        try:
            async with asyncio.timeout_at(until):
                await self._lock.acquire()
        except TimeoutError:
            raise Unavailable(f"{self._address}: what was asked before takes too long; try again later") from None

    async def _told(
        self, line: AsyncRawCursor[Any], until: float, text: str, params: list[Any] | None
    ) -> list[Row]:
        self._warning = ""
        timer = asyncio.get_running_loop().call_at(until, _hang_up, line)
        try:
            if params is None:
                await line.connection.execute(text.encode())
                return []
            await line.execute(text.encode(), params, prepare=True)
            # Not by its `description`: making that takes long.
            return await line.fetchall() if line.pgresult is not None and line.pgresult.nfields else []
        except psycopg.Error as error:
            if line.connection.closed or is_lost(error):
                await self._drop()
                raise Lost(f"{self._address}: the reply was lost: {first_line(error)}") from error
            raise refusal(error, self._address) from error
        except BaseException:
            await self._drop()
            raise
        finally:
            timer.cancel()

    async def _ready(self, until: float) -> AsyncRawCursor[Any]:
        if self._line is not None and not _is_dead(self._line):
            return self._line
        await self._drop()
        return await self._connect(until)

    async def _connect(self, until: float) -> AsyncRawCursor[Any]:
        hosts, refusals = self._address.hosts, list[Unavailable]()
        for turn in range(len(hosts)):
            if self._ended:
                raise Unavailable(f"{self._address}: this journal was closed")
            index = (self._first + turn) % len(hosts)
            now = asyncio.get_running_loop().time()
            share_s = (until - now) / (len(hosts) - turn)
            try:
                line = await self._reach(hosts[index], now + share_s)
            except Unavailable as error:
                refusals.append(error)
            else:
                self._first = index
                return line
        kind = NotAdmitted if all(isinstance(refused, NotAdmitted) for refused in refusals) else Unavailable
        raise kind("; ".join(map(str, refusals)))

    async def _reach(self, host: dict[str, Any], until: float) -> AsyncRawCursor[Any]:
        connection = await self._dial(host, until)
        line = self._line = AsyncRawCursor(connection)
        line.format = Format.BINARY
        timer = asyncio.get_running_loop().call_at(until, _hang_up, line)
        try:
            await greet(connection, self._address, self._statement_timeout_s, shown(host))
        except psycopg.Error as error:
            await self._drop()
            raise Unavailable(f"{shown(host)}: {first_line(error)}") from error
        except BaseException:
            await self._drop()
            raise
        finally:
            timer.cancel()
        connection.add_notice_handler(self._on_notice)
        return line

    async def _dial(self, host: dict[str, Any], until: float) -> AsyncConnection[Any]:
        try:
            async with asyncio.timeout_at(until) as self._dialling:
                return await AsyncConnection.connect(autocommit=True, cursor_factory=AsyncRawCursor, **host)
        except TimeoutError:
            raise Unavailable(f"{shown(host)}: no answer in time") from None
        except (psycopg.Error, OSError) as error:
            left_s = until - asyncio.get_running_loop().time()
            raise unreached(error, shown(host), denied=await is_denied(error, host, left_s)) from error
        finally:
            self._dialling = None

    async def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.connection.close()

    def _on_notice(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warning = notice.message_primary or "no more"


def _hang_up(line: AsyncRawCursor[Any]) -> None:
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(line.connection.pgconn.socket)) as end:
        end.shutdown(socket.SHUT_RDWR)


def _is_dead(line: AsyncRawCursor[Any]) -> bool:
    """Whether the other side is known to have ended a connection on which nothing is under way."""
    connection = line.connection.pgconn
    try:
        for _ in range(_DRAINS_MAX):
            if not _has_input(connection.socket):
                return False
            # A farewell, then the end; or a notice that concerns nobody.
            connection.consume_input()
    except psycopg.Error:
        pass
    return True


def _has_input(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
