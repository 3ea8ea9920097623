"""How listeners beside a node are started: they are told how to reach it, and speak as it does."""

from pathlib import Path

import pytest

from fencehold.cli.listener_processes import check_upstream, command_of, url_of
from fencehold.errors import UsageError
from fencehold.security.tls import Clients, ServerTls
from fencehold.server import Config

SECURED = ServerTls(Path("/etc/n.pem"), Path("/etc/n.key"), Path("/etc/the ca.pem"))


@pytest.mark.parametrize(
    ("config", "url"),
    [
        (Config(), "fencehold://127.0.0.1:7"),
        (Config(host="::1"), "fencehold://[::1]:7"),
        (Config(host="0.0.0.0", insecure=True), "fencehold://127.0.0.1:7"),
        (Config(host="::", insecure=True), "fencehold://[::1]:7"),
        (Config(host="n1.example"), "fencehold://n1.example:7"),
        (Config(tls=SECURED), "fenceholds://127.0.0.1:7?ca=/etc/the%20ca.pem"),
        (Config(host="0.0.0.0", tls=SECURED, advertise="n1:7420"), "fenceholds://n1:7?ca=/etc/the%20ca.pem"),
        (Config(tls=SECURED._replace(ca=None)), "fenceholds://127.0.0.1:7"),
    ],
)
def test_a_listener_reaches_its_node_where_that_listens(config: Config, url: str) -> None:
    """From the same machine; by TLS at the address that the certificate is for."""
    assert url_of(config, 7) == url


def test_a_listener_speaks_tls_as_its_node_does() -> None:
    """With the node's certificate towards its clients, and none towards the node."""
    words = command_of("grpc", 7421, Config(tls=SECURED), 7420, as_json=False)
    assert words[words.index("--tls-cert") + 1] == "/etc/n.pem"
    assert words[words.index("--tls-key") + 1] == "/etc/n.key"
    assert "cert=" not in words[words.index("--url") + 1]
    assert "--tls-cert" not in command_of("grpc", 7421, Config(), 7420, as_json=False)


def test_where_traces_are_is_told_to_what_shows_them() -> None:
    """The dashboard is on HTTP; other listeners have no such option."""
    url = "https://traces.example/trace/{trace}"
    words = command_of("http", 7422, Config(), 7420, as_json=False, trace_url=url)
    assert words[words.index("--trace-url") + 1] == url
    assert "--trace-url" not in command_of("grpc", 7421, Config(), 7420, as_json=False, trace_url=url)


def test_clients_of_a_listener_are_never_taken_for_the_node() -> None:
    """A node that asks everybody for a certificate has no listeners beside it: they would have to show its own."""
    with pytest.raises(UsageError, match="optional, or start `fencehold listener` by itself"):
        check_upstream(Config(tls=SECURED._replace(clients=Clients.REQUIRED)))
    check_upstream(Config(tls=SECURED._replace(clients=Clients.OPTIONAL)))
    check_upstream(Config())
