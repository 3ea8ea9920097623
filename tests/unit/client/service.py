"""A real server for tests of the clients, on the test's loop or on a thread, and a line to it that can be cut."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from fencehold.server import Config, Server

PATIENCE_S = 60.0


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, and see that it leaves no task behind."""

    async def watched() -> None:
        await test
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert others == set(), others

    asyncio.run(watched())


@asynccontextmanager
async def service() -> AsyncIterator[str]:
    """A server on this loop; gives its URL."""
    async with Server(Config(port=0)) as server:
        yield f"fencehold://127.0.0.1:{server.port}"


async def until(true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until something is true."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        answer = true()
        if (await answer) if not isinstance(answer, bool) else answer:
            return
        assert time.monotonic() < limit, "it never became true"
        await asyncio.sleep(0.005)


def until_true(true: Callable[[], bool]) -> None:
    """Wait, in a thread, until something is true."""
    limit = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < limit, "it never became true"
        time.sleep(0.005)


@contextmanager
def service_on_a_thread(port: int = 0) -> Iterator[str]:
    """A server on a thread of its own, on any port that is free if none is given; gives its URL."""
    loop = asyncio.new_event_loop()
    server: list[Server] = []

    async def start() -> None:
        server.append(Server(Config(port=port)))
        await server[0].start()

    thread = threading.Thread(target=loop.run_forever, name="server")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE_S)
        yield f"fencehold://127.0.0.1:{server[0].port}"
    finally:
        asyncio.run_coroutine_threadsafe(server[0].stop(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Cable:
    """A line to a server that can be cut, and held still."""

    def __init__(self, url: str) -> None:
        self._target = int(url.rpartition(":")[2])
        self._server: asyncio.Server | None = None
        self._ends: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.refuses = False
        self.connections = 0

    async def __aenter__(self) -> "Cable":
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"fencehold://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Break all connections, on both ends."""
        ends, self._ends = self._ends, []
        for pair in ends:
            for end in pair:
                end.transport.abort()

    def hold_still(self) -> None:
        """Let nothing through, either way, but break nothing."""
        self._flowing.clear()

    def flow(self) -> None:
        """Let through what was held."""
        self._flowing.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._ends.append((writer, back))
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pipe(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self._flowing.wait()
                sink.write(data)
        except ConnectionError:
            pass
        finally:
            sink.close()
