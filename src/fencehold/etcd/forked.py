"""Calls from a process that was forked after its parent had called.

gRPC's own library keeps threads, and a child of fork has none of them: its calls would never end. So a child
calls by another library, which has none: slower, but the same protocol, stubs and errors. A parent that
has not called yet leaves its children free to use gRPC's own.
"""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from fencehold.etcd.address import Files

Metadata = Sequence[tuple[str, str]]

_called_by: list[int] = []
"""The process that has called by gRPC's own library, if one has."""
_channels: list[Any] = []
"""Channels of gRPC's own that are open. A child keeps them for ever: to close them there would never end."""
_inherited: list[Any] = []


def is_child() -> bool:
    """Whether this process cannot use gRPC's own library."""
    return bool(_called_by) and _called_by[0] != os.getpid()


def on_opened(channel: Any) -> None:
    """A channel of gRPC's own is used here."""
    _called_by[:] = [os.getpid()]
    _channels.append(channel)


def on_closed(channel: Any) -> None:
    """It was closed."""
    if channel in _channels:
        _channels.remove(channel)


def context_of(files: Files | None) -> ssl.SSLContext | None:
    """TLS for a child; None without.

    Raises:
        OSError: a file cannot be read, or holds nothing of the kind.
    """
    if files is None:
        return None
    context = ssl.create_default_context(cafile=files.ca)
    if files.cert is not None:
        context.load_cert_chain(files.cert, files.key)
    context.set_alpn_protocols(["h2"])
    return context


class ChildChannel:
    """A connection to one member, as the generated stubs use one."""

    def __init__(self, endpoint: str, context: ssl.SSLContext | None) -> None:
        from grpclib.client import Channel  # noqa: PLC0415 - not needed by those who do not fork

        host, _, port = endpoint.rpartition(":")
        self._channel = Channel(host.strip("[]"), int(port), ssl=context, codec=_codec())

    def unary_unary(
        self, path: str, request_serializer: Callable[[Any], bytes], response_deserializer: Any, **_: object
    ) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, *, timeout: Any = None, metadata: Metadata = ()) -> Any:  # noqa: ASYNC109
            stream = self._stream(path, request_serializer, response_deserializer, timeout, metadata)
            try:
                await stream.write(request, is_last=True)
                answer = await stream.read()
                if answer is grpc.aio.EOF:
                    raise _failed(grpc.StatusCode.UNAVAILABLE, "Socket closed")
                return answer
            finally:
                stream.cancel()

        return call

    def stream_stream(
        self, path: str, request_serializer: Callable[[Any], bytes], response_deserializer: Any, **_: object
    ) -> Callable[..., "_Stream"]:
        def call(*, timeout: float | None = None, metadata: Metadata = ()) -> _Stream:
            return self._stream(path, request_serializer, response_deserializer, timeout, metadata)

        return call

    unary_stream = stream_stream
    """Made by the stubs, and not used."""

    async def close(self) -> None:
        self._channel.close()

    def _stream(self, path: str, write: Any, read: Any, timeout: float | None, metadata: Metadata) -> "_Stream":
        return _Stream(self._channel, path, write, read, timeout, metadata)


class _Stream:
    """One call, with the verbs of a stream of gRPC's own."""

    def __init__(
        self, channel: Any, path: str, write: Any, read: Any, timeout: float | None, metadata: Metadata
    ) -> None:
        self._channel = channel
        self._path = path
        self._serialize = write
        self._deserialize = read
        self._metadata = metadata
        loop = asyncio.get_running_loop()
        self._until = None if timeout is None else loop.time() + timeout
        self._stream: Any = None
        self._beginning = asyncio.Lock()
        self._reading: asyncio.Task[Any] | None = None
        self._is_cancelled = False

    async def write(self, request: Any, *, is_last: bool = False) -> None:
        message = self._serialize(request)
        stream = await self._begun()
        await self._understood(stream.send_message(message, end=is_last))

    async def read(self) -> Any:
        stream = await self._begun()
        self._reading = asyncio.ensure_future(self._understood(_next(stream)))
        try:
            message = await self._reading
        except asyncio.CancelledError:
            if self._is_cancelled and not _is_being_cancelled():
                raise _failed(grpc.StatusCode.CANCELLED, "cancelled here") from None
            raise
        return grpc.aio.EOF if message is None else self._deserialize(message)

    def cancel(self) -> None:
        if self._is_cancelled:
            return
        self._is_cancelled = True
        if self._reading is not None:
            self._reading.cancel()
        if self._stream is not None:
            # It awaits nothing when it ends by an error.
            ending = self._stream.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
            try:
                ending.send(None)
            except StopIteration:
                pass
            finally:
                ending.close()

    async def _begun(self) -> Any:
        from grpclib.const import Cardinality  # noqa: PLC0415

        async with self._beginning:
            if self._is_cancelled:
                raise _failed(grpc.StatusCode.CANCELLED, "cancelled here")
            if self._stream is None:
                await self._understood(self._connect())
                stream = self._channel.request(
                    self._path, Cardinality.STREAM_STREAM, bytes, bytes, metadata=list(self._metadata)
                )
                await stream.__aenter__()
                await self._understood(stream.send_request())
                self._stream = stream
        return self._stream

    async def _connect(self) -> None:
        try:
            await self._channel.__connect__()
        except OSError as error:
            text = f"failed to connect to all addresses; last error: {error}"
            raise _failed(grpc.StatusCode.UNAVAILABLE, text) from error

    async def _understood(self, work: Awaitable[Any]) -> Any:
        from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError  # noqa: PLC0415

        try:
            async with asyncio.timeout_at(self._until):
                return await work
        except TimeoutError as error:
            raise _failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from error
        except GRPCError as error:
            raise _failed(grpc.StatusCode[error.status.name], error.message or "") from error
        except (ProtocolError, StreamTerminatedError, OSError) as error:
            raise _failed(grpc.StatusCode.UNAVAILABLE, f"Socket closed: {error}") from error


async def _next(stream: Any) -> Any:
    message = await stream.recv_message()
    if message is None:
        await stream.recv_trailing_metadata()
    return message


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failed(code: Any, text: str) -> Any:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=text)


def _codec() -> Any:
    from grpclib.encoding.base import CodecBase  # noqa: PLC0415

    class Raw(CodecBase):
        """Bytes as they are: the stubs know the messages."""

        __content_subtype__ = "proto"

        def encode(self, message: Any, message_type: Any) -> bytes:
            return bytes(message)

        def decode(self, data: bytes, message_type: Any) -> bytes:
            return data

    return Raw()


def _on_forked() -> None:
    _inherited.extend(_channels)
    _channels.clear()


os.register_at_fork(after_in_child=_on_forked)
