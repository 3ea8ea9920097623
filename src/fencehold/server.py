"""The server: a node on an engine, and the doors to it, put together.

Embedded use: ``Server(Config(data="…"))``; the command line's ``serve`` does no more than this.
"""

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from fencehold.core.limits import Limits
from fencehold.doors.resp.door import Bounds as DoorBounds
from fencehold.doors.resp.door import Door
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.journal.port import Journal
from fencehold.node.leader import Bounds as LeaderBounds
from fencehold.node.node import Node
from fencehold.runtime.clock import Clock, MonotonicClock

PORT = 7420


class Config(NamedTuple):
    """What a server is started with."""

    data: str | Path | None = None
    """The directory of its journal; None keeps everything in memory, and nothing survives the process."""
    host: str = "127.0.0.1"
    port: int = PORT
    insecure: bool = False
    """Listen on an address other machines can reach, though nothing is encrypted or authenticated yet."""
    limits: Limits = Limits()
    leader: LeaderBounds = LeaderBounds()
    door: DoorBounds = DoorBounds()


class Server:
    """Started with `start`, served until `stop`; or ``async with``."""

    def __init__(self, config: Config, *, journal: Journal | None = None, clock: Clock | None = None) -> None:
        self.config = config
        self.port = config.port
        self._journal = journal or _journal_of(config)
        self.node = Node(self._journal, clock or MonotonicClock(), limits=config.limits, bounds=config.leader)
        self.door = Door(self.node, bounds=config.door)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Come up to the end of the journal, then listen.

        Raises:
            AlreadyOwned, Damaged, Unavailable: the journal cannot be had.
            UsageError, OSError: the address cannot be had.
        """
        self._running = asyncio.create_task(self.node.run(), name="fencehold node")
        ready = asyncio.create_task(self.node.ready())
        try:
            await asyncio.wait({self._running, ready}, return_when=asyncio.FIRST_COMPLETED)
            if self._running.done():
                await self._running
            self.port = await self.door.open(self.config.host, self.config.port, insecure=self.config.insecure)
        except BaseException:
            await self.stop()
            raise
        finally:
            ready.cancel()

    async def serve(self) -> None:
        """Wait until the node ends: after `stop`, or by an error that trying again cannot mend."""
        if self._running is not None:
            await asyncio.shield(self._running)

    async def stop(self) -> None:
        """Answer what was asked, disconnect, let go of the journal."""
        self.door.drain()
        self.node.stop()
        if self._running is not None:
            running, self._running = self._running, None
            with contextlib.suppress(Exception):
                await running
        await self.door.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def _journal_of(config: Config) -> Journal:
    if config.data is None:
        return MemoryJournal(MemoryStore())
    return FileJournal(config.data)
