"""A proxy for TCP that can be told to lose replies, to go silent, or to break all connections."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress

_CHUNK = 65_536
_BACKEND_KEY = re.compile(rb"(K\0\0\0\x0c)....", re.DOTALL)


def as_a_pooler(reply: bytes) -> bytes:
    """What Postgres says, with another number for its process, as every pooler gives one."""
    return _BACKEND_KEY.sub(lambda found: found[1] + b"\x7f\0\0\1", reply)


def as_it_is(reply: bytes) -> bytes:
    return reply


class Proxy:
    """Listens on a port of its own, and carries bytes to a server and back. Belongs to one event loop."""

    def __init__(self, host: str, port: int, alter: Callable[[bytes], bytes] = as_it_is) -> None:
        """`alter` may change what the server says."""
        self._target = (host, port)
        self._alter = alter
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_deaf = False
        self._drops = 0
        self.lost = asyncio.Event()
        """Set when a reply was lost, and its connection broken."""

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in tuple(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def lead_to(self, host: str, port: int) -> None:
        """From now on, new connections lead there."""
        self._target = (host, port)

    def lose_replies(self, count: int = 1) -> None:
        """The next replies are not delivered: what was asked is done, and the connection breaks."""
        self._drops = count
        self.lost.clear()

    def silence(self, is_deaf: bool = True) -> None:
        """Deliver nothing in either direction, and break nothing, until told otherwise."""
        self._is_deaf = is_deaf

    def cut(self) -> None:
        """Break all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        self._writers.add(writer)
        try:
            with suppress(OSError):
                there, back = await asyncio.open_connection(*self._target)
                self._writers.add(back)
                try:
                    await self._both(reader, writer, there, back)
                finally:
                    self._writers.discard(back)
                    back.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            self._carrying.discard(task)

    async def _both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        ways = [
            asyncio.create_task(self._carry(reader, back)),
            asyncio.create_task(self._carry(there, writer, is_reply=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                while self._is_deaf:
                    await asyncio.sleep(0.01)
                if is_reply and self._drops:
                    self._drops -= 1
                    self.lost.set()
                    return
                writer.write(self._alter(data) if is_reply else data)
                await writer.drain()
