"""The bounds of HTTP connections: on a real socket, with short times."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from fencehold.doors.http.bounded_protocol import bounded


class Quiet(uvicorn.Server):
    """One that takes no signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once, whether or not all of the body has come."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def serving(request_s_max: float, connections_max: int) -> AsyncIterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = Quiet(
        uvicorn.Config(
            application,
            http=bounded(request_s_max, connections_max),
            lifespan="off",
            log_config=None,
            timeout_keep_alive=60,
        )
    )
    task = asyncio.create_task(server.serve([listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def said(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_a_request_is_sent_in_time_or_not_at_all() -> None:
    """Nothing, a part of a head, or a body that does not end: each is closed, and told so if it can be."""
    async with serving(0.2, 100) as port:
        for begun in (b"", b"GET / HTTP/1.1\r\nx: y"):
            reader, writer = await said(port, begun)
            assert (await reader.read()).startswith(b"HTTP/1.1 408")
            writer.close()
        reader, writer = await said(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n1")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(b"2")
        assert await reader.read() == b""
        writer.close()


async def test_a_second_request_has_its_time_as_well() -> None:
    """A connection that is kept may rest longer than a request may take; once it begins, it counts."""
    async with serving(0.2, 100) as port:
        reader, writer = await said(port, WHOLE)
        await reader.readuntil(b"ok")
        await asyncio.sleep(0.4)
        writer.write(WHOLE)
        await reader.readuntil(b"ok")
        writer.write(b"GET / ")
        assert (await reader.read()).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_connections_that_rest_give_way() -> None:
    """The one that has rested longest is closed, and who comes is answered."""
    async with serving(60, 3) as port:
        rested = [await said(port, b"") for _ in range(3)]
        reader, writer = await said(port, WHOLE)
        await reader.readuntil(b"ok")
        assert await rested[0][0].read() == b""
        for _, each in (*rested, (reader, writer)):
            each.close()
