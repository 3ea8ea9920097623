"""Nodes over TLS: standbys reach the leader with their own certificates, and nobody else passes for a node."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencehold import aio
from fencehold.cli.wire import connect as wire_to
from fencehold.core.policy import token_id
from fencehold.drivers.address import TlsFiles
from fencehold.drivers.tls import client_context
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.questions import Questions
from fencehold.locks.views import WHOLE
from fencehold.node.leader import Bounds
from fencehold.node.suspicion import Patience
from fencehold.security.tls import Clients, ServerTls
from fencehold.security.tokens import digest_of, new_token
from fencehold.server import Config, Server
from fencehold.sinks.follower import Follower
from fencehold.types import CORRECTNESS
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


async def test_who_is_no_administrator_finds_the_leader_by_a_standby() -> None:
    """By the command line and by a listener, as by the SDK: who leads is for everybody who is let in."""
    token, store = new_token(), MemoryStore()
    role = {"rules": [{"prefix": "", "allow": ["acquire", "observe", "events"]}]}
    root = {"rules": [{"prefix": "", "allow": ["admin"]}]}
    digest = digest_of(token)
    policy = {
        "users": {"root": {"roles": ["root"]}, "eve": {"roles": ["all"]}},
        "roles": {"all": role, "root": root},
        "tokens": {"eve": {token_id(digest): {"digest": digest}}},
    }
    configs = [Config(node=name, port=0, patience=QUICK, leader=Bounds(tick_s=0.02)) for name in ("a", "b")]
    async with asyncio.timeout(30), Server(configs[0], journal=MemoryJournal(store)) as leader:
        await until(lambda: leader.node.leads)
        async with Server(configs[1], journal=MemoryJournal(store)) as standby:
            client = Client(*await asyncio.open_connection("127.0.0.1", leader.port))
            await client.call("POLICY.APPLY", 0, json.dumps(policy))
            await client.close()
            await until(lambda: standby.node.rulebook is not None)
            questions = Questions(f"fencehold://127.0.0.1:{standby.port}", None, GatewayBounds())
            assert await questions.ask(Credentials("token", token), CORRECTNESS, "LOCK.LIST")
            await questions.close()
            wire = await asyncio.to_thread(wire_to, f"fencehold://token:{token}@127.0.0.1:{standby.port}")
            assert wire.leads
            wire.close()


async def test_a_sink_needs_the_rights_to_events_and_no_more() -> None:
    """It asks for nothing that is for administrators."""
    token = new_token()
    digest, denied = digest_of(token), list[str]()
    rules = {"sinks": ["events", "observe"], "root": ["admin"]}
    policy = {
        "users": {name: {"roles": [name]} for name in rules},
        "roles": {name: {"rules": [{"prefix": "", "allow": verbs}]} for name, verbs in rules.items()},
        "tokens": {"sinks": {token_id(digest): {"digest": digest}}},
    }
    async with asyncio.timeout(30), Server(Config(port=0)) as server:
        server.door.on_denied = lambda _, what, _why: denied.append(what)
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        await client.call("LOCK.ACQUIRE", "orders")
        await client.call("POLICY.APPLY", 0, json.dumps(policy))
        await client.close()
        follower = Follower(f"fencehold://token:{token}@127.0.0.1:{server.port}")
        assert await follower.shards() == 1
        events: Any = follower.events((0, WHOLE))
        async with aclosing(events):
            assert (await anext(events)).kind == "opened"
        assert denied == []


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
