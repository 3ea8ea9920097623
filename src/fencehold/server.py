"""The server: a node on an engine, the volatile machine beside it, and the listeners of both, put together.

Embedded use: ``Server(Config(data="…"))``; one of several nodes: ``Server(Config(engine="etcd://…", node="a"))``.
The command line's ``serve`` does no more than this.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from fencehold.core.limits import Limits
from fencehold.doors.resp.bounds import Bounds as ListenerBounds
from fencehold.doors.resp.door import Door
from fencehold.drivers.address import is_loopback
from fencehold.drivers.tls import ClientTls
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.engines.registry import journal_of, shard_path
from fencehold.errors import UsageError
from fencehold.journal.port import Journal
from fencehold.node.cell_keeper import CellKeeper
from fencehold.node.cell_link import CellLinks
from fencehold.node.homes_lease import HomesLease
from fencehold.node.leader import Bounds as LeaderBounds
from fencehold.node.leader_link import LeaderLink
from fencehold.node.node import HomeShard, Node
from fencehold.node.shards import ShardHost, Shards
from fencehold.node.standbys import Member
from fencehold.node.suspicion import Patience
from fencehold.node.volatile import Volatile
from fencehold.observe.feed import Feed, Observing
from fencehold.placement.cells import Reach
from fencehold.placement.map import check_shards, even_map
from fencehold.runtime.calendar import Calendar, unix_ms
from fencehold.runtime.clock import Clock, MonotonicClock, boot_ms
from fencehold.security.admission import Admission
from fencehold.security.audit import AuditLog
from fencehold.security.audit import Bounds as AuditBounds
from fencehold.security.exposure import check_host
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
    """Its name among them; by default its host and port."""
    advertise: str = ""
    """Where clients and the other nodes reach it; by default where it listens."""
    shards: int = 1
    """Over how many state machines, each with its own journal, the names are spread. It cannot change later."""
    spans: str = "none"
    """What the members of its engine are spread over, `none`, `zone` or `region`: for one of several cells."""
    host: str = "127.0.0.1"
    port: int = PORT
    insecure: bool = False
    """Listen on an address other machines can reach, encrypted or not, without authenticating clients."""
    tls: ServerTls | None = None
    """What the listener is secured with; other nodes are reached the same way."""
    tokens: Path | None = None
    """A file with the tokens of services, hashed."""
    auth: bool | None = None
    """Whether clients must authenticate; None: where other machines can connect, and where client certificates are
    required."""
    limits: Limits = Limits()
    leader: LeaderBounds = LeaderBounds()
    patience: Patience = Patience()
    listener: ListenerBounds = ListenerBounds()
    audit_log: Path | None = None
    """The directory of an audit log; None: no audit log."""
    audit: AuditBounds = AuditBounds()
    observing: Observing | None = None
    """What a process beside it counts and remembers; None: there is none."""

    @property
    def door(self) -> ListenerBounds:
        """An earlier name of `listener`."""
        return self.listener

    @property
    def asks(self) -> bool:
        """Whether clients must authenticate."""
        if self.auth is not None:
            return self.auth
        wants_certificates = self.tls is not None and self.tls.clients is Clients.REQUIRED
        return wants_certificates or not (self.insecure or is_loopback(self.host))

    def checked(self) -> "Config":
        """The same, if it is as secure as it must be.

        Raises:
            UsageError: other machines can connect, and nothing is encrypted or authenticated; or the nodes of a
                service with authentication could not know one another.
        """
        check_shards(self.shards)
        check_host(self.host, insecure=self.insecure, tls=self.tls is not None, asks=self.asks)
        if self.engine and self.asks and (self.tls is None or self.tls.clients is Clients.NONE):
            raise UsageError(
                "nodes that share an engine know one another by certificates: add --tls-ca FILE and "
                "--tls-clients optional or required, too"
            )
        return self


def _with_earlier_names(new: Callable[..., Config]) -> Callable[..., Config]:
    """The same, taking `door=` for `listener=`, too."""

    @wraps(new)
    def made(kind: type[Config], *args: Any, **options: Any) -> Config:
        if "door" in options and "listener" not in options:
            options["listener"] = options.pop("door")
        return new(kind, *args, **options)

    return made


# From outside, as a `NamedTuple` defines none of its own.
Config.__new__ = _with_earlier_names(Config.__new__)  # type: ignore[assignment, method-assign]


class Server:
    """Started with `start`, served until `stop`; or ``async with``."""

    def __init__(
        self,
        config: Config,
        *,
        journal: Journal | None = None,
        journals: Sequence[Journal] = (),
        clock: Clock | None = None,
        calendar: Calendar = unix_ms,
    ) -> None:
        self.config = config
        self.port = config.port
        check_shards(config.shards)
        if not journals:
            first = journal or _journal_of(config, 0)
            journals = (first, *(_journal_of(config, shard) for shard in range(1, config.shards)))
        declared = journals[0].declared
        # Not by its name alone: a journal with one owner has no other node, and trying again does not help.
        self.is_clustered = declared.shared and (declared.durable or bool(config.node))
        clock = clock or MonotonicClock()
        make = partial(_host_of, config, clock, calendar)
        self.hosts = [make(each, shard) for shard, each in enumerate(journals)]
        """A node and a volatile machine for each shard; mostly there is one."""
        self.node, self.volatile = self.hosts[0]
        self.shards = Shards(self.hosts, even_map(config.shards)) if config.shards > 1 else None
        certificates = Certificates(config.tls) if config.tls is not None else None
        self.door = Door(
            self.node,
            volatile=self.volatile,
            shards=self.shards,
            bounds=config.listener,
            clock=clock,
            certificates=certificates,
            admission=Admission(tokens=Tokens(config.tokens) if config.tokens is not None else None),
            asks=config.asks,
        )
        for host in self.hosts:
            host.node.on_deposed = partial(self._on_deposed, host)
        self.door.spans = Reach(config.spans)
        lease_ms = boot_ms if clock.goes_by_itself else clock.now_ms
        nodes = [host.node for host in self.hosts]
        self.keeper = CellKeeper(nodes, HomesLease(lease_ms), CellLinks(self._peer_tls()), lease_ms)
        self.audit: AuditLog | None = None
        observing = config.observing
        self.observer = None if observing is None else Feed(observing._replace(shards=config.shards))
        self.door.observer = self.observer
        for shard, host in enumerate(self.hosts):
            host.volatile.on_life = partial(self._observe, shard)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Come up to the end of the journal and listen; among other nodes, listen and stand by.

        Raises:
            AlreadyOwned, Damaged, Unavailable: the journal cannot be opened. One of several nodes keeps trying.
            UsageError, OSError: the server cannot listen on the address.
        """
        try:
            self.config.checked()
            self._open_audit()
            for shard, host in enumerate(self.hosts):
                self._observe(shard, host.node)
                self._observe(shard, host.volatile.node)
            if self.is_clustered:
                # First, as the other nodes must know the port; until it knows the leader, it refuses requests.
                await self._listen()
                for shard, host in enumerate(self.hosts):
                    link = LeaderLink(self._member(), self._peer_tls(), shard if self.shards else None)
                    if self.shards is not None:
                        link.on_hurry = self.shards.mover.hurry
                    host.node.join(self._member(), link)
            await self._run()
            if not self.is_clustered:
                await self._listen()
        except BaseException:
            await self.stop()
            raise

    async def _listen(self) -> None:
        self.port = await self.door.open(self.config.host, self.config.port, insecure=self.config.insecure)
        self.door.advertised = self.config.advertise or f"{_bracketed(self.config.host)}:{self.port}"

    def _open_audit(self) -> None:
        """Before anything is read: what the audit log misses comes from the journal."""
        if self.config.audit_log is None:
            return
        self.audit = AuditLog(self.config.audit_log, self.config.audit, node=self.config.node)
        self.door.audit_with(self.audit)

    def _observe(self, shard: int, node: Node) -> None:
        """Have what a machine does audited and observed, from its first entry on."""
        if self.audit is not None:
            label = f"{node.tier.name} shard {shard}" if shard else node.tier.name
            node.replica.on_entry = partial(self.audit.on_entry, label)
        if self.observer is not None:
            self.observer.attach(node)

    def _peer_tls(self) -> ClientTls | None:
        return ClientTls(self.config.tls.own) if self.config.tls is not None else None

    async def _run(self) -> None:
        self._running = asyncio.create_task(self._run_all(), name="fencehold server")
        settling = asyncio.create_task(self._settled())
        try:
            await asyncio.wait({self._running, settling}, return_when=asyncio.FIRST_COMPLETED)
            if self._running.done():
                await self._running
        finally:
            settling.cancel()

    async def _settled(self) -> None:
        for host in self.hosts:
            await host.node.settled()

    async def _run_all(self) -> None:
        """Run the nodes and the volatile machines; when one ends, all are stopped."""
        tasks = self._run_host(self.hosts[0])
        beside = [asyncio.create_task(self.keeper.run(), name="fencehold cells")]
        tasks += beside
        try:
            if self.shards is not None:
                # The first alone: if its journal was made with another number of shards, no other is touched.
                settled = asyncio.create_task(self.node.settled())
                await asyncio.wait({settled, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                settled.cancel()
                if not any(task.done() for task in tasks):
                    for host in self.hosts[1:]:
                        tasks += self._run_host(host)
                    more = [
                        asyncio.create_task(self.shards.mover.run(), name="fencehold slots"),
                        asyncio.create_task(self.shards.deadlocks.run(), name="fencehold deadlocks"),
                    ]
                    if self.is_clustered:
                        spread = self.shards.keep_spread(self.config.patience.leader_timeout_s)
                        more.append(asyncio.create_task(spread, name="fencehold spread"))
                    beside += more
                    tasks += more
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop_hosts()
            for task in beside:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()

    def _run_host(self, host: ShardHost) -> "list[asyncio.Task[None]]":
        return [
            asyncio.create_task(host.node.run(), name="fencehold node"),
            asyncio.create_task(host.volatile.run(), name="fencehold volatile machine"),
        ]

    def _stop_hosts(self) -> None:
        for host in self.hosts:
            host.node.stop()
            host.volatile.stop()

    def _on_deposed(self, host: ShardHost) -> None:
        host.volatile.forget()
        self.door.dismiss(None if self.shards is None else host.node)

    def _member(self) -> Member:
        config = self.config
        address = config.advertise or f"{_bracketed(config.host)}:{self.port}"
        if not config.advertise and _is_any(config.host):
            raise UsageError(
                f"{config.host} is not an address that others could connect to: add --advertise HOST:PORT"
            )
        return Member(config.node or f"{socket.gethostname()}:{self.port}", address)

    async def serve(self) -> None:
        """Wait until it ends: after `stop`, or by an error that trying again cannot fix."""
        if self._running is not None:
            await asyncio.shield(self._running)

    async def stop(self) -> None:
        """Answer pending requests, disconnect, close the journal."""
        self.door.drain()
        self._stop_hosts()
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


def _host_of(config: Config, clock: Clock, calendar: Calendar, journal: Journal, shard: int) -> ShardHost:
    node = Node(
        journal,
        clock,
        limits=config.limits,
        bounds=config.leader,
        patience=config.patience,
        calendar=calendar,
        home=HomeShard(shard, config.shards) if config.shards > 1 else None,
    )
    return ShardHost(node, Volatile(node, clock, limits=config.limits, bounds=config.leader, calendar=calendar))


def _journal_of(config: Config, shard: int) -> Journal:
    if config.engine:
        return journal_of(config.engine, shard)
    if config.data is None:
        return MemoryJournal(MemoryStore())
    return FileJournal(shard_path(config.data, shard))
