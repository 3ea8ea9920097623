"""A pipeline: one connection on which many statements are under way at once, each a transaction of its own.

1. Statements travel in order and are answered in order, and no caller waits for the answer to another before
   sending. So what is sent later on a pipeline certainly happens later.
2. *A caller that stops waiting changes nothing*: no statement is cancelled at the server.
3. An answer that does not come in time ends the pipeline, and then nothing on it is waited for any more.
4. When a pipeline ends, what was sent on it and not answered is in doubt.
5. A warning puts the answers in doubt: that is how the server says that it gave up waiting for a standby and
   committed nevertheless. It ends the pipeline.
6. Statements are prepared once, unless a pooler may run each elsewhere: then nothing outlives a statement.
7. Before the first statement the server's facts are read (see `server`).
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.errors import Diagnostic
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

from fencehold.drivers.postgres.address import PostgresAddress
from fencehold.drivers.postgres.failures import Rejected, first_line, is_denied, is_lost, refusal, unreached
from fencehold.drivers.postgres.server import FACTS, ServerFacts, facts_in
from fencehold.errors import OutcomeUnknown, PermissionDenied, Unavailable

Row = tuple[bytes | None, ...]
Param = str | int | float | bool

_FINE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_UNPREPARED = ("0A", "26", "3F", "42")
"""Begin the codes of errors after which everything is prepared anew."""


class _Request(NamedTuple):
    answer: "asyncio.Future[list[Row]]"
    until: float


class Pipeline:
    """Belongs to the event loop it was made on. Made from a connection on which nothing is under way."""

    def __init__(self, connection: AsyncConnection[Any], where: object, answer_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._pgconn = connection.pgconn
        self._where = where
        self._answer_s = answer_s
        self._requests: deque[_Request] = deque()
        self._result: PGresult | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_writing = False
        self._warning = ""
        self.on_notify: Callable[[str], None] = _nothing
        """Called with what a notification carries."""
        self.on_end: Callable[[str], None] = _nothing
        """Called once, when the pipeline ends, with the reason."""
        self.prepares = False
        """Whether what is prepared stays there."""
        self._prepared: dict[bytes, bytes] = {}
        self._numbers = itertools.count()
        self.ended = asyncio.Event()
        self.why = ""
        connection.add_notice_handler(self._on_notice)
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._fd = self._pgconn.socket
        self._loop.add_reader(self._fd, self._on_readable)

    @property
    def load(self) -> int:
        """How many statements are under way."""
        return len(self._requests)

    def ask(self, statement: bytes, *params: Param) -> "asyncio.Future[list[Row]]":
        """Send a statement; its rows are awaited.

        Raises:
            Unavailable: the pipeline has ended; certainly nothing happened.

        The future raises:
            Rejected: the server refused it; certainly nothing happened.
            OutcomeUnknown: it may have happened, and may yet.
        """
        if self.ended.is_set():
            raise Unavailable(f"{self._where}: the connection is lost: {self.why}")
        request = _Request(self._loop.create_future(), self._loop.time() + self._answer_s)
        self._requests.append(request)
        if self._timer is None:
            self._timer = self._loop.call_at(request.until, self._check_time)
        try:
            self._send(statement, [_encoded(param) for param in params])
            self._pgconn.pipeline_sync()
            self._flush()
        except psycopg.Error as error:
            self.end(first_line(error))
        return request.answer

    def end(self, why: str) -> None:
        """Disconnect."""
        if self.ended.is_set():
            return
        self.why = self._warning or why
        self.ended.set()
        self._loop.remove_reader(self._fd)
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        if self._timer is not None:
            self._timer.cancel()
        with suppress(psycopg.Error):
            self._pgconn.finish()
        while self._requests:
            answer = self._requests.popleft().answer
            if not answer.done():
                answer.set_exception(OutcomeUnknown(f"{self._where}: the answer was lost: {self.why}"))
                # Perhaps no caller waits for it any more.
                answer.exception()
        self.on_end(self.why)

    def _send(self, statement: bytes, params: Sequence[bytes]) -> None:
        if not self.prepares or not params:
            self._pgconn.send_query_params(statement, params)
            return
        name = self._prepared.get(statement)
        if name is None:
            name = self._prepared[statement] = b"fencehold%d" % next(self._numbers)
            self._pgconn.send_prepare(name, statement)
        self._pgconn.send_query_prepared(name, params)

    def _check_time(self) -> None:
        self._timer = None
        if self._requests and self._requests[0].until > self._loop.time():
            self._timer = self._loop.call_at(self._requests[0].until, self._check_time)
        elif self._requests:
            self.end(f"no answer in {self._answer_s:g} s")

    def _flush(self) -> None:
        is_writing = self._pgconn.flush() != 0
        if is_writing and not self._is_writing:
            self._loop.add_writer(self._fd, self._on_writable)
        elif self._is_writing and not is_writing:
            self._loop.remove_writer(self._fd)
        self._is_writing = is_writing

    def _on_writable(self) -> None:
        try:
            self._flush()
        except psycopg.Error as error:
            self.end(first_line(error))

    def _on_readable(self) -> None:
        try:
            self._pgconn.consume_input()
            self._take_results()
            while (notification := self._pgconn.notifies()) is not None:
                self.on_notify(notification.extra.decode())
                if self.ended.is_set():
                    return
            if self._is_writing:
                self._flush()
        except psycopg.Error as error:
            self.end(first_line(error))
            return
        if self._pgconn.status == ConnStatus.BAD:
            self.end("the server ended the connection")

    def _take_results(self) -> None:
        while self._requests and self._pgconn.status != ConnStatus.BAD and not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                continue
            if result.status == ExecStatus.PIPELINE_SYNC:
                self._answer()
            elif self._result is None or self._result.status in _FINE:
                # Of what goes together the first error is the one that says why.
                self._result = result

    def _answer(self) -> None:
        result, self._result = self._result, None
        if self._warning or result is None:
            self.end("an answer was in doubt")
            return
        request = self._requests.popleft()
        if not self._requests and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if request.answer.done():
            return
        if result.status in _FINE:
            request.answer.set_result(_rows(result))
        else:
            request.answer.set_exception(self._error_of(result))
            request.answer.exception()

    def _error_of(self, result: PGresult) -> Exception:
        code = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        said = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message
        words = said.decode(errors="replace").strip()
        if code.startswith(_UNPREPARED):
            # That may have failed itself, or what it is about is another table since.
            self._prepared.clear()
        return OutcomeUnknown(f"{self._where}: {words}") if is_lost(code) else Rejected(code, words)

    def _on_notice(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized not in ("NOTICE", "INFO", "LOG", "DEBUG"):
            self._warning = notice.message_primary or "the server warned"


def _rows(result: PGresult) -> list[Row]:
    columns = range(result.nfields)
    return [tuple(result.get_value(row, column) for column in columns) for row in range(result.ntuples)]


def _encoded(param: Param) -> bytes:
    if isinstance(param, bool):
        return b"t" if param else b"f"
    return str(param).encode()


def _nothing(_: str) -> None:
    pass


_QUESTION = f"SELECT {FACTS}".encode()


class OpenedPipeline(NamedTuple):
    """A pipeline, and what is at its other end."""

    pipeline: Pipeline
    facts: ServerFacts
    is_pooled: bool
    """Whether a pooler is in between."""


async def open_pipeline(address: PostgresAddress, connect_s: float, answer_s: float) -> OpenedPipeline:
    """Connect; the caller ends the pipeline.

    Raises:
        Unavailable: no server answers, or it is a standby.
        PermissionDenied: it refuses the login.
        Unsupported: it is too old.
    """
    until = asyncio.get_running_loop().time() + connect_s
    try:
        async with asyncio.timeout_at(until):
            connection = await AsyncConnection.connect(autocommit=True, **address.params)
    except TimeoutError as error:
        raise Unavailable(f"{address}: no answer in {connect_s:g} s") from error
    except (psycopg.Error, OSError) as error:
        left_s = until - asyncio.get_running_loop().time()
        denied = await is_denied(error, address.params, left_s)
        raise unreached(error, address, PermissionDenied if denied else None) from error
    shown_pid = connection.pgconn.backend_pid
    pipeline = Pipeline(connection, address, min(connect_s, answer_s))
    try:
        (row,) = await ask_safely(pipeline, address, _QUESTION)
        facts = facts_in(row)
        facts.check(address)
        is_pooled = facts.pid != shown_pid
        pipeline.prepares = not is_pooled and address.options.get("pooler") != "transaction"
        return OpenedPipeline(pipeline, facts, is_pooled)
    except BaseException:
        pipeline.end("it was not wanted")
        raise


async def ask_safely(pipeline: Pipeline, where: object, statement: bytes) -> list[Row]:
    """What a statement gives that does no harm if it is done, or done twice.

    Raises:
        Unavailable, PermissionDenied: it was not done, or it does not matter that it was.
    """
    try:
        return await pipeline.ask(statement)
    except Rejected as error:
        raise refusal(error, where) from error
    except OutcomeUnknown as error:
        raise Unavailable(str(error)) from error
