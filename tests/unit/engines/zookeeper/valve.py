"""A valve between a client and one server: it knows enough of ZooKeeper's protocol to lose just one message."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.engines.zookeeper import ZookeeperJournal
from tests.contract.engines.zookeeper import PATIENCE_S, ensemble

MULTI = 14
EXISTS = 3
GET_CHILDREN = 8

Meanwhile = Callable[[], Awaitable[object]]


async def _nothing() -> None:
    pass


class _Loss(NamedTuple):
    kind: int
    skip: int
    of_request: bool
    meanwhile: Meanwhile


class Valve:
    """Passes everything on, but for what a test wants lost. A loss ends the connection, as on a real network."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.is_open = True
        self.held: Callable[[], None] = lambda: None
        """Delivers, late, the request that was lost last."""
        self.lost = asyncio.Event()
        """Something was lost."""
        self.connections = 0
        self._loss: _Loss | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._hushed: set[asyncio.StreamWriter] = set()
        self._held: set[asyncio.StreamWriter] = set()
        self._made: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def address(self, root: str) -> ZookeeperAddress:
        assert self._server is not None
        return ZookeeperAddress((f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}",), root)

    def lose_request(self, kind: int = MULTI, meanwhile: Meanwhile = _nothing, skip: int = 0) -> None:
        """Let the next request of this kind never arrive, after some that do; do something else meanwhile."""
        self._loss = _Loss(kind, skip, True, meanwhile)

    def lose_reply(self, kind: int = MULTI, meanwhile: Meanwhile = _nothing, skip: int = 0) -> None:
        """Let the next request of this kind be done, and its reply be lost; do something else meanwhile."""
        self._loss = _Loss(kind, skip, False, meanwhile)

    def shut(self) -> None:
        """End all connections, and let no other be made."""
        self.is_open = False
        for writer in self._writers:
            writer.close()

    def hush(self) -> None:
        """Keep all connections, and pass nothing more on. Those made later are as good as ever."""
        self._hushed |= self._writers

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.shut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._made:
            writer.transport.abort()
        # That is done by the loop, a turn later.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self._made.append(writer)
        try:
            if self.is_open:
                self.connections += 1
                await self._join(reader, writer)
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._made.append(server_writer)
        lost: set[int] = set()
        ways = {
            asyncio.ensure_future(self._requests(reader, server_writer, lost)),
            asyncio.ensure_future(self._replies(server_reader, writer, lost)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            if server_writer not in self._held:
                server_writer.close()

    async def _requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, lost: set[int]) -> None:
        server.write(await _frame(reader))
        while True:
            frame = await _frame(reader)
            xid, kind = struct.unpack_from("!ii", frame, 4)
            if self._is_lost(kind):
                if self._loss is not None and self._loss.of_request:
                    self._hold(server, frame)
                    await self._lose()
                    return
                lost.add(xid)
            server.write(frame)

    def _is_lost(self, kind: int) -> bool:
        if self._loss is None or self._loss.kind != kind:
            return False
        skip = self._loss.skip
        self._loss = self._loss._replace(skip=skip - 1)
        return skip == 0

    async def _lose(self) -> None:
        loss, self._loss = self._loss, None
        assert loss is not None
        await loss.meanwhile()
        self.lost.set()

    def _hold(self, server: asyncio.StreamWriter, frame: bytes) -> None:
        self._held.add(server)

        def deliver() -> None:
            server.write(frame)
            server.close()

        self.held = deliver

    async def _replies(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, lost: set[int]) -> None:
        client.write(await _frame(reader))
        while True:
            frame = await _frame(reader)
            if struct.unpack_from("!i", frame, 4)[0] in lost:
                await self._lose()
                return
            if client not in self._hushed:
                client.write(frame)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack("!i", head)[0])


async def until(is_true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that nobody tells; the test as a whole is bounded."""
    while not await is_true():  # noqa: ASYNC110  (what is awaited knows of no events)
        await asyncio.sleep(0.01)


@asynccontextmanager
async def valve() -> AsyncIterator[Valve]:
    """A valve in front of one of the servers."""
    opened = Valve(ensemble().members[0].port)
    await opened.start()
    try:
        yield opened
    finally:
        await opened.stop()


@asynccontextmanager
async def behind(front: Valve, root: str) -> AsyncIterator[ZookeeperJournal]:
    """A journal that reaches ZooKeeper through a valve, opened."""
    journal = ZookeeperJournal(front.address(root), append_timeout_s=PATIENCE_S)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


async def unlinked(journal: ZookeeperJournal) -> None:
    """Wait until the journal knows that its connection is gone."""
    running = journal._running
    assert running is not None

    async def is_unlinked() -> bool:
        try:
            await running.client.ready(0)
        except TimeoutError:
            return True
        return False

    await until(is_unlinked)
