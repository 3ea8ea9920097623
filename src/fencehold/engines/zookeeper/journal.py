"""The port, kept by ZooKeeper. See `layout` for what is kept where, and each part for the rules it obeys.

1. One session carries everything: ZooKeeper does what one session asks in the order in which it was asked.
2. An append and the taking of an epoch have one deadline for all they try; so has the connection to the first
   server.
3. Cancelling a call does not undo it. An append whose caller was cancelled may land; it is in place or not at all.
4. `close` lets appends under way end, then ends the session. Nothing of this journal runs after it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace

from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.drivers.zookeeper.client import ZookeeperClient
from fencehold.drivers.zookeeper.survey import survey
from fencehold.engines.zookeeper.layout import Layout
from fencehold.engines.zookeeper.log import Entries, Epochs, create
from fencehold.engines.zookeeper.reader import EntryReader
from fencehold.engines.zookeeper.retries import RetryingClient
from fencehold.engines.zookeeper.snapshots import ZookeeperSnapshots, ZookeeperTrimmer
from fencehold.errors import Unavailable, UsageError
from fencehold.journal.health import EngineMember, Health
from fencehold.journal.port import Declared, Opened, Record
from fencehold.journal.room import Room
from fencehold.runtime.faults import NO_FAULTS, Faults
from fencehold.types import Epoch, Position

_ENTRY_BYTES_MAX = 900_000
"""A ZooKeeper by default takes 1 MiB (`jute.maxbuffer`), with the paths and the rest of a transaction."""

_ROOM = Room("the ensemble", note="an ensemble keeps a journal in its servers' memory, and reports no bound")


class ZookeeperJournal:
    """A journal in an ensemble, for any number of processes at once."""

    declared = Declared(engine="zookeeper", durable=True, shared=True, entry_bytes_max=_ENTRY_BYTES_MAX)

    def __init__(
        self,
        address: ZookeeperAddress,
        *,
        append_timeout_s: float = 1.5,
        session_timeout_s: float = 6.0,
        faults: Faults = NO_FAULTS,
    ) -> None:
        self._address = address
        self._append_timeout_s = append_timeout_s
        self._session_timeout_s = session_timeout_s
        self._faults = faults
        self._running: _Running | None = None
        self._opening = False

    @classmethod
    def from_url(cls, url: str, shard: int = 0) -> "ZookeeperJournal":
        """The journal that `zookeeper://[user:password@]host[:port][,host[:port]…][/root]` names.

        Those of shards but the first are below its root.

        Raises:
            UsageError: it is not such a URL.
        """
        address = ZookeeperAddress.parse(url)
        return cls(replace(address, root=f"{address.root}/shards/{shard:04d}") if shard else address)

    def __repr__(self) -> str:
        return f"ZookeeperJournal({self._address})"

    async def open(self) -> Opened:
        if self._running is not None or self._opening:
            raise UsageError(f"{self._address}: this journal is open already")
        self._opening = True
        try:
            return await self._open()
        finally:
            self._opening = False

    async def _open(self) -> Opened:
        client = ZookeeperClient(self._address, self._session_timeout_s)
        running = _Running(client, self._address.root, self._faults)
        try:
            opened = await running.begin(client.deadline_at(self._append_timeout_s))
        except BaseException:
            await client.stop(patience_s=0)
            raise
        self._running = running
        return opened

    async def read(self, after: Position) -> AsyncIterator[Record]:
        running = self._opened()
        await running.epochs.catch_up()
        end = await running.reader.end()
        async for record in running.reader.read(after, end):
            yield record

    async def tail(self, after: Position) -> AsyncIterator[Record]:
        running = self._opened()
        try:
            async for record in running.reader.tail(after):
                yield record
        except Unavailable:
            if self._running is running:
                raise

    async def lead(self, known: Epoch | None = None) -> Epoch:
        running = self._opened()
        return await running.epochs.take(self._deadline_at(running), known)

    async def append(self, entry: bytes, *, epoch: Epoch, position: Position) -> None:
        running = self._opened()
        if not 0 < len(entry) <= _ENTRY_BYTES_MAX:
            raise UsageError(f"an entry has 1 to {_ENTRY_BYTES_MAX} bytes, not {len(entry)}")
        with running.appending():
            await running.entries.append(entry, epoch, position, self._deadline_at(running))

    async def save(self, position: Position, chunks: Iterable[bytes]) -> None:
        running = self._opened()
        await running.epochs.catch_up()
        await running.snapshots.save(position, chunks, await running.reader.end())

    async def seed(self, position: Position, chunks: Iterable[bytes]) -> None:
        running = self._opened()
        await running.epochs.catch_up()
        await running.snapshots.seed(position, chunks, await running.reader.end())

    async def trim(self, *, urgent: bool = False) -> None:
        running = self._opened()
        await running.epochs.catch_up()
        await running.trimmer.trim(await running.snapshots.pointed())

    async def health(self, within_s: float) -> Health:
        seen = await survey(self._address, within_s)
        members = tuple(EngineMember(one.host, one.is_up, one.mode, one.trouble) for one in seen)
        return Health(members=members, quorum=len(members) // 2 + 1)

    async def room(self, within_s: float) -> Room:
        return _ROOM

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.end()

    def _opened(self) -> "_Running":
        if self._running is None:
            raise Unavailable(f"{self._address}: this journal is not open: open it first")
        return self._running

    def _deadline_at(self, running: "_Running") -> float:
        return running.client.deadline_at(self._append_timeout_s)


class _Running:
    """What an open journal has and a closed one has not."""

    def __init__(self, client: ZookeeperClient, root: str, faults: Faults) -> None:
        self.client = client
        self._retries = RetryingClient(client, faults)
        self._layout = layout = Layout(root)
        self.epochs = Epochs(self._retries, layout)
        self.entries = Entries(self._retries, layout, self.epochs)
        self.reader = EntryReader(self._retries, layout)
        self.snapshots = ZookeeperSnapshots(self._retries, layout)
        self.trimmer = ZookeeperTrimmer(self._retries, layout)
        self._appends = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def begin(self, deadline_at: float) -> Opened:
        await create(self._retries, self._layout, deadline_at)
        snapshot = await self.snapshots.load()
        return Opened(snapshot, await self.epochs.newest(), await self.reader.end())

    @contextlib.contextmanager
    def appending(self) -> Iterator[None]:
        self._appends += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._appends -= 1
            if not self._appends:
                self._quiet.set()

    async def end(self) -> None:
        await self._quiet.wait()
        await self.client.stop()
