"""The other side of a channel: a server on loopback, by a library that knows the whole of HTTP/2."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event

from fencehold.drivers.etcd.http2.channel import Channel
from tests.unit.drivers.etcd.http2.peer import BEGIN, OK


class Server:
    """Takes connections, keeps what it hears, and answers calls with what they said, unless it is to be mute."""

    def __init__(self) -> None:
        self.connections: list[H2Connection] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.events: list[Event] = []
        self.ended: list[int] = []
        """Which connections the client has closed."""
        self.is_mute = False
        self.first_words: bytes | None = None
        """Said instead of HTTP/2, with a hang-up after it."""
        self.news = asyncio.Event()
        self.endpoint = ""
        self.tasks: list[asyncio.Task[None]] = []
        """One for each connection."""

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                self.news.clear()
                await self.news.wait()

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def say(self, which: int = -1) -> None:
        self.writers[which].write(self.connections[which].data_to_send())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.first_words is not None:
            writer.write(self.first_words)
            writer.close()
            return
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        h2.initiate_connection()
        self.connections.append(h2)
        self.writers.append(writer)
        self.say()
        while data := await reader.read(1 << 16):
            for event in h2.receive_data(data):
                self.events.append(event)
                self.on_event(h2, event)
                if isinstance(event, DataReceived) and not self.is_mute:
                    self.answer(h2, event)
            writer.write(h2.data_to_send())
            self.news.set()
        writer.close()
        self.ended.append(self.connections.index(h2))
        self.news.set()

    def on_event(self, h2: H2Connection, event: Event) -> None:
        """For those who do more."""

    def answer(self, h2: H2Connection, event: Any) -> None:
        h2.send_headers(event.stream_id, BEGIN)
        h2.send_data(event.stream_id, event.data)
        h2.send_headers(event.stream_id, OK, end_stream=True)


@asynccontextmanager
async def serving(server: Server | None = None) -> AsyncIterator[tuple[Any, Channel]]:
    server = server or Server()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.tasks.append(asyncio.create_task(server.serve(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.endpoint = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    channel = Channel(server.endpoint)
    try:
        yield server, channel
    finally:
        await channel.close()
        for writer in server.writers:
            writer.close()
        listening.close()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)


def call(channel: Channel, data: bytes = b"hello", **words: Any) -> Any:
    return channel.unary_unary("/call", bytes, bytes)(data, **words)
