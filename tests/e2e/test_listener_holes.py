"""Holes that others had, at the listeners for gRPC and HTTP; `tests/unit/security/test_holes.py` has the table."""

import base64
import json
import socket
from collections.abc import Iterator
from urllib.parse import quote

import grpc
import httpx
import pytest

from fencehold.cli.wire import connect
from fencehold.core.policy import token_id
from fencehold.errors import FenceholdError
from fencehold.security.secrets import hashed
from fencehold.security.tokens import digest_of, new_token
from fencehold.wire import messages as m
from fencehold.wire.services import LOCK, Stub
from tests.e2e.grpc_client import door
from tests.e2e.served import Served, serving

TOKEN, SECRET = new_token(), "s3cret"
DIGEST = digest_of(TOKEN)
POLICY = {
    "users": {"ci": {"roles": ["all"], "secrets": [hashed(SECRET)]}},
    "roles": {"all": {"rules": [{"prefix": "", "allow": ["acquire", "observe", "events", "admin", "break"]}]}},
    "tokens": {"ci": {token_id(DIGEST): {"digest": DIGEST}}},
}


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, int, int]]:
    place = tmp_path_factory.mktemp("holes")
    with serving(place, "--memory") as server:
        root = connect(server.url)
        root.call("POLICY.APPLY", 0, json.dumps(POLICY))
        root.close()
        with door(place, "grpc", server.url) as grpc_port, door(place, "http", server.url) as http_port:
            yield server, grpc_port, http_port


def basic(user: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


# One that is wrong, and no more: each failure makes the next answer take twice as long.
CREDENTIALS = {
    "token": (f"Bearer {TOKEN}", f"token:{TOKEN}", True),
    "a token in small letters": (f"bearer {TOKEN}", f"token:{TOKEN}", True),
    "a token as a secret": (basic("token", TOKEN), f"token:{TOKEN}", True),
    "secret": (basic("ci", SECRET), f"ci:{SECRET}", True),
    "no such token": (f"Bearer {TOKEN[:-1]}_", f"token:{TOKEN[:-1]}_", False),
}


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_every_listener_takes_the_same_credentials(ruled: tuple[Served, int, int], kind: str) -> None:
    """RESP, gRPC and HTTP alike: one function looks at them all."""
    server, grpc_port, http_port = ruled
    header, login, is_right = CREDENTIALS[kind]
    try:
        wire = connect(server.url.replace("://", f"://{login}@"))
        known = wire.call("WHOAMI")["principal"] == "ci"
        wire.close()
    except FenceholdError:
        known = False
    assert known is is_right
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        try:
            Stub(channel, LOCK).List(m.ListRequest(), metadata=(("authorization", header),), timeout=30)
            code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            code = error.code()
    assert code is (grpc.StatusCode.OK if is_right else grpc.StatusCode.UNAUTHENTICATED)
    answer = httpx.get(f"http://127.0.0.1:{http_port}/v1/locks", headers={"authorization": header}, timeout=30)
    assert answer.status_code == (200 if is_right else 401)


def test_no_header_is_an_identity(ruled: tuple[Served, int, int]) -> None:
    """Whatever a client says of where it comes from, or who somebody in front takes it for."""
    _, grpc_port, http_port = ruled
    names = ("x-forwarded-for", "x-forwarded-user", "x-real-ip", "x-remote-user", "x-forwarded-client-cert")
    for name in (*names, "forwarded", "remote-user", "x-client-cert", "cookie"):
        answer = httpx.get(f"http://127.0.0.1:{http_port}/v1/locks", headers={name: "ci"}, timeout=30)
        assert answer.status_code == 401, name
        with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel, pytest.raises(grpc.RpcError) as refused:
            Stub(channel, LOCK).List(m.ListRequest(), metadata=((name, "ci"),), timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, name


def test_no_name_forges_a_header_or_an_event(ruled: tuple[Served, int, int]) -> None:
    """Neither in an answer nor in a stream of events is a line made by a name."""
    server, _, port = ruled
    held = connect(server.url.replace("://", f"://token:{TOKEN}@"))
    name = "a\r\nx-forged: yes\r\n\r\ndata: forged\n\nevent: forged\n\n"
    headers = {"authorization": f"Bearer {TOKEN}"}
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, headers=headers, timeout=30) as http:
        with http.stream("GET", "/v1/events") as events:
            lines = events.iter_lines()
            # Over RESP: no path of HTTP has a line break in it.
            held.call("LOCK.ACQUIRE", name)
            for line in lines:
                assert not line.startswith(("data: forged", "event: forged", "x-forged"))
                if line.startswith("data:") and (names := json.loads(line.removeprefix("data:")).get("names")):
                    assert names == [name]
                    break
        for method in ("GET", "POST", "PATCH", "DELETE"):
            with socket.create_connection(("127.0.0.1", port), 30) as raw:
                path = f"/v1/locks/{quote(name, safe='')}"
                raw.sendall(
                    f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
                    "connection: close\r\ncontent-length: 0\r\n\r\n".encode()
                )
                told = b""
                while part := raw.recv(65_536):
                    told += part
            assert b"\nx-forged" not in told.lower(), method
    held.close()
