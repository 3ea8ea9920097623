"""Where other machines can connect, TLS and logins are required; on loopback all is open, and that is said."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from fencehold import UsageError
from fencehold.security.tls import Clients
from fencehold.server import Config, Server
from tests.unit.security.authority import Authority, tls_of


def starts(config: Config) -> bool:
    """Whether a server starts with this, and asks who everybody is."""

    async def scenario() -> bool:
        async with Server(config._replace(port=0)) as server:
            return server.door.asks

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda config: config._replace(tls=None), "nothing would be encrypted"),
        (lambda config: config._replace(auth=False), "no client would have to authenticate"),
        (lambda config: config._replace(tls=None, auth=True), "nothing would be encrypted"),
    ],
)
def test_off_loopback_both_are_required(tmp_path: Path, change: Callable[[Config], Config], told: str) -> None:
    """Only `insecure` is a way round."""
    config = change(Config(host="0.0.0.0", tls=tls_of(Authority(tmp_path))))
    with pytest.raises(UsageError, match=told):
        starts(config)
    assert starts(config._replace(insecure=True)) is (config.auth is True)


def test_off_loopback_everybody_is_asked_without_being_told_to(tmp_path: Path) -> None:
    """TLS is enough to start with."""
    assert starts(Config(host="0.0.0.0", tls=tls_of(Authority(tmp_path))))


def test_on_loopback_nobody_is_asked_unless_so_said(tmp_path: Path) -> None:
    """Certificates that are required are a way of saying so."""
    tls = tls_of(Authority(tmp_path), clients=Clients.REQUIRED)
    assert not starts(Config())
    assert not starts(Config(tls=tls._replace(clients=Clients.OPTIONAL)))
    assert starts(Config(tls=tls))
    assert starts(Config(auth=True))


def test_nodes_know_one_another_by_certificates(tmp_path: Path) -> None:
    """So nodes that share an engine ask for them, if anybody is asked."""
    tls = tls_of(Authority(tmp_path))
    config = Config(engine="etcd://127.0.0.1:1", auth=True, tls=tls)
    with pytest.raises(UsageError, match="know one another by certificates"):
        config.checked()
    assert config._replace(tls=tls._replace(clients=Clients.OPTIONAL)).checked()
