"""The server: a node on an engine, the volatile machine beside it, and the doors to both, put together.

Embedded use: ``Server(Config(data="…"))``; one of several nodes: ``Server(Config(engine="etcd://…", node="a"))``.
The command line's ``serve`` does no more than this.
"""

import asyncio
import contextlib
import ipaddress
import socket
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from fencehold.core.limits import Limits
from fencehold.doors.resp.door import Bounds as DoorBounds
from fencehold.doors.resp.door import Door
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.engines.registry import journal_of
from fencehold.errors import UsageError
from fencehold.journal.port import Journal
from fencehold.node.leader import Bounds as LeaderBounds
from fencehold.node.leader_link import LeaderLink
from fencehold.node.node import Node
from fencehold.node.standbys import Member
from fencehold.node.suspicion import Patience
from fencehold.node.volatile import Volatile
from fencehold.runtime.calendar import Calendar, unix_ms
from fencehold.runtime.clock import Clock, MonotonicClock

PORT = 7420


class Config(NamedTuple):
    """What a server is started with."""

    data: str | Path | None = None
    """The directory of its journal; None keeps everything in memory, and nothing survives the process."""
    engine: str = ""
    """Where its journal is instead, as a URL: `etcd://…`, `zookeeper://…`, `postgresql://…`. Several nodes may
    share such a journal: one leads, the others stand by."""
    node: str = ""
    """What it is called among them; by default after its host and port."""
    advertise: str = ""
    """Where clients and the other nodes reach it; by default where it listens."""
    host: str = "127.0.0.1"
    port: int = PORT
    insecure: bool = False
    """Listen on an address other machines can reach, though nothing is encrypted or authenticated yet."""
    limits: Limits = Limits()
    leader: LeaderBounds = LeaderBounds()
    patience: Patience = Patience()
    door: DoorBounds = DoorBounds()


class Server:
    """Started with `start`, served until `stop`; or ``async with``."""

    def __init__(
        self,
        config: Config,
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
        calendar: Calendar = unix_ms,
    ) -> None:
        self.config = config
        self.port = config.port
        self._journal = journal or _journal_of(config)
        declared = self._journal.declared
        # Not by its name alone: a journal with one owner has no other node, and is not mended by trying again.
        self.is_clustered = declared.shared and (declared.durable or bool(config.node))
        clock = clock or MonotonicClock()
        self.node = Node(
            self._journal,
            clock,
            limits=config.limits,
            bounds=config.leader,
            patience=config.patience,
            calendar=calendar,
        )
        self.volatile = Volatile(self.node, clock, limits=config.limits, bounds=config.leader, calendar=calendar)
        self.door = Door(self.node, volatile=self.volatile, bounds=config.door, clock=clock)
        self.node.on_deposed = self._on_deposed
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Come up to the end of the journal and listen; among other nodes, listen and stand by.

        Raises:
            AlreadyOwned, Damaged, Unavailable: the journal cannot be had. One of several nodes goes on trying.
            UsageError, OSError: the address cannot be had.
        """
        try:
            if self.is_clustered:
                # First, for the others are told the port; until it knows who leads, it refuses.
                await self._listen()
                self.node.join(self._member(), LeaderLink(self._member()))
            await self._run()
            if not self.is_clustered:
                await self._listen()
        except BaseException:
            await self.stop()
            raise

    async def _listen(self) -> None:
        self.port = await self.door.open(self.config.host, self.config.port, insecure=self.config.insecure)

    async def _run(self) -> None:
        self._running = asyncio.create_task(self._run_both(), name="fencehold server")
        settling = asyncio.create_task(self.node.settled())
        try:
            await asyncio.wait({self._running, settling}, return_when=asyncio.FIRST_COMPLETED)
            if self._running.done():
                await self._running
        finally:
            settling.cancel()

    async def _run_both(self) -> None:
        """Run the node and the volatile machine; neither goes on without the other."""
        both = (
            asyncio.create_task(self.node.run(), name="fencehold node"),
            asyncio.create_task(self.volatile.run(), name="fencehold volatile machine"),
        )
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.node.stop()
            self.volatile.stop()
            await asyncio.gather(*both, return_exceptions=True)
        for task in both:
            task.result()

    def _on_deposed(self) -> None:
        self.volatile.forget()
        self.door.dismiss()

    def _member(self) -> Member:
        config = self.config
        address = config.advertise or f"{_bracketed(config.host)}:{self.port}"
        if not config.advertise and _is_any(config.host):
            raise UsageError(
                f"{config.host} is no address that others could connect to: say --advertise HOST:PORT, too"
            )
        return Member(config.node or f"{socket.gethostname()}:{self.port}", address)

    async def serve(self) -> None:
        """Wait until it ends: after `stop`, or by an error that trying again cannot mend."""
        if self._running is not None:
            await asyncio.shield(self._running)

    async def stop(self) -> None:
        """Answer what was asked, disconnect, let go of the journal."""
        self.door.drain()
        self.node.stop()
        self.volatile.stop()
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


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def _journal_of(config: Config) -> Journal:
    if config.engine:
        return journal_of(config.engine)
    if config.data is None:
        return MemoryJournal(MemoryStore())
    return FileJournal(config.data)
