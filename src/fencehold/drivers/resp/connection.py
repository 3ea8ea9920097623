"""A connection to a Redis that many tasks use at once, and how it is made.

1. Commands are answered in the order in which they were sent. One goes out at once, if none is under way; else
   those of one turn of the loop go out in one write.
2. A connection that is lost ends every command: `Unavailable`, if it was not written yet; else `OutcomeUnknown`.
3. A command that is not answered in time takes the connection with it: what comes after it would not be answered
   either, and an answer that comes late must not be taken for that of another.
4. A caller that stops waiting for an answer changes nothing: the answer is awaited all the same, and dropped.
5. What Redis pushes, a message on a channel, goes to the one that made the connection.
6. A connection is made within `connect_s`, or not at all, and leaves no socket behind if it is not.
7. The login is sent together with the protocol version, RESP3: messages come on the same connection as answers,
   and it tells them apart.
8. Of several servers that failed, one that refused our login is reported before those that were not reached:
   waiting does not help against that.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

import hiredis

from fencehold.drivers.address import Endpoint, Login
from fencehold.drivers.resp.address import RedisServer
from fencehold.drivers.resp.failures import Refusal, answered, final_among, never_sent, unanswered, unreached
from fencehold.drivers.tls import client_context
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable, UsageError

OnMessage: TypeAlias = Callable[[bytes], None]
"""Called with the payload of a message."""

Word: TypeAlias = str | bytes | int

_MISSING = object()
_CLOSE_S = 1.0
_SENTINELS_PER_TIME = 3
"""One sentinel that hangs must leave the time to ask the others."""


class RespConnection(asyncio.Protocol):
    """Belongs to the loop it was made on. Answers are values: an error is one that the caller raises."""

    _transport: asyncio.Transport
    """There from when it is connected."""

    def __init__(self, server: str, answer_s: float) -> None:
        self.server = server
        self.answer_s = answer_s
        self.is_lost = False
        self.on_message: OnMessage = _ignore
        self.on_lost: Callable[[RespConnection], None] = _ignore
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        self._parser = hiredis.Reader(replyError=Refusal, notEnoughData=_MISSING)
        self._unsent: list[bytes] = []
        self._pending: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._scripts: set[str] = set()

    def is_new_to(self, script: str) -> bool:
        """Whether a script of this hash was not asked for here yet: Redis may not know it. From now on it was."""
        is_new = script not in self._scripts
        self._scripts.add(script)
        return is_new

    def send(self, command: bytes) -> "asyncio.Future[Any]":
        """Have a command sent; the future's result is the answer, or the error that is one."""
        future = self._loop.create_future()
        if self.is_lost:
            future.set_result(never_sent(self.server))
            return future
        if not self._pending:
            self._transport.write(command)
        else:
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent.append(command)
        self._pending.append((future, self._loop.time()))
        if self._timer is None:
            self._timer = self._loop.call_later(self.answer_s, self._check_time)
        return future

    def drop(self, why: str) -> None:
        """Drop the connection."""
        if not self.is_lost:
            self._lose(why)
            self._transport.abort()

    async def close(self) -> None:
        """Drop the connection, and wait until its socket is closed."""
        self.drop("the client was closed")
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._gone.wait()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        try:
            while (reply := self._parser.gets()) is not _MISSING:
                self._on_reply(reply)
        except hiredis.ProtocolError as error:
            self.drop(f"it does not speak RESP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(str(exc) if exc else "it closed the connection")
        self._gone.set()

    # Inside.

    def _flush(self) -> None:
        if self._unsent and not self.is_lost:
            unsent, self._unsent = self._unsent, []
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def _on_reply(self, reply: Any) -> None:
        if isinstance(reply, list) and _is_push(reply):
            if reply[0] == b"message":
                # After the callers of answers that came with it: what they do may make the message unnecessary.
                self._loop.call_soon(self.on_message, reply[2])
            return
        if not self._pending:
            self.drop("it sent a reply to no command")
            return
        future, _ = self._pending.popleft()
        if not future.done():
            future.set_result(reply)

    def _check_time(self) -> None:
        self._timer = None
        if not self._pending:
            return
        left_s = self._pending[0][1] + self.answer_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_time)
        else:
            self.drop(f"nothing was heard for {self.answer_s:g} s")

    def _lose(self, why: str) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        written = len(self._pending) - len(self._unsent)
        for at, (future, _) in enumerate(self._pending):
            if not future.done():
                future.set_result(unanswered(self.server, why) if at < written else never_sent(self.server))
        self._pending.clear()
        self._unsent.clear()
        self.on_lost(self)


def pack(words: "tuple[Word, ...]") -> bytes:
    """A command as it travels."""
    return cast(bytes, hiredis.pack_command(cast(Any, words)))


def _is_push(reply: list[Any]) -> bool:
    # By its first word, and not by its class, which older versions of hiredis do not have: no answer begins so.
    return bool(reply) and reply[0] in (b"message", b"subscribe", b"unsubscribe")


def _ignore(_: object) -> None:
    pass


Connect: TypeAlias = Callable[[], Awaitable[RespConnection]]
"""Makes a connection, or raises why there is none."""


async def connect(server: RedisServer, connect_s: float, answer_s: float) -> RespConnection:
    """A connection to one server.

    Raises:
        Unavailable, PermissionDenied, Unsupported, UsageError: there is none; nothing happened.
    """
    try:
        async with asyncio.timeout(connect_s):
            return await _greeted(await _connected(server, answer_s), server)
    except TimeoutError as error:
        # A Redis that expects no TLS waits for more of what it takes for a command.
        more = "" if server.tls is None else ": does it speak TLS? If not, use redis://"
        raise Unavailable(f"Redis at {server} was not reached in {connect_s:g} s{more}") from error
    except OutcomeUnknown as error:
        # What was not answered is the greeting, and no command of a caller.
        raise Unavailable(str(error)) from error
    except (OSError, UnicodeError) as error:
        raise unreached(error, str(server)) from error


async def _connected(server: RedisServer, answer_s: float) -> RespConnection:
    loop = asyncio.get_running_loop()
    connection = RespConnection(str(server), answer_s)
    if server.path:
        await loop.create_unix_connection(lambda: connection, server.path)
        return connection
    host, port = server.endpoint
    context = None if server.tls is None else client_context(server.tls)
    await loop.create_connection(lambda: connection, host, port, ssl=context)
    return connection


async def _greeted(connection: RespConnection, server: RedisServer) -> RespConnection:
    try:
        said = await ask(connection, hello(server.login))
        if isinstance(said, dict) and said.get(b"server") == b"fencehold":
            raise UsageError(f"{server} is a Fencehold server, not a Redis: use fencehold://{server}")
        if server.db:
            await ask(connection, ("SELECT", server.db))
    except BaseException:
        await connection.close()
        raise
    return connection


def hello(login: Login) -> tuple[Word, ...]:
    """How a connection begins."""
    who = ("AUTH", login.user or "default", login.password) if login.user or login.password else ()
    return ("HELLO", 3, *who)


class SentinelConnect:
    """Finds the master of a service by asking sentinels, and makes connections to it."""

    def __init__(
        self,
        sentinels: Sequence[RedisServer],
        service: str,
        master: RedisServer,
        connect_s: float,
        answer_s: float,
    ) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._master = master
        self._connect_s = connect_s
        self._answer_s = answer_s

    async def __call__(self) -> RespConnection:
        """Ask one sentinel after the other, the one that knew first, until one names a server that is a master."""
        errors: list[FenceholdError] = []
        for sentinel in tuple(self._sentinels):
            try:
                connection = await self._through(sentinel)
            except FenceholdError as error:
                errors.append(error)
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return connection
        said = "; ".join(map(str, errors))
        raise final_among(errors) or Unavailable(f"no sentinel led to the master of {self._service!r}: {said}")

    async def _through(self, sentinel: RedisServer) -> RespConnection:
        each_s = self._connect_s / _SENTINELS_PER_TIME
        connection = await connect(sentinel, each_s, each_s)
        try:
            found = await ask(connection, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))
        finally:
            await connection.close()
        if not found:
            raise Unavailable(f"the sentinel at {sentinel} knows no service {self._service!r}")
        host, port = found
        master = self._master._replace(endpoint=Endpoint(host.decode(), int(port)))
        return await self._checked(await connect(master, each_s, self._answer_s))

    async def _checked(self, connection: RespConnection) -> RespConnection:
        """The connection, if the server is a master: a sentinel may not have noticed yet."""
        try:
            role = await ask(connection, ("ROLE",))
            if role[0] != b"master":
                raise Unavailable(f"Redis at {connection.server} is not a master any more")
        except BaseException:
            await connection.close()
            raise
        return connection


async def ask(connection: RespConnection, *commands: tuple[Word, ...]) -> Any:
    """The answer to several commands, of which one is answered, and the others with a message or an error.

    Raises:
        FenceholdError: there is none, or it is an error.
    """
    reply = await connection.send(b"".join(map(pack, commands)))
    if isinstance(reply, Refusal):
        raise answered(reply, connection.server)
    if isinstance(reply, FenceholdError):
        raise reply
    return reply
