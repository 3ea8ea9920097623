"""What the tests of this engine share: the server, journals on it, and a valve between the two."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, LiteralString

from psycopg import AsyncConnection

from fencehold.engines.postgres import PostgresBounds, PostgresJournal
from fencehold.engines.postgres.address import PostgresJournalAddress
from tests.contract.engines.postgres import BOUNDS, server

SHORT = PostgresBounds(append_s=0.5, side_s=1.0)
"""For tests in which time is to run out."""
LONG = PostgresBounds(append_s=20.0, side_s=20.0)
"""For tests in which statements wait for one another, and time is not to run out."""


def journal_at(schema: str, *, bounds: PostgresBounds = BOUNDS, **where: str) -> PostgresJournal:
    """A handle on the journal there, not opened yet."""
    return PostgresJournal(PostgresJournalAddress.parse(server().url(schema, **where)), bounds=bounds)


@asynccontextmanager
async def another(schema: str) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection of somebody else to the tables of a journal, in a transaction."""
    url = server().url(schema, user="owner").partition("?")[0]
    async with await AsyncConnection.connect(url, options=f"-c search_path={schema}") as connection:
        yield connection


async def until_so(schema: str, question: LiteralString) -> None:
    """Wait until the server says yes to a question; the test's own bound ends it."""
    async with another(schema) as asking:
        await asking.set_autocommit(True)
        # The server has no event to wait for.
        while not (await (await asking.execute(question)).fetchone() or [False])[0]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Valve:
    """Stands between a journal and the server. Lets everything through but what it is told to lose or to hold."""

    def __init__(self) -> None:
        self.address = ""
        self.loses_reply = self.holds_request = False
        self.connections = 0
        self.held = asyncio.Event()
        """Set when a request was held back."""
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Valve":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        for writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def release(self) -> None:
        """Let the request through that was held, on the connection it came on, whose client is long gone."""
        for writer, data in self._held:
            writer.write(data)
            await writer.drain()
        self._held.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        behind, server_writer = await asyncio.open_connection("127.0.0.1", server().port)
        self._writers += [writer, server_writer]
        with suppress(OSError):
            await asyncio.gather(self._requests(reader, writer, server_writer), self._replies(behind, writer))

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, onward: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(1 << 16):
            if self.holds_request:
                self.holds_request = False
                self._held.append((onward, data))
                self.held.set()
                writer.close()
                return
            onward.write(data)
        if not any(held is onward for held, _ in self._held):
            onward.close()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self.loses_reply:
                self.loses_reply = False
                writer.close()
                return
            if not writer.is_closing():
                writer.write(data)
        writer.close()
