"""Calls: which method a client calls, what handles it, and when it ends.

1. A call with one request starts once that request is complete: one reset before then costs next to nothing.
2. A call is cancelled by its client, by its deadline, or by the end of its connection; its handler is cancelled as
   a task is, and withdraws what it asked for.
3. Whatever a handler raises is sent as a status: `statuses.refusal_of` says which.
4. The answer to a call that its client had already cancelled is undone: `Call.on_undelivered`.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from fencehold.doors.grpc.http2.connection import GrpcConnection
from fencehold.doors.grpc.http2.heads import DONE, Head, http_block, status_block
from fencehold.doors.grpc.http2.streams import Receiver, Stream
from fencehold.drivers.http2.codes import Code
from fencehold.errors import LimitExceeded, UsageError
from fencehold.gateway.credentials import ANONYMOUS, Credentials, caller, named_by, read_authorization
from fencehold.gateway.holds import Held
from fencehold.gateway.served_client import ServedClient
from fencehold.gateway.upstream import host_of

_LOGINS_MAX = 16
"""The most parsed logins cached for one connection."""
_UNREAD_MAX = 256
"""Unread messages of one stream; beyond this, the call is refused."""


class Method(NamedTuple):
    """One RPC: what it takes, and its handler."""

    read: Callable[[bytes], Any]
    """Reads a request; raises `DecodeError` if it is none."""
    behaviour: Callable[..., Any]
    """Given the request, or an iterator of them, and the `Call`; returns the answer, or an iterator of answers."""
    is_client_streaming: bool
    is_server_streaming: bool


Methods: TypeAlias = Mapping[str, Method]
Refusal: TypeAlias = Callable[[BaseException], tuple[Code, str, tuple[tuple[str, str], ...]]]


class Call:
    """What a handler knows of its call."""

    __slots__ = ("_connection", "_timer", "head", "is_cancelled", "stream", "task", "undelivered")

    def __init__(self, connection: GrpcConnection, stream: Stream, head: Head) -> None:
        self._connection = connection
        self.stream = stream
        self.head = head
        self.task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_cancelled = False
        """Whether no caller waits for the answer any more."""
        self.undelivered: Callable[[], None] | None = None

    @property
    def peer(self) -> str:
        """Where the client is: `host:port`."""
        return self._connection.peer

    def metadata(self, key: str) -> str:
        """What the client sent under this key; empty: nothing."""
        return self.head.metadata.get(key, "")

    def credentials(self) -> Credentials:
        """The caller: by the metadata of the call, or else by the certificate of its connection.

        Raises:
            UsageError: its login cannot be read.
        """
        caller.set(host_of(self.peer))
        said = self.head.metadata.get("authorization")
        if not said:
            certificate = self._connection.certificate
            # Read each time: a certificate may have expired since.
            return named_by(certificate) if certificate else ANONYMOUS
        logins = self._connection.logins
        found: Credentials | None = logins.get(said)
        if found is None:
            found = read_authorization(said)
            if len(logins) >= _LOGINS_MAX:
                logins.clear()
            logins[said] = found
        return found

    def on_undelivered(self, take_back: Callable[[], None]) -> None:
        """Have this called if the call fails after all, or turns out to have been cancelled before its answer
        arrived."""
        self.undelivered = take_back


def undo_if_unheard(call: Call, client: ServedClient, held: Held) -> None:
    """Release a hold again if its call is cancelled, or its deadline passes, before the answer is delivered."""
    client.on_answer(held)
    call.on_undelivered(lambda: client.on_unheard(held))


class Calls:
    """All calls of a listener."""

    def __init__(self, methods: Methods, refusal: Refusal, *, calls_max: int, message_bytes_max: int) -> None:
        self._methods = methods
        self._refusal = refusal
        self._calls_max = calls_max
        self._message_bytes_max = message_bytes_max
        self._loop = asyncio.get_running_loop()
        self._under_way: set[asyncio.Task[None]] = set()

    def begin(self, connection: GrpcConnection, stream: Stream, head: Head) -> Receiver | None:
        """A new call; returns the receiver of its requests, or None if it was refused."""
        conversation = connection.conversation
        if head.http_status != 200:
            conversation.answer_http(stream, http_block(head.http_status))
            return None
        method = self._methods.get(head.path)
        if method is None:
            words = f"there is no method {head.path[:200]}"
            conversation.refuse(stream, status_block(Code.UNIMPLEMENTED, words))
        elif head.problem:
            conversation.refuse(stream, status_block(Code.INTERNAL, head.problem))
        elif head.encoding not in ("identity", "gzip"):
            words = f"messages compressed with {head.encoding[:32]!r} are not supported"
            accepted = (("grpc-accept-encoding", "identity,gzip"),)
            conversation.refuse(stream, status_block(Code.UNIMPLEMENTED, words, accepted))
        elif conversation.streams > (left := self._calls_max - len(self._under_way)):
            # No connection has more than is left for all others: a few that hoard calls lock no client out.
            words = f"at most {self._calls_max} calls are in flight here, {max(left, 0)} more of one connection"
            self._refuse(connection, stream, LimitExceeded(words))
        else:
            return _Served(self, connection, stream, head, method)
        return None

    async def close(self) -> None:
        """Cancel what is in flight."""
        for task in tuple(self._under_way):
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)

    def run(self, served: "_Served") -> None:
        """Have a call answered."""
        task = served.task = self._loop.create_task(served.run())
        self._under_way.add(task)

    def on_done(self, task: "asyncio.Task[None]") -> None:
        """A call has been answered, or need not be."""
        self._under_way.discard(task)

    def unpacked(self, data: bytes) -> bytes:
        """A message compressed with gzip.

        Raises:
            LimitExceeded: it is too large unpacked.
            UsageError: it is not gzip.
        """
        try:
            unpacking = zlib.decompressobj(wbits=31)
            plain = unpacking.decompress(data, self._message_bytes_max + 1)
        except zlib.error:
            raise UsageError("a message that says it is gzip, and is not") from None
        if len(plain) > self._message_bytes_max:
            raise LimitExceeded(f"a message has at most {self._message_bytes_max} bytes, unpacked")
        return plain

    def _refuse(self, connection: GrpcConnection, stream: Stream, error: BaseException) -> None:
        code, words, more = self._refusal(error)
        connection.conversation.refuse(stream, status_block(code, words, more))

    def failed(self, connection: GrpcConnection, stream: Stream, error: BaseException) -> None:
        """Send what a handler raised."""
        self._refuse(connection, stream, error)
        connection.flush_soon()


class _Served(Call):
    """A call in flight: it receives what the client sends, and is what its handler sees of it."""

    __slots__ = ("_calls", "_method", "_request", "_requests", "_room", "is_one_request")

    def __init__(
        self, calls: Calls, connection: GrpcConnection, stream: Stream, head: Head, method: Method
    ) -> None:
        super().__init__(connection, stream, head)
        self._calls = calls
        self._method = method
        self.is_one_request = not method.is_client_streaming
        self._room: asyncio.Future[None] | None = None
        self._request: tuple[bytes, bool] | None = None
        """Its one request."""
        self._requests: _Requests | None = None
        """Or those that arrive in a stream."""
        if head.timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(head.timeout_s, self._on_late)
        if method.is_client_streaming:
            self._requests = _Requests(self)
            calls.run(self)

    # Called by the conversation.

    def on_message(self, data: bytes, is_packed: bool) -> None:
        if self._requests is None:
            if self._request is not None:
                self._turn_down(Code.UNIMPLEMENTED, "one message is taken here, and there was another")
            self._request = data, is_packed
        elif len(self._requests.unread) >= _UNREAD_MAX:
            self._turn_down(Code.RESOURCE_EXHAUSTED, f"more than {_UNREAD_MAX} messages wait to be read")
        else:
            self._requests.add((data, is_packed))

    def on_whole(self) -> None:
        if self._requests is not None:
            self._requests.end()
        elif self._request is not None:
            self._calls.run(self)
        else:
            self._over()
            error = UsageError("a request is one message, and there was none")
            self._calls.failed(self._connection, self.stream, error)

    def on_cancelled(self) -> None:
        self.is_cancelled = True
        self._over()
        if self.task is not None:
            # One that has not started yet never runs its own cleanup.
            self.task.add_done_callback(self._calls.on_done)
            self.task.cancel()

    def on_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # The answering.

    async def run(self) -> None:
        """Run the handler, and send its answer."""
        method, connection = self._method, self._connection
        try:
            request = self._requests if self._request is None else self.read(*self._request)
            answered = method.behaviour(request, self)
            if method.is_server_streaming:
                await self._send_all(answered)
            else:
                answer = (await answered).SerializeToString()
                connection.conversation.answer(self.stream, answer, self.undelivered)
        except asyncio.CancelledError:
            self._take_back()
            if not self.is_cancelled:
                # The listener stops.
                words = "this listener stops"
                connection.conversation.refuse(self.stream, status_block(Code.UNAVAILABLE, words))
        except Exception as error:
            self._take_back()
            self._calls.failed(connection, self.stream, error)
        finally:
            self._over()
            if self.task is not None:
                self._calls.on_done(self.task)
        connection.flush_soon()

    def read(self, data: bytes, is_packed: bool) -> Any:
        """A request.

        Raises:
            UsageError: it is not a valid one.
        """
        try:
            return self._method.read(self._calls.unpacked(data) if is_packed else data)
        except DecodeError:
            raise UsageError("the request is not the message that this method takes") from None

    def on_read(self, size: int) -> None:
        """The handler has taken a message."""
        self._connection.conversation.on_read(self.stream, size)
        self._connection.flush_soon()

    async def _send_all(self, answers: Any) -> None:
        connection, stream = self._connection, self.stream
        conversation = connection.conversation
        async with aclosing(answers):
            async for answer in answers:
                conversation.send(stream, answer.SerializeToString())
                connection.flush_soon()
                if conversation.is_full(stream):
                    self._room = asyncio.get_running_loop().create_future()
                    await self._room
        conversation.finish(stream, DONE)

    def _on_late(self) -> None:
        """Its deadline has passed: the client knows that too, and waits no longer."""
        self._turn_down(Code.DEADLINE_EXCEEDED, "the deadline of the call has passed; it was withdrawn")
        self._connection.flush_soon()

    def _turn_down(self, code: Code, words: str) -> None:
        self.stream.receiver = None
        self.on_cancelled()
        self._connection.conversation.refuse(self.stream, status_block(code, words))

    def _take_back(self) -> None:
        """Undo what was granted for an answer that is not sent."""
        undelivered, self.undelivered = self.undelivered, None
        if undelivered is not None:
            undelivered()

    def _over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Requests(AsyncIterator[Any]):
    """What a client sends in a stream, as its handler takes it."""

    __slots__ = ("_is_ended", "_served", "_waiter", "unread")

    def __init__(self, served: _Served) -> None:
        self._served = served
        self.unread: list[tuple[bytes, bool]] = []
        self._is_ended = False
        self._waiter: asyncio.Future[None] | None = None

    def add(self, message: tuple[bytes, bool]) -> None:
        self.unread.append(message)
        self._wake()

    def end(self) -> None:
        self._is_ended = True
        self._wake()

    def __aiter__(self) -> "_Requests":
        return self

    async def __anext__(self) -> Any:
        while not self.unread:
            if self._is_ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data, is_packed = self.unread.pop(0)
        self._served.on_read(len(data))
        return self._served.read(data, is_packed)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
