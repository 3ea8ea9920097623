"""Listeners before a server with a policy: each client is who it says, and the listener lends no login."""

import asyncio
import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fencehold.wire import messages as m
from fencehold.wire.services import LOCK, SESSION, Stub
from rig.processes import free_port
from tests.e2e.grpc_client import door, reason_of
from tests.e2e.served import ended, serving, start, until

POLICY = """
[roles.admin]
rules = [{ prefix = "", allow = ["acquire", "observe", "break", "events", "admin"] }]
[roles.billing]
rules = [{ prefix = "billing:", allow = ["acquire", "observe"] }]
[users.root]
roles = ["admin"]
[users.bill]
roles = ["billing"]
"""
ROOT_SECRET, BILL_SECRET = "s3cret-of-root", "s3cret-of-bill"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a policy; the URL has an administrator's login, which is the listener's own."""
    place = tmp_path_factory.mktemp("ruled")
    files = {"policy.toml": POLICY, "root": ROOT_SECRET, "bill": BILL_SECRET}
    for name, text in files.items():
        (place / name).write_text(text)
    with serving(place, "--memory") as server:
        own = server.url.replace("://", f"://root:{ROOT_SECRET}@")
        for login, words in (
            (server.url, ("user", "add", "root", "--admin", "--secret-file", str(place / "root"))),
            (own, ("policy", "apply", str(place / "policy.toml"), "--yes")),
            (own, ("user", "secret", "bill", "--secret-file", str(place / "bill"))),
        ):
            said = ended(start(*words, "--url", login))
            assert said.code == 0, said
        yield own


def basic(user: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


BILL = basic("bill", BILL_SECRET)


def refused(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), reason_of(error.value)


def test_a_grpc_client_has_the_rights_of_its_own_login(url: str, tmp_path: Path) -> None:
    """Its names, and no others; without a login, or with a wrong one, nothing."""
    with door(tmp_path, "grpc", url) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        locks, sessions = Stub(channel, LOCK), Stub(channel, SESSION)
        bill, request = (("authorization", BILL),), m.LockRequest(name="billing:1", ttl_ms=9_000, wait_ms=0)
        unauthenticated = (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
        assert refused(lambda: locks.Lock(request)) == unauthenticated
        assert refused(lambda: locks.List(m.ListRequest())) == unauthenticated
        wrong = (("authorization", basic("bill", "guessed")),)
        assert refused(lambda: locks.Lock(request, metadata=wrong)) == unauthenticated
        session = sessions.Open(m.OpenRequest(), metadata=bill).session
        request.session = session
        assert locks.Lock(request, metadata=bill).hold.fence
        denied = m.LockRequest(session=session, name="other", wait_ms=0)
        assert refused(lambda: locks.Lock(denied, metadata=bill)) == (grpc.StatusCode.PERMISSION_DENIED, "DENIED")
        root = (("authorization", basic("root", ROOT_SECRET)),)
        assert refused(lambda: locks.Lock(request, metadata=root)) == (grpc.StatusCode.NOT_FOUND, "NO_SESSION")
        assert locks.Break(m.BreakRequest(name="billing:1"), metadata=root).fence
        break_ = m.BreakRequest(name="billing:1")
        assert refused(lambda: locks.Break(break_, metadata=bill))[0] is grpc.StatusCode.PERMISSION_DENIED


def test_an_http_client_has_the_rights_of_its_own_login(url: str, tmp_path: Path) -> None:
    """The same over HTTP; the listener's own login is for its figures."""
    with door(tmp_path, "http", url) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
        said = {"ttl_ms": 5_000}
        nobody = http.post("/v1/locks/billing:2", json=said)
        assert (nobody.status_code, nobody.json()["reason"]) == (401, "UNAUTHENTICATED")
        assert "www-authenticate" in nobody.headers
        bill = {"authorization": BILL}
        assert http.post("/v1/locks/billing:2", json=said, headers=bill).status_code == 200
        assert http.post("/v1/locks/other", json=said, headers=bill).status_code == 403
        assert http.get("/v1/events", headers=bill).status_code in (401, 403)
        assert "\nfencehold_up 1.0\n" in http.get("/metrics").text


def test_who_guesses_through_a_listener_slows_down_nobody_else(tmp_path: Path) -> None:
    """Who comes from another address is let in, though one secret after the other is tried from the first."""
    (tmp_path / "root").write_text(ROOT_SECRET)
    port = free_port()
    with serving(tmp_path, "--memory", "--http", str(port)) as server:
        words = ("user", "add", "root", "--admin", "--secret-file", str(tmp_path / "root"))
        assert ended(start(*words, "--url", server.url)).code == 0
        until(lambda: asyncio.run(_asked(port, "127.0.0.1")) == 401)
        asyncio.run(_guess_beside_others(port))


async def _guess_beside_others(port: int) -> None:
    answers: list[int] = []

    async def guess(number: int) -> None:
        while True:
            answers.append(await _asked(port, "127.0.0.2", "root", f"guess {number} {len(answers)}"))

    async with asyncio.timeout(60):
        guessing = [asyncio.create_task(guess(number)) for number in range(3)]
        try:
            # From here on whoever comes from there waits for the others, seconds each: longer than a login may.
            while answers.count(401) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            tries = [await _asked(port, "127.0.0.1", "root", ROOT_SECRET) for _ in range(3)]
            assert 200 in tries
        finally:
            for task in guessing:
                task.cancel()
            await asyncio.gather(*guessing, return_exceptions=True)


async def _asked(port: int, source: str, user: str = "", secret: str = "") -> int:
    """What a client at an address is answered; 0: nothing."""
    headers = {"authorization": basic(user, secret)} if user else {}
    # In the clear: to read the certificates of all authorities takes longer than the answer.
    transport = httpx.AsyncHTTPTransport(local_address=source, verify=False)
    async with httpx.AsyncClient(transport=transport, timeout=60) as http:
        try:
            return (await http.get(f"http://127.0.0.1:{port}/v1/locks", headers=headers)).status_code
        except httpx.HTTPError:
            return 0


def test_probes_of_a_secured_server_are_answered(tmp_path: Path) -> None:
    """They show nothing, and the listener asks its node for itself: that leads, and so it is ready."""
    http, rpc = free_port(), free_port()
    options = ("--auth", "required", "--http", str(http), "--grpc", str(rpc))
    with serving(tmp_path, "--memory", *options), grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service="fencehold.v1.LockService")

        def is_ready() -> bool:
            try:
                ready = httpx.get(f"http://127.0.0.1:{http}/readyz")
                return bool(ready.json()["role"] == "leader" and health.Check(asked, timeout=5).status == 1)
            except (httpx.HTTPError, grpc.RpcError):
                return False

        until(is_ready)
        refused = httpx.get(f"http://127.0.0.1:{http}/v1/locks")
        assert (refused.status_code, "`authorization`" in refused.json()["detail"]) == (401, True)
        refused = httpx.post(f"http://127.0.0.1:{http}/v1/locks/x", json={"ttl_ms": 9_000})
        assert (refused.status_code, "`authorization`" in refused.json()["detail"]) == (401, True)
