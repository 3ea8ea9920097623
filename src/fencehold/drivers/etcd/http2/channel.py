"""Calls to one member, with the verbs that services use; connected when needed, and anew when it broke.

A call that finds no connection waits for one, all of them for the same; until it is there, nothing was sent.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from fencehold.drivers.etcd.http2 import connection
from fencehold.drivers.etcd.http2.connection import Http2Connection, KeepAlivePace
from fencehold.drivers.etcd.http2.conversation import Stream
from fencehold.drivers.etcd.http2.status import CallFailed, Status, failed
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import Metadata, request_block

_CONNECT_S = 5.0
"""A connection, from its first packet to the first byte from the peer."""


class Channel:
    """Connections to one endpoint, one at a time. Belongs to the event loop that first calls."""

    def __init__(self, endpoint: str, context: ssl.SSLContext | None = None) -> None:
        """`endpoint` is `host:port`; a host that is an IPv6 address is in brackets."""
        host, _, port = endpoint.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._endpoint = endpoint
        self._context = context
        self._scheme = "http" if context is None else "https"
        self._line: Http2Connection | None = None
        self._ending: set[Http2Connection] = set()
        """Connections that take no new calls, with calls in flight."""
        self._connecting: asyncio.Task[Http2Connection] | None = None
        self._is_closed = False
        self._pace = KeepAlivePace()

    def unary_unary(
        self, path: str, request_serializer: Callable[[Any], bytes], response_deserializer: Any
    ) -> Callable[..., Awaitable[Any]]:
        """One request, one answer."""

        async def call(request: Any, *, timeout: float | None = None, metadata: Metadata = ()) -> Any:  # noqa: ASYNC109
            data, block = request_serializer(request), self.block(path, timeout, metadata)
            line = self._line
            if line is None or not line.is_open:
                until = deadline(timeout)
                line = await self.connected(until)
                timeout = left(until)
                if timeout == 0:
                    raise CallFailed(Code.DEADLINE_EXCEEDED, "the deadline has passed", is_sent=False)
            return response_deserializer(await line.ask(block, data, timeout))

        return call

    def begin_unary(
        self,
        path: str,
        data: bytes,
        *,
        timeout_s: float,
        metadata: Metadata,
        told: Callable[[bytes | CallFailed], None],
    ) -> bool:
        """One request and one answer, without a task: `told` is called once, later, with its outcome. False: there
        is no connection at the moment, and nothing was sent."""
        line = self._line
        if line is None or not line.is_open:
            return False
        line.ask_then(self.block(path, timeout_s, metadata), data, timeout_s, told)
        return True

    def stream_stream(
        self, path: str, request_serializer: Callable[[Any], bytes], response_deserializer: Any
    ) -> Callable[..., "Talk"]:
        """Requests and answers, as they come."""

        def call(*, timeout: float | None = None, metadata: Metadata = ()) -> Talk:
            block = self.block(path, timeout, metadata)
            return Talk(self, block, request_serializer, response_deserializer, deadline(timeout))

        return call

    async def close(self) -> None:
        """Disconnect. Calls in flight fail."""
        self._is_closed = True
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait({connecting})
        lines = self._ending | ({self._line} if self._line is not None else set())
        self._line, self._ending = None, set()
        await asyncio.gather(*(line.close() for line in lines))

    def block(self, path: str, timeout_s: float | None, metadata: Metadata) -> bytes:
        """The headers of a call."""
        timeout_ms = 0 if timeout_s is None else max(1, round(timeout_s * 1000))
        return request_block(self._scheme, self._endpoint, path, timeout_ms, tuple(metadata))

    async def connected(self, until: float | None) -> Http2Connection:
        """A connection that calls may begin on.

        Raises:
            CallFailed: there is none; nothing was sent.
        """
        if self._is_closed:
            raise CallFailed(Code.CANCELLED, "closed here", is_sent=False)
        if self._line is not None and self._line.is_open:
            return self._line
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._on_connected)
        connecting = self._connecting
        await asyncio.wait({connecting}, timeout=left(until))
        if not connecting.done():
            raise CallFailed(Code.DEADLINE_EXCEEDED, f"{self._endpoint}: no answer", is_sent=False)
        if connecting.cancelled():
            raise CallFailed(Code.CANCELLED, "closed here", is_sent=False)
        line = connecting.result()
        if not line.is_open:
            raise CallFailed(Code.UNAVAILABLE, f"{self._endpoint}: it hung up", is_sent=False)
        return line

    async def _connect(self) -> Http2Connection:
        loop = asyncio.get_running_loop()
        named = {} if self._context is None else {"ssl": self._context, "server_hostname": self._host}
        line = None
        try:
            async with asyncio.timeout(_CONNECT_S):
                sock = await connection.connect(self._host, self._port)
                _, line = await loop.create_connection(lambda: Http2Connection(self._pace), sock=sock, **named)  # type: ignore[call-overload]
                await line.greeted()
                return line  # type: ignore[no-any-return]
        except (OSError, UnicodeError, CallFailed, asyncio.CancelledError) as error:
            if line is not None:
                await line.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise CallFailed(Code.UNAVAILABLE, f"{self._endpoint}: {_why(error)}", is_sent=False) from error

    def _on_connected(self, task: "asyncio.Task[Http2Connection]") -> None:
        if self._connecting is task:
            self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._ending = {line for line in (*self._ending, self._line) if line is not None and not line.is_over}
            self._line = task.result()


class Talk:
    """A call of many requests and answers. One task reads at a time."""

    def __init__(self, channel: Channel, block: bytes, write: Any, read: Any, until: float | None) -> None:
        self._channel = channel
        self._block = block
        self._serialize = write
        self._deserialize = read
        self._until = until
        self._line: Http2Connection | None = None
        self._stream: Stream | None = None
        self._heard_before = 0
        """What the connection had received when something was last sent."""
        self._beginning = asyncio.Lock()
        self._heard: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._status: Status | None = None

    @property
    def is_at_rest(self) -> bool:
        """Whether more may be sent in it, and all was read that came."""
        return self._status is None and not self._heard and (self._line is None or self._line.is_open)

    async def exchange(self, request: Any, timeout_s: float) -> Any:
        """Send a message, and read the reply; None when it is over.

        Raises:
            CallFailed: it broke, or its time is up. What comes later will not be read.
        """
        self._until = deadline(timeout_s)
        await self.write(request)
        return await self.read()

    async def write(self, request: Any) -> None:
        """Send a message; it is in flight when this returns.

        Raises:
            CallFailed: it ended.
        """
        data = self._serialize(request)
        line, stream = await self._begun()
        if self._status is not None:
            raise failed(self._status)
        self._heard_before = line.heard
        line.send(stream, data)

    async def read(self) -> Any:
        """The next message; None when it is over.

        Raises:
            CallFailed: it broke, or its time is up.
        """
        line, stream = await self._begun()
        while not self._heard:
            if self._status is not None:
                if self._status.code is Code.OK:
                    return None
                raise failed(self._status)
            await self._await_news()
        data = self._heard.popleft()
        line.on_read(stream, len(data))
        return self._deserialize(data)

    def cancel(self) -> None:
        """End it from here."""
        if self._status is None:
            self.on_end(Status(Code.CANCELLED, "cancelled here"))
            if self._line is not None and self._stream is not None:
                self._line.cancel(self._stream)

    def on_message(self, data: bytes) -> None:
        self._heard.append(data)
        self._news.set()

    def on_end(self, status: Status) -> None:
        self._status = status
        self._news.set()

    async def _begun(self) -> tuple[Http2Connection, Stream]:
        async with self._beginning:
            if self._line is None or self._stream is None:
                line = await self._channel.connected(self._until)
                if self._status is not None:
                    raise failed(self._status)
                self._line, self._stream = line, line.begin(self._block, self)
        return self._line, self._stream

    async def _await_news(self) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(left(self._until)):
                await self._news.wait()
        except TimeoutError:
            if self._status is None and self._line is not None and self._stream is not None:
                self._line.on_late(self._stream, self._heard_before)
            self._status = Status(Code.DEADLINE_EXCEEDED, "no answer in time")


def deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s


def left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - asyncio.get_running_loop().time())


def _why(error: BaseException) -> str:
    """Why there is no connection."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error}"
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, CallFailed):
        return error.details
    return str(error)
