"""The server: a node on an engine, the volatile machine beside it, and the doors to both, put together.

Embedded use: ``Server(Config(data="…"))``; one of several nodes: ``Server(Config(engine="etcd://…", node="a"))``.
The command line's ``serve`` does no more than this.
"""

import asyncio
import contextlib
import ipaddress
import socket
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from fencehold.core.limits import Limits
from fencehold.doors.resp.door import Bounds as DoorBounds
from fencehold.doors.resp.door import Door, check_host, is_loopback
from fencehold.drivers.tls import ClientTls
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
from fencehold.observe.feed import Feed, Observing
from fencehold.runtime.calendar import Calendar, unix_ms
from fencehold.runtime.clock import Clock, MonotonicClock
from fencehold.security.admission import Admission
from fencehold.security.audit import AuditLog
from fencehold.security.audit import Bounds as AuditBounds
from fencehold.security.tls import Certificates, Clients, ServerTls
from fencehold.security.tokens import Tokens

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
    """Listen on an address other machines can reach, encrypted or not, and ask nobody who they are."""
    tls: ServerTls | None = None
    """What the listener is secured with; other nodes are reached the same way."""
    tokens: Path | None = None
    """A file with the tokens of services, hashed."""
    auth: bool | None = None
    """Whether everybody has to say who they are; None: where other machines can connect, and where certificates of
    clients are required."""
    limits: Limits = Limits()
    leader: LeaderBounds = LeaderBounds()
    patience: Patience = Patience()
    door: DoorBounds = DoorBounds()
    audit_log: Path | None = None
    """The directory of an audit log; None: nothing is written down."""
    audit: AuditBounds = AuditBounds()
    observing: Observing | None = None
    """What a process beside it counts and remembers; None: there is none."""

    @property
    def asks(self) -> bool:
        """Whether everybody has to say who they are."""
        if self.auth is not None:
            return self.auth
        wants_certificates = self.tls is not None and self.tls.clients is Clients.REQUIRED
        return wants_certificates or not (self.insecure or is_loopback(self.host))

    def checked(self) -> "Config":
        """The same, if it is as secure as it must be.

        Raises:
            UsageError: other machines can connect, and nothing is encrypted or nobody is asked; or the nodes of a
                service that asks everybody could not know one another.
        """
        check_host(self.host, insecure=self.insecure, tls=self.tls is not None, asks=self.asks)
        if self.engine and self.asks and (self.tls is None or self.tls.clients is Clients.NONE):
            raise UsageError(
                "nodes that share an engine know one another by certificates: say --tls-ca FILE and "
                "--tls-clients optional or required, too"
            )
        return self


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
        # Not by its name alone: a journal with one owner has no other node, and trying again does not help.
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
        certificates = Certificates(config.tls) if config.tls is not None else None
        self.door = Door(
            self.node,
            volatile=self.volatile,
            bounds=config.door,
            clock=clock,
            certificates=certificates,
            admission=Admission(tokens=Tokens(config.tokens) if config.tokens is not None else None),
            asks=config.asks,
        )
        self.node.on_deposed = self._on_deposed
        self.audit: AuditLog | None = None
        self.observer = None if config.observing is None else Feed(config.observing)
        self.door.observer = self.observer
        self.volatile.on_life = self._observe
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Come up to the end of the journal and listen; among other nodes, listen and stand by.

        Raises:
            AlreadyOwned, Damaged, Unavailable: the journal cannot be had. One of several nodes goes on trying.
            UsageError, OSError: the address cannot be had.
        """
        try:
            self.config.checked()
            self._open_audit()
            for node in (self.node, self.volatile.node):
                self._observe(node)
            if self.is_clustered:
                # First, for the others are told the port; until it knows who leads, it refuses.
                await self._listen()
                self.node.join(self._member(), LeaderLink(self._member(), self._peer_tls()))
            await self._run()
            if not self.is_clustered:
                await self._listen()
        except BaseException:
            await self.stop()
            raise

    async def _listen(self) -> None:
        self.port = await self.door.open(self.config.host, self.config.port, insecure=self.config.insecure)

    def _open_audit(self) -> None:
        """Before anything is read: what the audit log misses comes from the journal."""
        if self.config.audit_log is None:
            return
        self.audit = AuditLog(self.config.audit_log, self.config.audit, node=self.config.node)
        self.door.audit_with(self.audit)

    def _observe(self, node: Node) -> None:
        """Have what a machine does written down and observed, from its first entry on."""
        if self.audit is not None:
            node.replica.on_entry = partial(self.audit.on_entry, node.tier.name)
        if self.observer is not None:
            self.observer.attach(node)

    def _peer_tls(self) -> ClientTls | None:
        return ClientTls(self.config.tls.own) if self.config.tls is not None else None

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
        """Wait until it ends: after `stop`, or by an error that trying again cannot fix."""
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
        if self.observer is not None:
            await self.observer.close()
        if self.audit is not None:
            log, self.audit = self.audit, None
            await asyncio.to_thread(log.close)

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
