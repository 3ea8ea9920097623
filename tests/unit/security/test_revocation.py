"""Certificates that were revoked: let in by no handshake, and put out where they are in already."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from hypothesis import given
from hypothesis import strategies as st

from fencehold import UsageError, aio
from fencehold.drivers.address import TlsFiles
from fencehold.drivers.tls import client_context
from fencehold.security.certificates import NoPrincipal, read_pem, revoked_in
from fencehold.security.issuer import Issuer, Pair
from fencehold.security.tls import Certificates, Clients, ServerTls, read_revoked
from tests.unit.client.service import until
from tests.unit.doors.box import Client
from tests.unit.security.authority import Authority
from tests.unit.security.test_listener import LOOPS, Loop, Secured, refusal, run, secured
from tests.unit.security.test_nodes import nodes


class Office:
    """An authority, what it signed, and what it took back."""

    def __init__(self, folder: Path) -> None:
        self.issuer = Issuer.make(folder)
        self.server = self.issuer.for_node("server", ["127.0.0.1"])
        self.crl = self.issuer.revoke()
        self.good, self.bad = (self.issuer.for_client(name, name) for name in ("good", "bad"))

    @property
    def tls(self) -> ServerTls:
        return self.tls_of(self.server)

    def tls_of(self, pair: Pair) -> ServerTls:
        return ServerTls(pair.cert, pair.key, self.issuer.ca.cert, Clients.REQUIRED, self.crl)

    def url(self, port: int, pair: Pair) -> str:
        return f"fenceholds://127.0.0.1:{port}?ca={self.issuer.ca.cert}&cert={pair.cert}&key={pair.key}"

    async def client(self, box: Secured, pair: Pair) -> Client:
        context = client_context(TlsFiles(self.issuer.ca.cert, *pair))
        return Client(*await asyncio.open_connection("127.0.0.1", box.port, ssl=context))


@LOOPS
def test_a_revoked_certificate_is_not_let_in_and_one_that_is_in_is_put_out(
    tmp_path: Path, loop_factory: Loop
) -> None:
    """As soon as the list is read again; nobody else is dropped, and the log says why."""
    office = Office(tmp_path)

    async def scenario() -> None:
        async with secured(office.tls) as box:
            good, bad = await office.client(box, office.good), await office.client(box, office.bad)
            await bad.call("SESSION.OPEN", "TTL", 60_000)
            office.issuer.revoke("bad")
            assert box.server.door.certificates is not None
            assert box.server.door.certificates.reload()
            async with asyncio.timeout(30):
                while await bad._stream.read(4_096):
                    pass
            assert box.refused == ["the client certificate was revoked"]
            assert await good.call("PING") == "PONG"
            assert "our client certificate was revoked" in await refusal(office.url(box.port, office.bad))
            await until(lambda: "its client certificate is not trusted: certificate revoked" in box.refused)
            async with aio.connect(office.url(box.port, office.good)) as client, client.lock("orders"):
                pass
            for client_ in (good, bad):
                await client_.close()

    run(loop_factory, scenario)


def test_a_node_whose_certificate_was_revoked_does_not_follow(tmp_path: Path) -> None:
    """The list is looked at between nodes, too, by the one that is asked and by the one that asks."""
    office = Office(tmp_path)
    other = office.issuer.for_node("other", ["127.0.0.1"])

    async def scenario() -> None:
        async with nodes(office.tls, office.tls_of(other)) as (a, b):
            await until(lambda: len(a.node.standbys.all()) == 1)
            office.issuer.revoke("other")
            for node in (a, b):
                assert node.door.certificates is not None
                node.door.certificates.reload()
            await until(lambda: not a.node.standbys.all())
            context = client_context(office.tls.own)
            with pytest.raises(OSError, match="revoked"):
                await asyncio.open_connection("127.0.0.1", b.port, ssl=context)

    asyncio.run(scenario())


def test_a_list_is_kept_while_the_new_one_cannot_be_used(tmp_path: Path) -> None:
    """Half written, expired, or no list at all; what was revoked stays so."""
    office = Office(tmp_path)
    office.issuer.revoke("bad")
    certificates = Certificates(office.tls)
    key = read_pem(office.bad.cert.read_text()).key
    assert certificates.revoked == {key}
    whole = office.crl.read_text()
    for broken in (whole[: len(whole) // 2], "nothing", office.issuer.ca.cert.read_text() + whole):
        office.crl.write_text(broken)
        assert not certificates.reload()
        assert certificates.revoked == {key}
    office.crl.write_text(whole)
    assert certificates.reload()


def test_a_list_that_expired_or_of_nobody_is_not_started_with(tmp_path: Path) -> None:
    """For nobody would be let in by it; nor is one without anybody whom it could be about."""
    authority, office = Authority(tmp_path / "other"), Office(tmp_path)
    past = datetime.now(UTC) - timedelta(days=2)
    office.crl.write_bytes(_list(authority, [], past, past + timedelta(days=1)))
    with pytest.raises(UsageError, match="expired"):
        Certificates(office.tls)
    with pytest.raises(UsageError, match="--tls-clients"):
        Certificates(office.tls._replace(clients=Clients.NONE))
    with pytest.raises(UsageError, match="cannot read"):
        Certificates(office.tls._replace(crl=tmp_path / "nowhere"))


def test_an_authority_without_a_list_is_not_trusted_where_there_are_lists(tmp_path: Path) -> None:
    """What it signed may have been revoked for all that is known."""
    office, other = Office(tmp_path), Authority(tmp_path / "other")
    both = tmp_path / "both.pem"
    both.write_text(office.issuer.ca.cert.read_text() + other.file.read_text())
    mine = other.client("mine")

    async def scenario() -> None:
        async with secured(office.tls._replace(ca=both)) as box:
            await refusal(office.url(box.port, Pair(mine.cert, mine.key)))
            await until(lambda: any("unable to get certificate CRL" in why for why in box.refused))

    asyncio.run(scenario())


def test_what_an_authority_has_revoked_stays_revoked(tmp_path: Path) -> None:
    """One by one, or several; a name that there is not is told."""
    office = Office(tmp_path)
    office.issuer.revoke("bad")
    office.issuer.revoke("good", "bad")
    keys = {read_pem(pair.cert.read_text()).key for pair in (office.good, office.bad)}
    assert read_revoked(office.crl) == keys
    for name in ("nobody", "ca"):
        with pytest.raises(UsageError):
            office.issuer.revoke(name)
    assert read_revoked(office.crl) == keys


def _list(authority: Authority, serials: list[int], since: datetime, until_: datetime | None) -> bytes:
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority._certificate.subject)
    builder = builder.last_update(since).next_update(until_ or since + timedelta(days=9))
    for serial in serials:
        made = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since)
        builder = builder.add_revoked_certificate(
            made.add_extension(x509.CRLReason(x509.ReasonFlags.key_compromise), critical=False).build()
        )
    return builder.sign(authority._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@given(st.lists(st.integers(1, (1 << 159) - 1), max_size=5, unique=True), st.binary(max_size=60))
def test_a_list_is_read_as_it_was_written_and_nothing_else_is(
    authority: Authority, serials: list[int], noise: bytes
) -> None:
    """Each number is there once; and what is no list is refused, whatever it is."""
    now = datetime.now(UTC)
    made = x509.load_pem_x509_crl(_list(authority, serials, now, None))
    keys, next_at = revoked_in(made.public_bytes(serialization.Encoding.DER))
    assert len(keys) == len(serials)
    assert next_at == made.next_update_utc
    with pytest.raises(NoPrincipal):
        revoked_in(noise)
