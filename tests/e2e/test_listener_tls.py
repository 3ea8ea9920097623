"""Listeners that speak TLS, with certificates of clients if asked."""

import ssl
from pathlib import Path
from typing import NamedTuple

import grpc
import httpx
import pytest
import trustme

from fencehold.wire import messages as m
from fencehold.wire.services import LOCK, Stub
from rig.processes import free_port
from tests.e2e.grpc_client import door
from tests.e2e.served import Served, ended, serving, start, until


class Files(NamedTuple):
    cert: Path
    key: Path
    ca: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    place, ca = tmp_path_factory.mktemp("tls"), trustme.CA()
    own = ca.issue_cert("localhost", "127.0.0.1")
    found = Files(place / "cert.pem", place / "key.pem", place / "ca.pem")
    own.cert_chain_pems[0].write_to_path(str(found.cert))
    own.private_key_pem.write_to_path(str(found.key))
    ca.cert_pem.write_to_path(str(found.ca))
    return found


@pytest.fixture(scope="module")
def options(files: Files) -> tuple[str, ...]:
    return "--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-ca", str(files.ca)


def test_grpc_over_tls(server: Served, files: Files, options: tuple[str, ...], tmp_path: Path) -> None:
    """A client with a certificate is served; without one, where it is required, it is not."""
    with door(tmp_path, "grpc", server.url, *options, "--tls-clients", "required") as port:
        ca = files.ca.read_bytes()
        shown = grpc.ssl_channel_credentials(ca, files.key.read_bytes(), files.cert.read_bytes())
        with grpc.secure_channel(f"localhost:{port}", shown) as channel:
            answer = Stub(channel, LOCK).Lock(m.LockRequest(name="grpc-tls", ttl_ms=5_000), timeout=10)
            assert answer.hold.fence
        with grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(ca)) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                Stub(channel, LOCK).List(m.ListRequest(), timeout=5)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_http_over_tls(server: Served, files: Files, options: tuple[str, ...], tmp_path: Path) -> None:
    """As every client speaks it; in the clear nothing is answered."""
    with door(tmp_path, "http", server.url, *options) as port:
        context = ssl.create_default_context(cafile=str(files.ca))
        assert httpx.get(f"https://localhost:{port}/readyz", verify=context).json()["role"] == "leader"
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://localhost:{port}/readyz")


def test_off_loopback_a_listener_wants_tls_or_to_be_told(server: Served) -> None:
    """It says what to do, and starts nothing."""
    for kind in ("grpc", "http"):
        said = ended(start("door", kind, "--url", server.url, "--host", "0.0.0.0", "--port", "0"))
        assert (said.code, "--insecure" in said.err) == (2, True)


def test_a_secured_node_has_secured_listeners(files: Files, options: tuple[str, ...], tmp_path: Path) -> None:
    """`serve --http` with TLS: the listener speaks TLS to its clients, and to the node."""
    port, context = free_port(), ssl.create_default_context(cafile=str(files.ca))
    with serving(tmp_path, "--memory", *options, "--http", str(port)):
        until(lambda: _is_ready(port, context))


def _is_ready(port: int, context: ssl.SSLContext) -> bool:
    try:
        return bool(httpx.get(f"https://localhost:{port}/readyz", verify=context).json()["role"] == "leader")
    except (httpx.HTTPError, KeyError):
        return False
