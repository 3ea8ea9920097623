"""Operators: who runs the service, over a connection of its own, while everybody goes on and everything fails.

An operator connects to some node, says what it has to say, and begins anew with another node when that one does
not answer, does not lead, or refuses it. When all faults are over it is told to stop, and comes to an end.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, cast

import hiredis

from rig.frames import frame
from tests.simulation.nodes import PORT
from tests.simulation.process import Process

ANSWER_S = 3.0


class CallLine(asyncio.Protocol):
    """A connection of somebody who runs the service. Its replies come in order."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.waiting: deque[asyncio.Future[Any]] = deque()
        self._reader = hiredis.Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if self.waiting and not (waiting := self.waiting.popleft()).done():
                waiting.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_exception(ConnectionError("lost"))

    async def call(self, *words: str | int) -> Any:
        assert self.transport is not None
        waiting = asyncio.get_running_loop().create_future()
        self.waiting.append(waiting)
        self.transport.write(frame(*words))
        async with asyncio.timeout(ANSWER_S):
            reply = await waiting
        if isinstance(reply, hiredis.ReplyError):
            raise ConnectionError(str(reply))
        return reply


class Operator:
    """Of one run. What it does on a connection is said by who derives from it."""

    again_s: ClassVar[float]
    """From one connection to the next."""

    def __init__(
        self, process: Process, nodes: list[str], shards: int, random: Random, note: Callable[[str], None]
    ) -> None:
        self.process = process
        self._nodes, self._random, self._note = nodes, random, note
        # Policies and maps are the first shard's.
        self._greeting: tuple[str | int, ...] = ("HELLO", 3, "SHARD", 0) if shards > 1 else ("HELLO", 3)
        self._stopping = False
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Come to an end."""
        self._stopping = True
        self._stopped.set()

    async def run(self) -> None:
        """Do what is to be done, over one connection after the other."""
        while True:
            try:
                if await self._operate():
                    return
            except (OSError, TimeoutError) as error:
                self._note(f"{error!r}")
            await asyncio.sleep(self.again_s)

    async def _operate(self) -> bool:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(ANSWER_S):
            line: CallLine
            _, line = await loop.create_connection(CallLine, self._random.choice(self._nodes), PORT)
        try:
            await line.call(*self._greeting)
            return await self._use(line)
        finally:
            if line.transport is not None:
                line.transport.abort()

    async def _use(self, line: CallLine) -> bool:
        """Do it over this connection; says whether all is done."""
        raise NotImplementedError

    async def _pause(self, seconds: float) -> None:
        """Wait, unless it is time to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return
