"""Principals and the policy: however they are known, they may do what the policy says of them, and no more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fencehold.drivers.address import TlsFiles
from fencehold.drivers.tls import client_context
from fencehold.security.secrets import hashed
from fencehold.security.throttle import Throttle
from fencehold.security.tls import Clients
from fencehold.security.tokens import Line, add, digest_of, new_token
from fencehold.server import Config, Server
from tests.unit.client.service import until
from tests.unit.doors.box import Client
from tests.unit.doors.policies import apply, rules
from tests.unit.security.authority import Authority, Pair, tls_of
from tests.unit.security.test_nodes import node_tls, nodes

USERS = {
    "users": {
        "ops": {"roles": ["root"]},
        "billing": {"roles": ["billing"]},
        "ci-runner": {"roles": ["billing"]},
        "alice": {"roles": ["billing"], "secrets": [hashed("s3cret")]},
    },
    "roles": {"root": rules(all="admin acquire observe"), "billing": rules(billing="acquire observe")},
}


class Box:
    """A server that asks everybody, by certificates, tokens and the users of its policy."""

    def __init__(self, server: Server, authority: Authority) -> None:
        self.server = server
        self.denied: list[tuple[str, str]] = []
        server.door.on_denied = lambda _, what, why: self.denied.append((what, why))
        server.door.admission.throttle = Throttle(sleep=lambda _: None)
        self._authority = authority

    async def client(self, pair: Pair | None = None) -> Client:
        files = TlsFiles(self._authority.file, *(pair or (None, None)))
        context = client_context(files)
        return Client(*await asyncio.open_connection("127.0.0.1", self.server.port, ssl=context))

    async def named(self, common: str) -> Client:
        return await self.client(self._authority.client(common, name=common))


@asynccontextmanager
async def asking(tmp_path: Path, tokens: Path | None = None) -> AsyncIterator[Box]:
    authority = Authority(tmp_path)
    config = Config(port=0, auth=True, tokens=tokens, tls=tls_of(authority, clients=Clients.OPTIONAL))
    async with asyncio.timeout(60), Server(config) as server:
        yield Box(server, authority)
        await until(lambda: not server.door.connections)


async def test_without_a_policy_everybody_who_is_known_may_do_everything(tmp_path: Path) -> None:
    """And who is not known may not even ask who leads."""
    async with asking(tmp_path) as box:
        known, unknown = await box.named("anybody"), await box.client()
        await known.call("LOCK.ACQUIRE", "orders")
        assert await unknown.refusal("LOCK.ACQUIRE", "orders") == "NOAUTH"
        assert await unknown.refusal("HELLO", 3) == "NOAUTH"
        assert await unknown.refusal("AUTH", "alice", "s3cret") == "USAGE"
        for client in (known, unknown):
            await client.close()


async def test_a_certificate_may_do_what_the_policy_gives_its_principal(tmp_path: Path) -> None:
    """One that the policy does not know may do nothing, though an authority that is trusted signed it."""
    async with asking(tmp_path) as box:
        ops = await box.named("ops")
        await apply(ops, **USERS)
        billing, stranger = await box.named("billing"), await box.named("stranger")
        await billing.call("LOCK.ACQUIRE", "billing:a")
        assert await billing.refusal("LOCK.ACQUIRE", "search:a") == "DENIED"
        assert await billing.refusal("POLICY.GET") == "DENIED"
        assert await billing.refusal("LOCK.INFO", "search:a") == "DENIED"
        assert box.denied.pop() == ("LOCK.INFO", "'billing' may not observe 'search:a'")
        for words in (("LOCK.ACQUIRE", "billing:b"), ("LOCK.LIST",), ("SESSION.OPEN",), ("INFO",)):
            assert await stranger.refusal(*words) == "NOAUTH"
        told = [what for what, _ in box.denied]
        assert told == ["POLICY.GET", "LOCK.ACQUIRE", "LOCK.LIST", "SESSION.OPEN", "INFO"]
        for client in (ops, billing, stranger):
            await client.close()


async def test_a_token_is_a_user_of_the_policy_by_its_name(tmp_path: Path) -> None:
    """So is a user with a secret, which the policy alone knows; each by the same function."""
    tokens = tmp_path / "tokens"
    right, stranger = new_token(), new_token()
    add(tokens, Line("ci-runner", digest_of(right)))
    add(tokens, Line("stranger", digest_of(stranger)))
    async with asking(tmp_path, tokens) as box:
        ops = await box.named("ops")
        other = await box.client()
        assert await other.refusal("AUTH", "alice", "s3cret") == "WRONGPASS"
        await apply(ops, **USERS)
        for login, outcome in (
            (("token", right), ""),
            (("alice", "s3cret"), ""),
            (("token", stranger), "NOAUTH"),
        ):
            client = await box.client()
            assert await client.call("AUTH", *login) == "OK"
            if outcome:
                assert await client.refusal("LOCK.ACQUIRE", "billing:a", "WAIT", 0) == outcome
            else:
                assert await client.call("LOCK.ACQUIRE", f"billing:{login[0]}")
            await client.close()
        assert await other.call("AUTH", "alice", "s3cret") == "OK"
        for client in (ops, other):
            await client.close()


async def test_connections_of_a_principal_share_their_turns(tmp_path: Path) -> None:
    """However it is known who they are."""
    async with asking(tmp_path) as box:
        clients = [await box.named("billing"), await box.named("billing"), await box.named("search")]
        for client in clients:
            await client.call("PING")
        first, second, other = sorted(box.server.door.connections, key=lambda each: each.number)
        assert first.turns is second.turns
        assert first.turns is not other.turns
        for client in clients:
            await client.close()


async def test_a_standby_follows_a_leader_that_has_a_policy(tmp_path: Path) -> None:
    """Nodes are no users: their certificate is enough, to follow and for nothing else."""
    authority = Authority(tmp_path)
    async with nodes(node_tls(authority, "a"), node_tls(authority, "b")) as (a, b):
        await until(lambda: len(a.node.standbys.all()) == 1)
        pair = authority.client("ops")
        context = client_context(TlsFiles(authority.file, pair.cert, pair.key))
        ops = Client(*await asyncio.open_connection("127.0.0.1", a.port, ssl=context))
        await apply(ops, **USERS)
        position = a.node.position
        await ops.call("LOCK.ACQUIRE", "orders")
        await until(lambda: any(standby.position > position for standby in a.node.standbys.all()))
        assert b.node.role == "standby"
        assert (await ops.map("WHOAMI"))["principal"] == "ops"
        await ops.close()
