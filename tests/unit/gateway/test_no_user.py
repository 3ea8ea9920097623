"""Who is no user gets the same word in every protocol: NOAUTH or WRONGPASS, 401, UNAUTHENTICATED.

403 and DENIED are for a user that lacks a right: so a client knows whether to show another login, or to ask for
rights.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencehold import aio
from fencehold.core.policy import token_id
from fencehold.drivers.resp.wire import NotAuthenticated, command
from fencehold.errors import FenceholdError, PermissionDenied
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import TOKEN_USER, Credentials
from fencehold.gateway.problems import problem_of
from fencehold.gateway.questions import Questions
from fencehold.gateway.served_client import Ask
from fencehold.gateway.upstream import Upstream
from fencehold.security.secrets import hashed
from fencehold.security.throttle import Bounds
from fencehold.security.tokens import digest_of, new_token
from fencehold.server import Config, Server
from fencehold.types import CORRECTNESS

ROLE = {"rules": [{"prefix": "", "allow": ["acquire", "observe", "events"]}]}
ROOT, ANN = Credentials("root", "root's"), Credentials("ann", "ann's")
TOKEN = new_token()
DIGEST = digest_of(TOKEN)
POLICY: dict[str, Any] = {
    "roles": {"root": {"rules": [{"prefix": "", "allow": ["admin"]}]}, "all": ROLE},
    "users": {
        "root": {"roles": ["root"], "secrets": [hashed(ROOT.secret)]},
        "ann": {"roles": ["all"], "secrets": [hashed(ANN.secret)]},
        "off": {"roles": ["all"], "secrets": [hashed("off's")], "disabled": True},
    },
    "tokens": {"ann": {token_id(DIGEST): {"digest": DIGEST}}},
}
CHANGES: dict[str, dict[str, Any]] = {
    "disabled": {"users": {"ann": {"roles": ["all"], "disabled": True}}},
    "removed": {"users": {"ann": None}},
    "revoked": {"tokens": {"ann": {token_id(DIGEST): None}}},
}


class Listened:
    """A server with the policy, and what a listener of HTTP or gRPC asks it by."""

    def __init__(self, server: Server) -> None:
        # Failed logins of these tests are no guesses: what they cost is tested elsewhere.
        server.door.admission.throttle.bounds = Bounds(delay_s_max=0.0)
        self.url = f"fencehold://127.0.0.1:{server.port}"
        self.questions = Questions(self.url, None, GatewayBounds(), connect_timeout_s=60)
        self.upstream = Upstream(self.url, via="http", questions=self.questions, connect_timeout_s=60)

    async def acquire(self, who: Credentials) -> None:
        """As a listener does for a client without a session of its own."""
        served = await self.upstream.shared(who)
        await served.acquire(Ask(("a",), wait_ms=0, ttl_ms=60_000))

    async def look(self, who: Credentials) -> None:
        """Ask for what a list is made of."""
        await self.questions.ask(who, CORRECTNESS, "LOCK.LIST")

    async def connect(self, who: Credentials) -> None:
        """As a client of the SDK does."""
        async with (
            aio.connect(self.url.replace("://", f"://{who.user}:{who.secret}@")) as client,
            client.lock("b"),
        ):
            pass

    async def change(self, **tables: Any) -> None:
        await self.questions.ask(ROOT, CORRECTNESS, "POLICY.APPLY", 1, json.dumps(tables))


@asynccontextmanager
async def listened() -> AsyncIterator[Listened]:
    async with Server(Config(port=0)) as server:
        async with aio.connect(f"fencehold://127.0.0.1:{server.port}") as client:
            await client._channel.read(command("POLICY.APPLY", "0", json.dumps(POLICY)))
        listened = Listened(server)
        try:
            yield listened
        finally:
            await listened.upstream.close()
            await listened.questions.close()


async def refused(listened: Listened, who: Credentials) -> None:
    """Every way in says that nobody is there, again and again."""
    for way in (listened.acquire, listened.look, listened.connect) * 2:
        with pytest.raises(PermissionDenied) as told:
            await way(who)
        problem = problem_of(told.value)
        assert (problem.http, problem.grpc) == (401, "UNAUTHENTICATED"), (way, told.value)
        assert isinstance(told.value, NotAuthenticated)


@pytest.mark.parametrize(
    "who",
    [
        Credentials("nobody", "x"),
        Credentials("ann", "guessed"),
        Credentials("off", "off's"),
        Credentials(TOKEN_USER, new_token()),
    ],
    ids=["unknown", "wrong secret", "disabled", "no token"],
)
async def test_who_never_was_a_user_is_not_authenticated(who: Credentials) -> None:
    """Whatever is wrong with the login."""
    async with listened() as listener:
        await refused(listener, who)


@pytest.mark.parametrize("how", CHANGES)
async def test_who_is_no_user_any_more_is_not_authenticated(how: str) -> None:
    """From the first call on after the change, also over connections that were let in before."""
    who = Credentials(TOKEN_USER, TOKEN) if how == "revoked" else ANN
    async with listened() as listener:
        await listener.acquire(who)
        await listener.look(who)
        await listener.change(**CHANGES[how])
        await refused(listener, who)


async def test_a_user_that_lacks_a_right_is_denied() -> None:
    """It is known, and may be told so."""
    async with listened() as listener:
        await listener.acquire(ANN)
        with pytest.raises(PermissionDenied) as told:
            await listener.questions.ask(ANN, CORRECTNESS, "POLICY.GET")
        assert problem_of(told.value).http == 403
        with pytest.raises(FenceholdError) as told_too:
            await listener.acquire(ROOT)
        assert problem_of(told_too.value).http == 403
