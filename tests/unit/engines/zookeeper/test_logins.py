"""Logins and TLS, on real servers: who may open a journal, and what others are told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.engines.zookeeper import ZookeeperJournal
from fencehold.errors import NotAdmitted, Unavailable
from fencehold.journal.port import Journal
from rig.zookeeper import Tls, ZookeeperEnsemble
from tests.contract.engines.zookeeper import ensemble, journal_at
from tests.contract.harness import fill, leading, opened, read_all, run

pytestmark = pytest.mark.slow

LOGIN_S = 20.0
"""The first words over TLS take a server that has just started, on a busy machine, their time."""


def with_login(root: str, login: str) -> ZookeeperJournal:
    url = ensemble().url(root).replace("://", f"://{login}@")
    return ZookeeperJournal(ZookeeperAddress.parse(url), append_timeout_s=LOGIN_S)


async def use(journal: Journal) -> None:
    """Do everything that touches ZooKeeper, and see that it was done."""
    async with leading(journal) as (_, epoch):
        found = await read_all(journal)
        records = [*found, *await fill(journal, epoch, range(len(found) + 1, len(found) + 41))]
        assert await read_all(journal) == records
        await journal.save(records[0].position, [b"state" * 100_000])


def test_a_journal_made_with_a_login_is_for_that_login_alone() -> None:
    """Its owner uses it; others are refused, told what to do, and not told the password."""

    async def refused(journal: ZookeeperJournal) -> None:
        with pytest.raises(NotAdmitted, match="login") as error:
            await journal.open()
        assert "s3cret" not in str(error.value)

    async def work(root: str) -> None:
        for _ in range(2):
            await use(with_login(root, "alice:s3cret"))
        await refused(with_login(root, "alice:other-s3cret"))
        await refused(with_login(root, "bob:s3cret"))
        await refused(journal_at(root))

    ensemble()
    run(work("/owned/by/alice"))


def test_a_node_that_is_not_let_in_is_told_so(tmp_path: Path) -> None:
    """Servers that ask for a login end a session without one: that is no outage."""
    strict = {"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"}

    async def work(server: ZookeeperEnsemble) -> None:
        journal = ZookeeperJournal(ZookeeperAddress.parse(server.url()), append_timeout_s=LOGIN_S)
        with pytest.raises(NotAdmitted, match="use the login"):
            await journal.open()

    with ZookeeperEnsemble(tmp_path, 1, properties=strict) as server:
        run(work(server))


def identity(leaf: trustme.LeafCert) -> bytes:
    """Key and certificates, with the key in the one form that Java reads."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return plain + b"".join(certificate.bytes() for certificate in leaf.cert_chain_pems)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ZookeeperEnsemble, Path]]:
    """One server with TLS, and a folder with what its clients need."""
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    stranger.cert_pem.write_to_path(str(folder / "stranger.pem"))
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    (folder / "server.pem").write_bytes(identity(authority.issue_cert("127.0.0.1")))
    tls = Tls(folder / "server.pem", folder / "ca.pem")
    with ZookeeperEnsemble(folder / "server", 1, tls=tls) as server:
        yield server, folder


def test_a_journal_is_used_over_tls(secured: tuple[ZookeeperEnsemble, Path]) -> None:
    """All goes over TLS, the client's certificate too; pages of answers come as quickly as they are sent."""
    server, folder = secured
    options = f"?ca={folder}/ca.pem&cert={folder}/client.pem"
    run(use(ZookeeperJournal(ZookeeperAddress.parse(server.url() + options), append_timeout_s=LOGIN_S)))


def test_a_server_that_nobody_vouches_for_is_not_talked_to(secured: tuple[ZookeeperEnsemble, Path]) -> None:
    """A server whose certificate is not trusted is as good as none."""
    server, folder = secured

    async def work() -> None:
        address = ZookeeperAddress.parse(f"{server.url()}?ca={folder}/stranger.pem")
        journal = ZookeeperJournal(address, append_timeout_s=0.5)
        with pytest.raises(Unavailable):
            async with opened(journal):
                pass

    run(work())
