"""Dialling: making a line to a Redis, and all that is said on it before the first command.

1. A line is made within `connect_s`, or not at all, and leaves no socket behind if it is not.
2. Who we are is said together with which protocol is spoken, RESP3: messages come on the same connection as
   answers, and it tells them apart.
3. Of several that were asked in vain, one that refused what it was shown is told before those that were not
   reached: waiting does not help against that.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from fencehold.client.endpoints import Endpoint
from fencehold.drivers.resp.address import Files, Login, Server
from fencehold.drivers.resp.failures import Refusal, answered, final_among, unreached
from fencehold.drivers.resp.line import Line, Word, pack
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable, UsageError

Dial: TypeAlias = Callable[[], Awaitable[Line]]
"""Makes a line, or raises why there is none."""

_SENTINELS_PER_TIME = 3
"""One sentinel that hangs must leave the time to ask the others."""


async def dial(server: Server, connect_s: float, answer_s: float) -> Line:
    """A line to one server.

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
        # What was not answered is the greeting, and nothing that anybody asked for.
        raise Unavailable(str(error)) from error
    except (OSError, UnicodeError) as error:
        raise unreached(error, str(server)) from error


async def _connected(server: Server, answer_s: float) -> Line:
    loop = asyncio.get_running_loop()
    line = Line(str(server), answer_s)
    if server.path:
        await loop.create_unix_connection(lambda: line, server.path)
        return line
    host, port = server.endpoint
    context = None if server.tls is None else context_of(server.tls)
    await loop.create_connection(lambda: line, host, port, ssl=context)
    return line


async def _greeted(line: Line, server: Server) -> Line:
    try:
        said = await answer(line, hello(server.login))
        if isinstance(said, dict) and said.get(b"server") == b"fencehold":
            raise UsageError(f"{server} is a Fencehold server, not a Redis: use fencehold://{server}")
        if server.db:
            await answer(line, ("SELECT", server.db))
    except BaseException:
        await line.close()
        raise
    return line


def hello(login: Login) -> tuple[Word, ...]:
    """How a connection begins."""
    who = ("AUTH", login.user or "default", login.password) if login.user or login.password else ()
    return ("HELLO", 3, *who)


def context_of(files: Files) -> ssl.SSLContext:
    """What TLS is made of, read anew each time, so that certificates can be replaced."""
    context = ssl.create_default_context(cafile=files.ca)
    if files.cert is not None:
        context.load_cert_chain(files.cert, files.key)
    return context


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
        errors: list[FenceholdError] = []
        for sentinel in tuple(self._sentinels):
            try:
                line = await self._through(sentinel)
            except FenceholdError as error:
                errors.append(error)
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return line
        said = "; ".join(map(str, errors))
        raise final_among(errors) or Unavailable(f"no sentinel led to the master of {self._service!r}: {said}")

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


async def answer(line: Line, *commands: tuple[Word, ...]) -> Any:
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
