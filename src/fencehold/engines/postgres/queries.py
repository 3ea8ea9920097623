"""All statements but appends: reads, and writes that are idempotent.

1. A statement whose reply was lost is sent once more, over a new connection, within the same time.
2. It goes on when its caller is cancelled, and ends within its time: cancelling a statement does not undo it.
3. The tables are made in one transaction, or none, by the node that comes first. No superuser is needed: a user
   that may not make a schema is told what to have made. Tables that are there are never touched: a row that is
   missing from them is damage, not a new journal.
4. A page of entries is those that follow, as many as fit: never a gap, never one twice. What is missing at the
   front was trimmed, and is reported so; anything else that is missing is damage.
5. An entry that was handed out is there under the same epoch until it is trimmed. If it is not, a server took over
   that never had it: going on would make two journals of one.
6. How full a database may get is known only where the URL says so (`room_bytes=`): no server reports what its disk
   has left. Tables never shrink by themselves, but what is deleted from them is room that is used again; so of our
   own tables what they hold counts, and of all others how large they are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from fencehold.drivers.postgres.connection import Row, SerialConnection
from fencehold.drivers.postgres.failures import Rejected, ReplyLost
from fencehold.engines.postgres.address import PostgresJournalAddress
from fencehold.engines.postgres.statements import FORMAT, Statements
from fencehold.errors import Damaged, FenceholdError, Overloaded, Trimmed, Unavailable, UsageError
from fencehold.journal.port import Record
from fencehold.journal.room import Room
from fencehold.types import Epoch, Position

T = TypeVar("T")

_DAMAGE = ("XX001", "XX002")
_READ_ONLY = "25006"
_DENIED = "42501"
_FULL = "53100"
_FULL_RETRY_S = 1.0
"""How soon to try again when the server's disk is full: an operator has to make room."""
_ROWS_MAX = 1_000
_BYTES_MAX = 4 << 20
"""A page holds no further entry once it holds so much."""
_WHAT = "the database"
_UNKNOWN = Room(_WHAT, note="no server reports what its disk has left: see room_bytes=")
_BLOAT = 1.25
"""What our tables hold takes so much more room in them: heads of rows and pages, indexes, what is not swept."""


class Unanswered(Unavailable):
    """No reply came, though it was sent: fine for a caller that only reads, or may do a thing twice."""


def refusal(error: Rejected, where: object) -> FenceholdError:
    """What a server's refusal means to a journal: certainly nothing happened."""
    said = f"{where}: Postgres said: {error.message} ({error.sqlstate})"
    if error.sqlstate in _DAMAGE:
        return Damaged(f"{said}; restore the database from a copy")
    if error.sqlstate == _DENIED:
        return UsageError(f"{said}; the tables must belong to the user in the URL, or be granted to it")
    if error.sqlstate == _READ_ONLY:
        return Unavailable(f"{said}; name the server that takes writes in the URL")
    if error.sqlstate == _FULL:
        return Overloaded(f"{said}; make room on its disk", retry_after_s=_FULL_RETRY_S)
    return Unavailable(said)


class ShieldedTasks:
    """All statements of one open journal that are in flight, and that are not cancelled with their callers."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: "Coroutine[Any, Any, T]") -> "asyncio.Future[T]":
        """Start it at once. Cancelling what this returns does not cancel the work."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)

    async def end(self, seconds: float | None = None) -> None:
        """Wait until all of it has ended, or so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


class JournalState(NamedTuple):
    """Where a journal is."""

    epoch: Epoch
    trimmed: Position
    end: Position
    epoch_at: Epoch | None
    """Of the entry at the position asked for; None if there is none."""


class Queries:
    """A connection for statements that hold up no append."""

    def __init__(
        self, connection: SerialConnection, statements: Statements, tasks: ShieldedTasks, *, timeout_s: float
    ) -> None:
        self.statements = statements
        self._connection = connection
        self._tasks = tasks
        self._timeout_s = timeout_s

    async def ask(self, statement: str, *params: int | bytes) -> list[Row]:
        """What a statement gives.

        Raises:
            Unanswered: it may have been carried out.
            Unavailable, UsageError, Damaged: certainly nothing happened.
        """
        return await self._tasks.begin(
            self._twice(lambda until: self._connection.ask(statement, *params, until=until))
        )

    async def run(self, script: str) -> None:
        """Run a script. Raises as `ask`."""
        await self._tasks.begin(self._twice(lambda until: self._connection.run(script, until=until)))

    def begin(self, statement: str, *params: int | bytes) -> None:
        """Have a statement carried out if that is possible; no caller waits for it."""

        async def quietly() -> None:
            with suppress(FenceholdError):
                await self._twice(lambda until: self._connection.ask(statement, *params, until=until))

        self._tasks.begin(quietly())

    async def state(self, position: int = 0) -> JournalState:
        """Where the journal is, and what is at a position. Raises as `ask`."""
        rows = await self.ask(self.statements.state, position)
        if not rows:
            raise Damaged("the row of the journal is gone: its tables were emptied; restore them from a copy")
        version, *rest = rows[0]
        if version != FORMAT:
            raise Damaged(
                f"the tables are of format {version}, but only {FORMAT} is known here: "
                "run the program that made them"
            )
        return JournalState(*rest)

    async def _twice(self, call: Callable[[float], Awaitable[T]]) -> T:
        until = asyncio.get_running_loop().time() + self._timeout_s
        try:
            return await call(until)
        except ReplyLost:
            return await self._again(call, until)

    async def _again(self, call: Callable[[float], Awaitable[T]], until: float) -> T:
        try:
            return await call(until)
        except (ReplyLost, FenceholdError) as error:
            raise Unanswered(str(error)) from error


async def make_tables(queries: Queries, address: PostgresJournalAddress) -> None:
    """Make the schema and the tables that are not there.

    Raises:
        UsageError: the user in the URL may not.
        Unavailable: no server answers; calling again is safe.
    """
    statements = queries.statements
    ((has_tables, has_schema),) = await queries.ask(statements.has_tables)
    if has_tables:
        return
    schema = "" if has_schema else statements.create_schema
    try:
        await queries.run(statements.lock_creation + schema + statements.create_tables)
    except UsageError as error:
        raise UsageError(
            f"{error}; to have the tables made, run as an administrator: GRANT CREATE ON DATABASE … TO …, or "
            f"CREATE SCHEMA {address.schema} AUTHORIZATION …"
        ) from error


class EntryCursor:
    """A place in the journal."""

    def __init__(self, queries: Queries, after: Position) -> None:
        self.position = after
        self._queries = queries
        self._epoch: Epoch | None = None
        """Of the entry at `position`, if it was handed out here."""

    async def end(self) -> Position:
        """Where the journal ends now.

        Raises:
            Trimmed: what follows is gone.
            Damaged: what was handed out is not there any more.
            Unavailable: no server answers.
        """
        state = await self._queries.state(self.position)
        if state.trimmed > self.position:
            raise Trimmed(f"entries up to {state.trimmed} were trimmed, {self.position + 1} with them")
        if self._epoch is not None and state.trimmed < self.position and state.epoch_at != self._epoch:
            raise Damaged(
                f"the entry at {self.position} was read before, and is not there now: the server that answers is "
                "one that never had it; have the right one take over"
            )
        return state.end

    async def page(self) -> list[Record]:
        """The entries that follow, at least one. Call it only if the end is after `position`. Raises as `end`."""
        rows = await self._queries.ask(self._queries.statements.page, self.position, _ROWS_MAX, _BYTES_MAX)
        records = [Record(*row) for row in rows]
        following = range(self.position + 1, self.position + 1 + len(rows))
        if not records or [record.position for record in records] != list(following):
            await self.end()
            raise Damaged(f"entries after {self.position} are missing; restore the tables from a copy")
        self.position, self._epoch, _ = records[-1]
        return records


async def read_room(queries: Queries, address: PostgresJournalAddress, within_s: float) -> Room:
    """As the port says."""
    if address.room_bytes is None:
        return _UNKNOWN
    try:
        async with asyncio.timeout(within_s):
            ((others, ours),) = await queries.ask(queries.statements.room)
    except (FenceholdError, TimeoutError):
        return Room(_WHAT, note="the server does not say how large the database is")
    return Room(_WHAT, int(others) + int(ours * _BLOAT), address.room_bytes)
