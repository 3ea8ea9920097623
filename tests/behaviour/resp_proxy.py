"""A proxy before a Redis that can lose an answer: the command arrives, and what is said to it does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Proxy:
    """Forwards, until it is told to lose the next answer to a script."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.port = 0
        self.to_lose = 0
        """So many answers to scripts are yet to be lost, each together with its connection."""
        self.lost = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._server_port)
        is_losing = asyncio.Event()
        pumps = [
            asyncio.create_task(self._commands(reader, upstream, is_losing)),
            asyncio.create_task(self._answers(upstream_reader, writer, is_losing)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (writer, upstream):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()
            self._tasks.discard(task)

    async def end(self) -> None:
        """Disconnect all."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _commands(
        self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, is_losing: asyncio.Event
    ) -> None:
        while data := await reader.read(65_536):
            if self.to_lose and b"EVAL" in data:
                self.to_lose -= 1
                is_losing.set()
            upstream.write(data)
            await upstream.drain()

    async def _answers(
        self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, is_losing: asyncio.Event
    ) -> None:
        while data := await upstream.read(65_536):
            if is_losing.is_set():
                self.lost += 1
                return
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxied(server_port: int) -> AsyncIterator[Proxy]:
    """A proxy that runs."""
    proxy = Proxy(server_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
        await server.wait_closed()
