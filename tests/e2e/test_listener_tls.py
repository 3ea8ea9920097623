"""Listeners that speak TLS, with certificates of clients if asked."""

import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import httpx
import pytest
import trustme

from fencehold.security.issuer import Issuer
from fencehold.security.tokens import Line, add, digest_of, new_token
from fencehold.wire import messages as m
from fencehold.wire.services import LOCK, Stub
from rig.processes import free_port
from tests.e2e.grpc_client import door, reason_of
from tests.e2e.served import Served, ended, serving, start, until


class Files(NamedTuple):
    cert: Path
    key: Path
    ca: Path


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Files:
    place, ca = tmp_path_factory.mktemp("tls"), authority
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
    """As every client speaks it; in the clear it is told what to use."""
    with door(tmp_path, "http", server.url, *options) as port:
        context = ssl.create_default_context(cafile=str(files.ca))
        assert httpx.get(f"https://localhost:{port}/readyz", verify=context).json()["role"] == "leader"
        plain = httpx.get(f"http://localhost:{port}/readyz")
        assert (plain.status_code, plain.json()["detail"]) == (400, "use https://")


def test_off_loopback_a_listener_wants_tls_or_to_be_told(server: Served) -> None:
    """It says what to do, and starts nothing."""
    for kind in ("grpc", "http"):
        said = ended(start("listener", kind, "--url", server.url, "--host", "0.0.0.0", "--port", "0"))
        assert (said.code, "--insecure" in said.err) == (2, True)


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_a_hangup_has_a_listener_read_its_certificates_again(
    kind: str, server: Served, options: tuple[str, ...], tmp_path: Path
) -> None:
    """As a server does; without TLS there is nothing to be read, and it goes on as well."""
    for words in (options, ()):
        port_file = tmp_path / f"{kind}{len(words)}"
        process = start(
            "listener", kind, "--url", server.url, "--port", "0", "--port-file", str(port_file), *words
        )
        until(port_file.exists)
        process.send_signal(signal.SIGHUP)
        # Signals are taken in their order.
        process.terminate()
        said = ended(process)
        assert (said.code, "certificate_reloaded" in said.err) == (0, bool(words)), said


def test_a_certificate_that_a_nodes_list_revokes_gets_in_by_none_of_its_listeners(tmp_path: Path) -> None:
    """What `serve --tls-crl` is told is told to the listeners that it starts."""
    issuer = Issuer.make(tmp_path / "pki")
    own, bad = issuer.for_node("server", ["localhost", "127.0.0.1"]), issuer.for_client("bad", "bad")
    crl, ca = issuer.revoke("bad"), issuer.ca.cert
    token, tokens = tmp_path / "listener", tmp_path / "tokens"
    token.write_text(new_token())
    add(tokens, Line("listener/edge", digest_of(token.read_text())))
    words: tuple[str, ...] = (
        "--tls-cert",
        str(own.cert),
        "--tls-key",
        str(own.key),
        "--tls-ca",
        str(ca),
        "--tls-crl",
        str(crl),
    )
    words = (*words, "--tls-clients", "optional", "--tokens", str(tokens), "--listener-token-file", str(token))
    http, rpc = free_port(), free_port()
    context = ssl.create_default_context(cafile=str(ca))
    with serving(tmp_path, "--memory", *words, "--http", str(http), "--grpc", str(rpc)):
        until(lambda: _is_ready(http, context))
        context.load_cert_chain(bad.cert, bad.key)
        with pytest.raises((httpx.HTTPError, ssl.SSLError), match="revoked"):
            httpx.post(f"https://localhost:{http}/v1/locks/x", json={"ttl_ms": 9_000}, verify=context)
        shown = grpc.ssl_channel_credentials(ca.read_bytes(), bad.key.read_bytes(), bad.cert.read_bytes())
        with grpc.secure_channel(f"localhost:{rpc}", shown) as channel, pytest.raises(grpc.RpcError) as refused:
            Stub(channel, LOCK).Lock(m.LockRequest(name="x", ttl_ms=9_000), timeout=10, wait_for_ready=False)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


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


@pytest.fixture(scope="module")
def asking(
    files: Files, options: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """A server that asks everybody who they are, and the token of a listener that it trusts."""
    place = tmp_path_factory.mktemp("asking")
    token, other, tokens = place / "listener", place / "other", place / "tokens"
    for file, principal in ((token, "listener/edge"), (other, "edge")):
        file.write_text(new_token())
        add(tokens, Line(principal, digest_of(file.read_text())))
    with serving(place, "--memory", *options, "--auth", "required", "--tokens", str(tokens)) as server:
        port = server.url.rpartition(":")[2]
        yield f"fenceholds://localhost:{port}?ca={files.ca}", token


def shown_by(authority: trustme.CA, name: str) -> tuple[bytes, bytes]:
    """A certificate of somebody, and its key."""
    issued = authority.issue_cert(f"{name}.example", common_name=name)
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


def test_a_certificate_at_the_grpc_listener_is_who_asks(
    asking: tuple[str, Path], authority: trustme.CA, files: Files, options: tuple[str, ...], tmp_path: Path
) -> None:
    """The listener has checked it, and speaks for it by a token of its own; another token speaks for nobody."""
    url, token = asking
    cert, key = shown_by(authority, "ann")
    shown = grpc.ssl_channel_credentials(files.ca.read_bytes(), key, cert)
    words = (*options, "--tls-clients", "required", "--listener-token-file")
    with (
        door(tmp_path, "grpc", url, *words, str(token)) as port,
        grpc.secure_channel(f"localhost:{port}", shown) as channel,
    ):
        hold = Stub(channel, LOCK).Lock(m.LockRequest(name="of-ann", ttl_ms=9_000), timeout=10).hold
        assert hold.fence
        # A hold of ann's is not that of another who comes by the same listener.
        other = grpc.ssl_channel_credentials(files.ca.read_bytes(), *reversed(shown_by(authority, "bob")))
        with grpc.secure_channel(f"localhost:{port}", other) as second, pytest.raises(grpc.RpcError) as refused:
            Stub(second, LOCK).Unlock(m.UnlockRequest(name="of-ann", fence=hold.fence), timeout=10)
        assert reason_of(refused.value) == "NOT_OWNER"
    with (
        door(tmp_path, "grpc", url, *words, str(token.with_name("other"))) as port,
        grpc.secure_channel(f"localhost:{port}", shown) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        Stub(channel, LOCK).Lock(m.LockRequest(name="of-ann", ttl_ms=9_000), timeout=20)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_certificate_at_the_http_listener_is_who_asks_and_its_own_is_renewed(
    asking: tuple[str, Path], authority: trustme.CA, files: Files, tmp_path: Path
) -> None:
    """Shown or not, as each client likes; without one, and without a login, it is nobody. Files are read anew."""
    url, token = asking
    own = Files(tmp_path / "own.pem", tmp_path / "own.key", files.ca)
    own.cert.write_bytes(files.cert.read_bytes())
    own.key.write_bytes(files.key.read_bytes())
    for path, data in zip((tmp_path / "ann.pem", tmp_path / "ann.key"), shown_by(authority, "ann"), strict=True):
        path.write_bytes(data)
    words: tuple[str, ...] = ("--tls-cert", str(own.cert), "--tls-key", str(own.key), "--tls-ca", str(own.ca))
    words = (*words, "--tls-clients", "optional", "--listener-token-file", str(token))
    nobody = ssl.create_default_context(cafile=str(files.ca))
    ann = ssl.create_default_context(cafile=str(files.ca))
    ann.load_cert_chain(tmp_path / "ann.pem", tmp_path / "ann.key")
    with door(tmp_path, "http", url, *words) as port:
        lock = f"https://localhost:{port}/v1/locks/http-ann"
        assert httpx.post(lock, json={"ttl_ms": 9_000}, verify=nobody).json()["reason"] == "UNAUTHENTICATED"
        assert httpx.post(lock, json={"ttl_ms": 9_000}, verify=ann).json()["hold"]["fence"]
        before = ssl.get_server_certificate(("localhost", port))
        renewed = authority.issue_cert("localhost", "127.0.0.1")
        own.key.write_bytes(renewed.private_key_pem.bytes())
        own.cert.write_bytes(renewed.cert_chain_pems[0].bytes())
        until(lambda: ssl.get_server_certificate(("localhost", port)) != before)
        # Certificates of clients are asked for as before.
        assert httpx.post(lock, json={"ttl_ms": 9_000}, verify=ann).status_code == 409
        assert httpx.post(lock, json={"ttl_ms": 9_000}, verify=nobody).status_code == 401


def test_a_listener_does_not_lend_its_own_certificate(
    asking: tuple[str, Path], authority: trustme.CA, tmp_path: Path
) -> None:
    """Its URL may name one, for its own questions: a client that shows nothing is not taken for it."""
    for path, data in zip((tmp_path / "own.pem", tmp_path / "own.key"), shown_by(authority, "edge"), strict=True):
        path.write_bytes(data)
    url = f"{asking[0]}&cert={tmp_path / 'own.pem'}&key={tmp_path / 'own.key'}"
    with door(tmp_path, "http", url) as port:
        for answer in (
            httpx.post(f"http://127.0.0.1:{port}/v1/locks/lent", json={"ttl_ms": 9_000}),
            httpx.get(f"http://127.0.0.1:{port}/v1/locks"),
        ):
            assert (answer.status_code, answer.json()["reason"]) == (401, "UNAUTHENTICATED")
