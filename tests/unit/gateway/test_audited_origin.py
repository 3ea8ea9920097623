"""The audit log of a node names the client behind a listener that is to be believed; nobody else's word counts."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencehold import aio
from fencehold.drivers.resp.wire import command
from fencehold.errors import PermissionDenied
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import Credentials, Voucher, caller
from fencehold.gateway.questions import Questions
from fencehold.gateway.served_client import Ask
from fencehold.gateway.upstream import Upstream
from fencehold.security.throttle import Bounds
from fencehold.security.tokens import digest_of, new_token
from fencehold.server import Config, Server
from fencehold.types import CORRECTNESS
from tests.unit.gateway.test_no_user import ANN, POLICY

CLIENT = "192.0.2.7"
KEY = new_token()


class Audited:
    """A server with an audit log, and a listener that has a key of the node, or says so."""

    def __init__(self, server: Server, key: str, folder: Path) -> None:
        self.server, self._folder = server, folder
        server.door.admission.throttle.bounds = Bounds(delay_s_max=0.0)
        server.door.admission.own_listeners = frozenset([digest_of(KEY)])
        self.url, voucher = f"fencehold://127.0.0.1:{server.port}", Voucher(key=key)
        self.questions = Questions(self.url, None, GatewayBounds(), voucher=voucher, connect_timeout_s=60)
        self.upstream = Upstream(
            self.url, via="grpc", voucher=voucher, questions=self.questions, connect_timeout_s=60
        )

    def records(self) -> list[dict[str, Any]]:
        assert self.server.audit is not None
        assert self.server.audit.flush()
        (file,) = self._folder.iterdir()
        return [json.loads(line) for line in file.read_text().splitlines()]


@asynccontextmanager
async def audited(folder: Path, key: str = KEY) -> AsyncIterator[Audited]:
    folder = folder / "audit"
    async with Server(Config(port=0, audit_log=folder)) as server:
        async with aio.connect(f"fencehold://127.0.0.1:{server.port}") as client:
            await client._channel.read(command("POLICY.APPLY", "0", json.dumps(POLICY)))
        made = Audited(server, key, folder)
        caller.set(CLIENT)
        try:
            yield made
        finally:
            await made.upstream.close()
            await made.questions.close()


async def test_a_session_behind_a_listener_is_logged_with_its_clients_address(tmp_path: Path) -> None:
    """What it acquires, and through which listener it came."""
    async with audited(tmp_path) as log:
        async with await log.upstream.connect(ANN, name="worker", meta={}, ttl_s=30) as client, client.lock("a"):
            pass
        seen = [each for each in log.records() if each.get("names") == ["a"]]
        assert [each["verb"] for each in seen] == ["acquire", "release"]
        assert {each["peer"] for each in seen} == {CLIENT}
        assert all(each["via"].startswith("127.0.0.1:") for each in seen)


async def test_who_fails_to_log_in_through_a_listener_is_logged_with_its_address(tmp_path: Path) -> None:
    """And with the user as its client said it, which may say that it comes from elsewhere."""
    async with audited(tmp_path) as log:
        for user in ("ann", "from:203.0.113.9= ann"):
            with pytest.raises(PermissionDenied):
                await log.questions.log_in(Credentials(user, "guessed"))
        seen = [each for each in log.records() if each["kind"] == "denied"]
        assert [(each["peer"], each["verb"]) for each in seen] == [
            (CLIENT, "login as 'ann'"),
            (CLIENT, "login as 'from:203.0.113.9= ann'"),
        ]


async def test_a_connection_that_several_clients_share_is_logged_as_the_listeners(tmp_path: Path) -> None:
    """One of them logged it in; who asks by it now may be another."""
    async with audited(tmp_path) as log:
        served = await log.upstream.shared(ANN)
        caller.set("192.0.2.8")
        await served.acquire(Ask(("a",), wait_ms=0, ttl_ms=60_000))
        with pytest.raises(PermissionDenied):
            await log.questions.ask(ANN, CORRECTNESS, "POLICY.GET")
        seen = [each for each in log.records() if each.get("names") == ["a"] or each["kind"] == "denied"]
        assert len(seen) == 2
        assert all(each["peer"].startswith("127.0.0.1:") and "via" not in each for each in seen)


@pytest.mark.parametrize("key", [new_token(), "x"], ids=["another token", "no token"])
async def test_nobody_else_says_where_it_comes_from(tmp_path: Path, key: str) -> None:
    """A client that writes that into its login is logged with the address of the connection."""
    async with audited(tmp_path, key) as log:
        async with await log.upstream.connect(ANN, name="worker", meta={}, ttl_s=30) as client, client.lock("a"):
            pass
        with pytest.raises(PermissionDenied):
            await log.questions.log_in(Credentials("ann", "guessed"))
        seen = [each for each in log.records() if each.get("principal") == "ann" or each["kind"] == "denied"]
        assert seen
        assert all(each["peer"].startswith("127.0.0.1:") and "via" not in each for each in seen)
