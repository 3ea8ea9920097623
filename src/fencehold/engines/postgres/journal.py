"""The port, kept by Postgres; and which connection does what.

1. Three connections: one appends and leads, one reads, saves and trims, one is for the tails. So no append waits
   behind a snapshot or a reader.
2. Cancelling a call does not undo it: a statement that was sent goes on, and the next call waits for its end.
3. Tails poll every 50 ms, or when this handle has appended. They are not notified by the server: a server lets
   only one transaction that uses NOTIFY commit at a time. Beside four applications that use it, an append with
   NOTIFY took about twice as long as one without: 8.6 ms against 3.8, 16.4 against 7.5, 17.2 against 9.7, in three
   runs on two busy cores. Without them it made no difference that could be seen.
4. `close` lets appends under way end, which they do within their time; then disconnects.
5. What a server that replaces another must have, its operator must ensure: synchronous standbys. Two servers that
   both take writes for one journal are two journals.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Self

from psycopg import AsyncConnection

from fencehold.drivers.postgres.connection import Host, SerialConnection, shown
from fencehold.drivers.postgres.survey import survey
from fencehold.engines.postgres import snapshots
from fencehold.engines.postgres.address import PostgresJournalAddress, greet
from fencehold.engines.postgres.appender import Appender
from fencehold.engines.postgres.queries import EntryCursor, Queries, ShieldedTasks, make_tables, read_room, refusal
from fencehold.engines.postgres.statements import statements_on
from fencehold.errors import NotAdmitted, Unavailable, UsageError
from fencehold.journal.health import EngineMember, Health
from fencehold.journal.port import Declared, Opened, Record
from fencehold.journal.room import Room
from fencehold.runtime.faults import NO_FAULTS, Faults
from fencehold.types import Epoch, Position

_SERVERS_SHARE = 0.8
"""Of the time an append has, so much is the server's: it gives up first, and then the entry is certainly absent.
"""


class PostgresBounds(NamedTuple):
    """How long things may take, in seconds."""

    append_s: float = 1.5
    """One append, or one taking of an epoch, with all that is done to settle it."""
    side_s: float = 5.0
    """One statement that is no append; and how long a tail keeps trying while no server answers."""
    look_s: float = 0.05
    """How often a tail looks for news."""
    close_look_s: float = 0.005
    """How often one does that is wanted close."""


class PostgresJournal:
    """A journal in a schema of a database, for any number of handles."""

    def __init__(
        self, address: PostgresJournalAddress, *, bounds: PostgresBounds | None = None, faults: Faults = NO_FAULTS
    ) -> None:
        self.declared = Declared(engine="postgres", durable="fsync" not in address.unsafe, shared=True)
        self._address = address
        self._bounds = bounds or PostgresBounds()
        self._faults = faults
        self._running: _Running | None = None
        self._closely = False

    @classmethod
    def from_url(cls, url: str, shard: int = 0) -> Self:
        """The journal that a URL names; `address` says how. Each shard but the first has a schema of its own.

        Raises:
            UsageError: it names none; the message says what to write instead.
        """
        address = PostgresJournalAddress.parse(url)
        return cls(address.of_shard(shard) if shard else address)

    def __repr__(self) -> str:
        return f"PostgresJournal({self._address})"

    async def open(self) -> Opened:
        if self._running is not None:
            raise UsageError(f"{self._address}: this journal is open already")
        running = _Running(self._address, self._bounds, self._faults)
        try:
            await make_tables(running.queries, self._address)
            opened = await snapshots.open_journal(running.queries)
        except BaseException:
            await running.end()
            raise
        self._running = running
        running.follow_closely(self._closely)
        return opened

    async def read(self, after: Position) -> AsyncIterator[Record]:
        cursor = EntryCursor(self._opened().queries, after)
        end = await cursor.end()
        while cursor.position < end:
            for record in await cursor.page():
                if record.position <= end:
                    yield record

    async def tail(self, after: Position) -> AsyncIterator[Record]:
        running = self._opened()
        cursor = EntryCursor(running.tails, after)
        while self._running is running:
            for record in await running.following(cursor):
                yield record

    def follow_closely(self, wanted: bool) -> None:
        self._closely = wanted
        if self._running is not None:
            self._running.follow_closely(wanted)

    async def lead(self, known: Epoch | None = None) -> Epoch:
        running = self._opened()
        return await running.tasks.begin(running.appender.lead(known))

    async def append(self, entry: bytes, *, epoch: Epoch, position: Position) -> None:
        running = self._opened()
        if not 0 < len(entry) <= self.declared.entry_bytes_max:
            raise UsageError(f"an entry has 1 to {self.declared.entry_bytes_max} bytes, not {len(entry)}")
        await running.tasks.begin(running.append(entry, epoch, position))

    async def save(self, position: Position, chunks: Iterable[bytes]) -> None:
        await snapshots.save(self._opened().queries, position, chunks)

    async def seed(self, position: Position, chunks: Iterable[bytes]) -> None:
        await snapshots.seed(self._opened().queries, position, chunks)

    async def trim(self, *, urgent: bool = False) -> None:
        await snapshots.trim(self._opened().queries)

    async def health(self, within_s: float) -> Health:
        return Health(
            members=tuple(EngineMember(*server) for server in await survey(self._address.hosts, within_s))
        )

    async def room(self, within_s: float) -> Room:
        running = self._running
        if running is None:
            return Room("the database")
        return await read_room(running.tails, self._address, within_s)

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.end()

    def _opened(self) -> "_Running":
        if self._running is None:
            raise Unavailable(f"{self._address}: this journal is not open: open it first")
        return self._running


def connection_to(address: PostgresJournalAddress, statement_timeout_s: float) -> SerialConnection:
    """A connection for statements of a journal, each of which may take so long at the server."""

    async def greeted(connection: AsyncConnection[Any], host: Host) -> None:
        await greet(connection, address, statement_timeout_s, shown(host))

    return SerialConnection(
        address.hosts,
        address,
        greet=greeted,
        refusal=lambda error: refusal(error, address),
        denied=NotAdmitted,
    )


class _Running:
    """What an open journal has and a closed one has not: connections, and the tails that wait for more."""

    def __init__(self, address: PostgresJournalAddress, bounds: PostgresBounds, faults: Faults) -> None:
        statements = statements_on(address.schema)
        writer = connection_to(address, bounds.append_s * _SERVERS_SHARE)
        side = connection_to(address, bounds.side_s)
        tails = connection_to(address, bounds.side_s)
        self.tasks = ShieldedTasks()
        self.appender = Appender(writer, statements, timeout_s=bounds.append_s, faults=faults)
        self.queries = Queries(side, statements, self.tasks, timeout_s=bounds.side_s)
        self.tails = Queries(tails, statements, self.tasks, timeout_s=bounds.side_s)
        self._connections = (writer, side, tails)
        self._bounds = bounds
        self._news = asyncio.Event()
        self._ended = False
        self._look_s = bounds.look_s

    def follow_closely(self, wanted: bool) -> None:
        self._look_s = self._bounds.close_look_s if wanted else self._bounds.look_s
        if wanted:
            self._wake()

    async def append(self, entry: bytes, epoch: Epoch, position: Position) -> None:
        await self.appender.append(entry, epoch, position)
        self._wake()

    async def following(self, cursor: EntryCursor) -> list[Record]:
        """The entries after a place, when there are some; none when the journal was closed.

        Raises:
            Unavailable: no server answered for so long.
        """
        give_up_at = self._now() + self._bounds.side_s
        while not self._has_ended():
            news = self._news
            try:
                if cursor.position < await cursor.end():
                    return await cursor.page()
            except Unavailable:
                if self._now() >= give_up_at and not self._has_ended():
                    raise
            else:
                give_up_at = self._now() + self._bounds.side_s
            await self._hear(news)
        return []

    async def end(self) -> None:
        """Let appends under way end, then disconnect."""
        self._ended = True
        self._wake()
        await self.tasks.end(self._bounds.append_s)
        for connection in self._connections:
            connection.cut()
        await self.tasks.end()
        for connection in self._connections:
            await connection.end()

    async def _hear(self, news: asyncio.Event) -> None:
        """Wait until something was appended here since `news` was taken, or it is time to look."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._look_s):
                await news.wait()

    def _has_ended(self) -> bool:
        return self._ended

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
