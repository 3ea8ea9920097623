"""A client of a Redis: a connection that is made again when it was lost, and the scripts that are run over it.

1. A connection that is lost is made again at once, and after failures with exponential back-off up to a second and
   jitter; no caller has to ask for it.
2. A command that comes while there is no connection waits for the try that is under way, or has the next one come
   sooner. It fails with it: certainly nothing happened.
3. What a connection needs before its first command, such as a subscription, is sent when it is made.
4. A script is known to Redis by its hash; where it is not, it is sent whole.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any, TypeAlias

from fencehold.drivers.resp.connection import Connect, OnMessage, RespConnection, Word, pack
from fencehold.drivers.resp.failures import Refusal, answered
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable

Greet: TypeAlias = Callable[[RespConnection], Awaitable[None]]

_PAUSE_S_FIRST = 0.02
_PAUSE_S_MAX = 1.0


class Script:
    """One step that Redis does whole or not at all."""

    __slots__ = ("hash", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.hash = sha1(source.encode()).hexdigest()

    def by_hash(self, keys: Sequence[Word], words: Sequence[Word]) -> bytes:
        return pack(("EVALSHA", self.hash, len(keys), *keys, *words))

    def whole(self, keys: Sequence[Word], words: Sequence[Word]) -> bytes:
        return pack(("EVAL", self.source, len(keys), *keys, *words))


class RespClient:
    """Belongs to the loop it was started on."""

    def __init__(
        self, connect: Connect, server: str, *, greet: Greet | None = None, on_message: OnMessage | None = None
    ) -> None:
        self._connect = connect
        self.server = server
        self._greet = greet
        self._on_message = on_message
        self.on_again: Callable[[], None] = lambda: None
        """Called when there is a connection again after one was lost."""
        self._connection: RespConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._attempt: asyncio.Future[None] | None = None
        """Resolved when the try under way has ended; None while there is none."""
        self._tried_at = 0.0
        self._hurry = asyncio.Event()
        """Set to end a pause between two tries."""
        self._error: FenceholdError = Unavailable(f"there is no connection to Redis at {server}")
        self._is_closed = False

    @property
    def connection(self) -> RespConnection | None:
        """The connection, while there is one."""
        connection = self._connection
        return None if connection is None or connection.is_lost else connection

    def start(self) -> None:
        """Begin to have a connection."""
        if self._task is None and not self._is_closed:
            self._attempt = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._make())

    async def reached(self) -> RespConnection:
        """The connection, as soon as the try under way has ended.

        Raises:
            FenceholdError: it failed; nothing happened.
        """
        if self.connection is None and not self._is_closed:
            self._try_sooner()
            if self._attempt is not None:
                await asyncio.shield(self._attempt)
        if self.connection is None:
            # A new one for each: an error that several raise collects the traceback of all.
            raise type(self._error)(str(self._error))
        return self.connection

    async def call(self, command: bytes) -> Any:
        """The answer to a command.

        Raises:
            FenceholdError: there is none, or it is an error.
            Refusal: Redis does not know the script.
        """
        reply = await (self.connection or await self.reached()).send(command)
        if isinstance(reply, FenceholdError):
            raise reply
        if isinstance(reply, Refusal):
            raise self._refused(reply)
        return reply

    async def run(self, script: Script, keys: Sequence[Word], words: Sequence[Word]) -> Any:
        """What a script answers.

        Raises:
            FenceholdError: as `call`.
        """
        try:
            return await self.call(script.by_hash(keys, words))
        except Refusal:
            return await self.call(script.whole(keys, words))

    async def close(self) -> None:
        """Disconnect. It raises nothing."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    def _refused(self, refusal: Refusal) -> Exception:
        if refusal.is_unknown_script:
            return refusal
        if refusal.is_demotion and self._connection is not None:
            self._connection.drop(str(refusal))
        return answered(refusal, self.server)

    def _on_lost(self, connection: RespConnection) -> None:
        if connection is self._connection:
            self._connection = None
            self.start()

    async def _make(self) -> None:
        pause_s = _PAUSE_S_FIRST
        while True:
            try:
                self._connection = await self._made()
                break
            except OutcomeUnknown as error:
                # What was not answered is the greeting of a new connection, and no command of a caller.
                self._error = Unavailable(str(error))
            except FenceholdError as error:
                self._error = error
            finally:
                self._attempt_ended()
            await self._pause(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        self._task = None
        self.on_again()

    async def _made(self) -> RespConnection:
        connection = await self._connect()
        try:
            if self._on_message is not None:
                connection.on_message = self._on_message
            if self._greet is not None:
                await self._greet(connection)
            if connection.is_lost:
                raise Unavailable(f"the connection to Redis at {connection.server} was lost at once")
        except BaseException:
            await connection.close()
            raise
        connection.on_lost = self._on_lost
        return connection

    async def _pause(self, seconds: float) -> None:
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_future()

    def _try_sooner(self) -> None:
        """End a pause, if there is one, as soon as it was as long as the first."""
        if self._attempt is None and self._task is not None:
            loop = asyncio.get_running_loop()
            self._attempt = loop.create_future()
            loop.call_at(self._tried_at + _PAUSE_S_FIRST, self._hurry.set)

    def _attempt_ended(self) -> None:
        self._tried_at = asyncio.get_running_loop().time()
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_result(None)
        self._attempt = None
