"""Questions of a gateway: no connection to a node stays open that nobody asks by."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import pytest

from fencehold.drivers.tls import load_pair
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import ANONYMOUS, Credentials
from fencehold.gateway.problems import Unauthenticated
from fencehold.gateway.questions import Questions
from fencehold.types import CORRECTNESS
from tests.unit.security.authority import Authority

ANA = Credentials("ana", "secret")


class Node:
    """One that leads, and answers everything alike; it counts who is connected."""

    def __init__(self) -> None:
        self.came = self.here = 0
        self._left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came, self.here = self.came + 1, self.here + 1
        while data := await reader.read(4_096):
            is_greeting = b"HELLO" in data
            writer.write(b"%2\r\n+role\r\n+leader\r\n+shards\r\n:1\r\n" if is_greeting else b"+PONG\r\n")
        writer.close()
        self.here -= 1
        self._left.set()

    async def until(self, here: int) -> None:
        async with asyncio.timeout(2.0):
            while self.here != here:
                self._left.clear()
                await self._left.wait()

    @asynccontextmanager
    async def asked(
        self, more: str = "", tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[tuple[Self, Questions]]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        questions = Questions(f"fencehold://127.0.0.1:{port}{more}", None, GatewayBounds(), connect_timeout_s=0.3)
        try:
            yield self, questions
        finally:
            await questions.close()
            await self.until(0)
            server.close()


async def test_of_connections_that_several_make_at_once_one_stays() -> None:
    async with Node().asked() as (node, questions):
        await asyncio.gather(*(questions.ask(ANA, CORRECTNESS, "PING") for _ in range(3)))
        assert node.came == 3
        await node.until(1)
        await asyncio.gather(*(questions.ask_here(ANA, "PING") for _ in range(3)))
        await node.until(2)


async def test_of_connections_that_show_a_login_again_at_once_one_stays() -> None:
    async with Node().asked() as (node, questions):
        await questions.ask(ANA, CORRECTNESS, "PING")
        await questions.ask_here(ANA, "PING")
        questions.login_s = -1.0
        await asyncio.gather(*(questions.ask(ANA, CORRECTNESS, "PING") for _ in range(3)))
        await asyncio.gather(*(questions.ask_here(ANA, "PING") for _ in range(3)))
        questions.login_s = 60.0
        await node.until(2)


async def test_for_a_client_that_is_refused_here_nothing_is_opened(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, theirs = authority.client("listener"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(theirs, *authority.server())
    more = f"?tls=yes&ca={authority.file}&cert={mine.cert}&key={mine.key}"
    async with Node().asked(more, theirs) as (node, questions):
        for _ in range(3):
            with pytest.raises(Unauthenticated):
                await questions.ask(ANONYMOUS, CORRECTNESS, "PING")
        assert await questions.ask(ANA, CORRECTNESS, "PING") == b"PONG"
        assert node.came == 1
