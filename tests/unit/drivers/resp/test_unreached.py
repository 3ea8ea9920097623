"""Whoever cannot reach a backend is told which, and why: as of a service, in the same words."""

import socket
from collections.abc import Iterator

import pytest

import fencehold
from fencehold import EFFICIENCY, Unavailable
from fencehold.backends import carrier
from rig.processes import free_port

CONNECT_S = 1
"""Long enough for a busy machine to find out why."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend on a busy machine may need longer for its last word than users want to wait for it."""
    monkeypatch.setattr(carrier, "_LAST_WORD_S", 30.0)


def why(url: str) -> str:
    """What a client says that cannot reach this."""
    with (
        pytest.raises(Unavailable) as failed,
        fencehold.connect(url, connect_timeout=CONNECT_S) as client,
        client.lock("a", tier=EFFICIENCY),
    ):
        pass
    return str(failed.value)


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that waits for more, whatever it is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{}", "zookeeper://127.0.0.1:{}", "etcd://127.0.0.1:{}"])
def test_nothing_listens(url: str) -> None:
    """The address, and the system's word for it."""
    port = free_port()
    told = why(url.format(port))
    assert f"127.0.0.1:{port}" in told
    assert "Connection refused" in told


def test_no_such_host() -> None:
    """What the resolver says is passed on."""
    assert "Redis at lokcs.invalid:6379 was not reached: no such host (" in why("redis://lokcs.invalid")


def test_tls_to_a_plain_redis(silent: int) -> None:
    """It takes a greeting of TLS for the beginning of a command, and waits for the rest of it."""
    told = why(f"rediss://127.0.0.1:{silent}")
    assert told == (
        f"Redis at 127.0.0.1:{silent} was not reached in {CONNECT_S} s: does it speak TLS? If not, use redis://"
    )


def test_a_silent_server_is_named(silent: int) -> None:
    """By the backend itself, which knows where it looked; the carrier, which does not, comes after it."""
    assert f"zookeeper://127.0.0.1:{silent}" in why(f"zookeeper://127.0.0.1:{silent}")
