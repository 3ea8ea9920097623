"""Nodes over TLS: standbys reach the leader with their own certificates, and nobody else passes for a node."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from fencehold import aio
from fencehold.drivers.address import TlsFiles
from fencehold.drivers.tls import client_context
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.node.leader import Bounds
from fencehold.node.suspicion import Patience
from fencehold.security.tls import Clients, ServerTls
from fencehold.server import Config, Server
from tests.unit.client.service import until
from tests.unit.doors.box import Client
from tests.unit.security.authority import Authority, url_of

QUICK = Patience(leader_timeout_s=0.3, confirm_s=0.1, stagger_s=0.1)


@asynccontextmanager
async def nodes(*tls: ServerTls) -> AsyncIterator[list[Server]]:
    """Nodes on one journal, of which the first leads."""
    store = MemoryStore()
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        servers: list[Server] = []
        for number, each in enumerate(tls):
            config = Config(node=f"n{number}", port=0, patience=QUICK, leader=Bounds(tick_s=0.02), tls=each)
            server = Server(config, journal=MemoryJournal(store))
            await stack.enter_async_context(server)
            servers.append(server)
            await until(lambda: servers[0].node.leads)
        yield servers


def node_tls(authority: Authority, name: str, common: str = "fencehold-node") -> ServerTls:
    pair = authority.server(name=name, common=common)
    return ServerTls(pair.cert, pair.key, authority.file, Clients.REQUIRED)


def test_a_standby_follows_over_tls_and_takes_over(tmp_path: Path) -> None:
    """Every node asks for certificates, and shows its own to the one that leads; clients are sent on over TLS."""
    authority = Authority(tmp_path)
    mine = authority.client("billing")

    async def scenario() -> None:
        async with nodes(node_tls(authority, "a"), node_tls(authority, "b")) as (a, b):
            await until(lambda: len(a.node.standbys.all()) == 1 and b.node.role == "standby")
            async with aio.connect(url_of(b.port, authority, mine)) as client:
                async with client.lock("orders") as hold:
                    assert hold.fence == 1
                await a.stop()
                async with client.lock("orders") as hold:
                    assert hold.fence == 2

    asyncio.run(scenario())


def test_who_shows_another_name_is_no_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Though the same authority signed it: a client cannot pass for a standby."""
    authority = Authority(tmp_path)
    mine = authority.client("billing")

    async def scenario() -> None:
        async with nodes(node_tls(authority, "a")) as (a,):
            denied: list[str] = []
            a.door.on_denied = lambda _, what, _why: denied.append(what)
            context: ssl.SSLContext = client_context(TlsFiles(authority.file, mine.cert, mine.key))
            client = Client(*await asyncio.open_connection("127.0.0.1", a.port, ssl=context))
            assert await client.refusal("NODE.FOLLOW", "evil", "127.0.0.1:1", 0) == "DENIED"
            assert a.node.standbys.all() == []
            assert denied == ["NODE.FOLLOW"]
            await client.close()

    asyncio.run(scenario())


def test_a_node_that_the_leader_does_not_trust_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once, in its log: what is wrong is the configuration."""
    authority, stranger = Authority(tmp_path / "own"), Authority(tmp_path / "stranger")
    odd = node_tls(authority, "b")._replace(ca=stranger.file)

    async def scenario() -> None:
        async with nodes(node_tls(authority, "a"), odd) as (a, _):
            await until(lambda: any(record.message == "no_line" for record in caplog.records))
            assert a.node.standbys.all() == []

    asyncio.run(scenario())
    facts = [getattr(record, "facts", {}) for record in caplog.records if record.message == "no_line"]
    assert "its certificate is not trusted" in str(facts[0]["why"])
