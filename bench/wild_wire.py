"""A connection of a wild client: it writes as fast as it is let, and reads without looking, or not at all."""

import asyncio
import itertools
import random
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from bench.wire import command

_RECEIVE_BYTES = 4_096
"""How much the kernel takes for a client that does not read."""
_RETRY_S = 0.02

login = ""
"""The token that each connection shows, if any."""


class Rough(asyncio.Protocol):
    """One connection. What comes is thrown away, but for the marks it asked for."""

    def __init__(self, *, reads: bool = True) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = 0
        self._reads = reads
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._numbers = itertools.count()
        self._marks: dict[bytes, asyncio.Future[None]] = {}
        self._tail = b""

    @classmethod
    async def connect(cls, port: int, *, reads: bool = True) -> "Rough":
        """Connect, and try until it is let in."""
        loop = asyncio.get_running_loop()
        while True:
            bare = socket.socket()
            bare.setblocking(False)
            if not reads:
                bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            try:
                await loop.sock_connect(bare, ("127.0.0.1", port))
                _, made = await loop.create_connection(lambda: cls(reads=reads), sock=bare)
                if login and made.transport is not None:
                    made.transport.write(command("AUTH", "token", login))
                return made
            except OSError:
                bare.close()
                await asyncio.sleep(_RETRY_S)

    @property
    def is_closed(self) -> bool:
        return self._closed.done()

    async def send(self, data: bytes) -> None:
        """Write when there is room.

        Raises:
            ConnectionError: the server has ended it.
        """
        await self._writable.wait()
        if self.is_closed or self.transport is None:
            raise ConnectionError("closed")
        self.transport.write(data)

    async def settle(self) -> None:
        """Wait until all that was sent is answered. Raises as `send`."""
        mark = b"~mark-%08d~" % next(self._numbers)
        reached = self._marks[mark] = asyncio.get_running_loop().create_future()
        await self.send(command("ECHO", mark.decode()))
        await asyncio.wait((reached, self._closed), return_when=asyncio.FIRST_COMPLETED)
        if not reached.done():
            raise ConnectionError("closed")

    async def closed(self, seconds_max: float) -> None:
        """Wait until the server ends it, or for so long."""
        await asyncio.wait((self._closed,), timeout=seconds_max)

    def end(self) -> None:
        """Drop it, whatever is under way."""
        if self.transport is not None:
            self.transport.abort()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if not self._reads:
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self._marks:
            window = self._tail + data
            for mark in [mark for mark in self._marks if mark in window]:
                self._marks.pop(mark).set_result(None)
            self._tail = window[-32:]

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        if not self._closed.done():
            self._closed.set_result(None)


async def again_and_again(port: int, use: Callable[[Rough], Awaitable[None]], *, reads: bool = True) -> None:
    """Use one connection after another: a wild client that is disconnected comes back."""
    while True:
        rough = await Rough.connect(port, reads=reads)
        try:
            await use(rough)
        except ConnectionError:
            await asyncio.sleep(_RETRY_S)
        finally:
            rough.end()


async def many(count: int, make: Callable[[int], Awaitable[None]]) -> None:
    """So many at once, for as long as they last."""
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(_each(make, number))


async def _each(make: Callable[[int], Awaitable[None]], number: int) -> None:
    await make(number)


async def now_and_then(seconds: float) -> None:
    """About so long."""
    await asyncio.sleep(random.uniform(0.5, 1.5) * seconds)


def open_files_max() -> None:
    """As many connections as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
