"""Dialling: making a line to a Redis, with redis-py for all that comes before the first command.

redis-py connects, speaks TLS and logs in; then the line takes its transport over. A line is made within
`connect_s`, or not at all, and leaves no socket behind if it is not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection

from fencehold.backends.resp_address import Server
from fencehold.backends.resp_failures import Refusal, answered, unreached
from fencehold.backends.resp_line import Line, pack
from fencehold.client.endpoints import Endpoint
from fencehold.errors import FenceholdError, Unavailable

Dial: TypeAlias = Callable[[], Awaitable[Line]]
"""Makes a line, or raises why there is none."""

_SENTINELS_PER_TIME = 3
"""One sentinel that hangs must leave the time to ask the others."""


async def dial(server: Server, connect_s: float, answer_s: float) -> Line:
    """A line to one server.

    Raises:
        Unavailable, PermissionDenied, Unsupported: there is none; nothing happened.
    """
    connection = _connection(server, connect_s)
    try:
        async with asyncio.timeout(connect_s):
            await connection.connect()  # type: ignore[no-untyped-call]
        return _taken_over(connection, str(server), answer_s)
    except TimeoutError as error:
        raise Unavailable(f"Redis at {server} was not reached in {connect_s:g} s") from error
    except Exception as error:
        raise unreached(error, str(server)) from error
    finally:
        if connection.is_connected:
            await connection.disconnect(nowait=True)


class SentinelDial:
    """Finds the master of a service by asking sentinels, and makes lines to it."""

    def __init__(
        self, sentinels: Sequence[Server], service: str, master: Server, connect_s: float, answer_s: float
    ) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._master = master
        self._connect_s = connect_s
        self._answer_s = answer_s

    async def __call__(self) -> Line:
        """Ask one sentinel after the other, the one that knew first, until one names a server that is a master."""
        errors: list[str] = []
        for sentinel in tuple(self._sentinels):
            try:
                line = await self._through(sentinel)
            except FenceholdError as error:
                errors.append(str(error))
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return line
        raise Unavailable(f"no sentinel led to the master of {self._service!r}: {'; '.join(errors)}")

    async def _through(self, sentinel: Server) -> Line:
        each_s = self._connect_s / _SENTINELS_PER_TIME
        line = await dial(sentinel, each_s, each_s)
        try:
            found = await answer(line, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))
        finally:
            await line.close()
        if not found:
            raise Unavailable(f"the sentinel at {sentinel} knows no service {self._service!r}")
        host, port = found
        master = self._master._replace(endpoint=Endpoint(host.decode(), int(port)))
        return await self._checked(await dial(master, each_s, self._answer_s))

    async def _checked(self, line: Line) -> Line:
        """The line, if who answers is a master: a sentinel may not have noticed yet."""
        try:
            role = await answer(line, ("ROLE",))
            if role[0] != b"master":
                raise Unavailable(f"Redis at {line.server} is no master any more")
        except BaseException:
            await line.close()
            raise
        return line


async def answer(line: Line, *commands: tuple[str, ...]) -> Any:
    """The answer to several commands, of which one is answered, and the others with a message or an error.

    Raises:
        FenceholdError: there is none, or it is an error.
    """
    reply = await line.send(b"".join(map(pack, commands)))
    if isinstance(reply, Refusal):
        raise answered(reply, line.server)
    if isinstance(reply, FenceholdError):
        raise reply
    return reply


def _connection(server: Server, connect_s: float) -> AbstractConnection:
    # Messages come on the same connection as answers: RESP3 tells them apart.
    words = words_of(server, connect_s, connect_s) | {"protocol": 3}
    if server.path:
        return UnixDomainSocketConnection(**words)
    return Connection(**words) if server.tls is None else SSLConnection(**words)


def words_of(server: Server, connect_s: float, answer_s: float) -> dict[str, Any]:
    """What a connection of redis-py is told, of whichever kind."""
    words: dict[str, Any] = {
        "db": server.db,
        "username": server.login.user or None,
        "password": server.login.password or None,
        "socket_timeout": answer_s,
        "socket_connect_timeout": connect_s,
    }
    if server.path:
        return words | {"path": server.path}
    words |= {"host": server.endpoint.host, "port": server.endpoint.port}
    if server.tls is None:
        return words
    ca, cert, key = (None if path is None else str(path) for path in server.tls)
    tls = {"ssl_ca_certs": ca, "ssl_certfile": cert, "ssl_keyfile": key, "ssl_check_hostname": True}
    return words | tls


def _taken_over(connection: AbstractConnection, server: str, answer_s: float) -> Line:
    """A line on the transport of a connection, which has none any more and closes none."""
    writer = connection._writer
    if writer is None:
        raise Unavailable(f"the connection to Redis at {server} was lost at once")
    connection._reader = connection._writer = None
    line = Line(writer.transport, server, answer_s)
    # A writer that is collected closes its transport.
    line.writer = writer
    writer.transport.set_protocol(line)
    return line
