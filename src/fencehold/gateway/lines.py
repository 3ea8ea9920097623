"""Lines: single connections of a gateway to nodes of the service."""

import asyncio
from typing import Any

import hiredis

from fencehold.drivers.resp.wire import command, error, split
from fencehold.errors import Unavailable


class Line:
    """One connection to a node, greeted, in RESP3."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader()
        self._pushes: list[Any] = []
        self._turn = asyncio.Lock()
        self._made_at = asyncio.get_running_loop().time()
        self.hello: dict[bytes, Any] = {}

    @property
    def leads(self) -> bool:
        """Whether its node led when it greeted us."""
        return self.hello.get(b"role") == b"leader"

    @property
    def shards(self) -> int:
        """How many the service has, by the greeting."""
        return int(self.hello.get(b"shards", 1))

    @property
    def age_s(self) -> float:
        """How long ago its login was sent."""
        return asyncio.get_running_loop().time() - self._made_at

    async def call(self, *words: str | int) -> Any:
        """The reply to a command.

        Raises:
            Unavailable: the connection was lost.
            FenceholdError: the error of the service.
        """
        async with self._turn:
            try:
                self._writer.write(command(*words))
                while isinstance(reply := await self._next(), hiredis.PushNotification):
                    self._pushes.append(reply)
            except BaseException as lost:
                # Also when it is cancelled: the reply would be taken for that of the next question.
                self.close()
                if isinstance(lost, OSError | hiredis.ProtocolError):
                    raise Unavailable(f"the connection to the service was lost: {lost}") from lost
                raise
        if isinstance(reply, hiredis.ReplyError):
            raise error(*split(str(reply)))
        return reply

    async def push(self) -> Any:
        """The next push.

        Raises:
            Unavailable: the connection was lost.
        """
        if self._pushes:
            return self._pushes.pop(0)
        try:
            return await self._next()
        except (OSError, hiredis.ProtocolError) as lost:
            raise Unavailable(f"the connection to the service was lost: {lost}") from lost

    @property
    def is_closed(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()

    def close(self) -> None:
        self._writer.close()

    async def _next(self) -> Any:
        while (reply := self._parser.gets()) is False:
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionResetError("it closed the connection")
            self._parser.feed(data)
        return reply
