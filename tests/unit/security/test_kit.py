"""The testing kit over TLS."""

from pathlib import Path

import fencehold
from fencehold.security.tls import Clients
from fencehold.testing import Service
from tests.unit.security.authority import Authority, tls_of


def test_a_service_of_the_kit_speaks_tls(tmp_path: Path) -> None:
    """Its URL names the authority, and what can be done to it is the same."""
    authority = Authority(tmp_path)
    mine = authority.client("worker")
    with Service(tls=tls_of(authority, clients=Clients.OPTIONAL)) as service:
        assert service.url.startswith("fenceholds://127.0.0.1:")
        with fencehold.connect(f"{service.url}&cert={mine.cert}&key={mine.key}") as client:
            with client.lock("orders", ttl=5) as hold:
                service.drop_connections(client)
                hold.check()
            service.restart()
            with client.lock("orders") as again:
                assert again.fence > hold.fence
