"""Who a certificate names: a SPIFFE ID, or a common name, as a whole; what is odd names nobody."""

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography.x509.name import _ASN1Type

from fencehold import PermissionDenied, Unavailable, aio
from fencehold.security.admission import How
from fencehold.security.certificates import (
    NoPrincipal,
    check_principal,
    principal_in,
    principal_of,
    read_der,
    read_pem,
)
from fencehold.security.tls import Clients
from tests.unit.security.authority import Authority, Pair, tls_of, url_of
from tests.unit.security.test_listener import run, secured


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def named(pair: Pair) -> str:
    return principal_in(read_pem(pair.cert.read_text()))


def test_the_common_name_is_taken_whole(authority: Authority) -> None:
    """As it stands: case and all."""
    assert named(authority.client("billing.Prod-7@example")) == "billing.Prod-7@example"


def test_a_spiffe_id_is_preferred(authority: Authority) -> None:
    """The common name beside it is for people."""
    spiffe = "spiffe://example.org/ns/shop/sa/billing"
    assert named(authority.odd(["somebody"], [spiffe])) == spiffe


ODD_NAMES = {
    "a NUL within": "admin\0.evil",
    "a NUL at the end": "admin\0",
    "a trailing space": "admin ",
    "a leading space": " admin",
    "a trailing dot": "admin.",
    "a space within": "ad min",
    "a look-alike letter": "\u0430dmin",
    "a full-width letter": "\uff41dmin",
    "a zero-width space": "admin\u200b",
    "a new line": "admin\r\nOK",
    "over-long": "a" * 129,
    "empty": "",
    "the user of tokens": "token",
    "a path to the root": "//admin",
}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
def test_an_odd_common_name_names_nobody(authority: Authority, name: str) -> None:
    """Neither what stands before the odd part, nor what it looks like."""
    with pytest.raises(NoPrincipal):
        named(authority.odd([name]))
    with pytest.raises(NoPrincipal):
        check_principal(name)


ODD_URIS = {
    "a NUL": "spiffe://example.org/billing\0/admin",
    "an upper-case trust domain": "spiffe://Example.org/billing",
    "no path": "spiffe://example.org",
    "an empty path": "spiffe://example.org/",
    "an empty part": "spiffe://example.org//billing",
    "a way up": "spiffe://example.org/a/../admin",
    "a way nowhere": "spiffe://example.org/./admin",
    "a port": "spiffe://example.org:80/billing",
    "a user": "spiffe://me@example.org/billing",
    "a query": "spiffe://example.org/billing?x=1",
    "percent signs": "spiffe://example.org/billing%2fadmin",
    "another scheme": "https://example.org/billing",
    "the scheme in capitals": "SPIFFE://example.org/billing",
    "over-long": "spiffe://example.org/" + "a" * 2_048,
    "empty": "",
}


@pytest.mark.parametrize("uri", ODD_URIS.values(), ids=ODD_URIS)
def test_an_odd_uri_names_nobody(authority: Authority, uri: str) -> None:
    """Not even the common name beside it, which is a good one."""
    with pytest.raises(NoPrincipal):
        named(authority.odd(["billing"], [uri]))


def test_two_names_name_nobody(authority: Authority) -> None:
    """Neither the first nor the last of them."""
    with pytest.raises(NoPrincipal, match="2 URIs"):
        named(authority.odd([], ["spiffe://example.org/a", "spiffe://example.org/b"]))
    with pytest.raises(NoPrincipal, match="2 common names"):
        named(authority.odd(["billing", "admin"]))
    with pytest.raises(NoPrincipal, match="0 common names"):
        named(authority.odd())


def test_an_authority_is_nobody(authority: Authority) -> None:
    """Though it is signed as a client's would be."""
    with pytest.raises(NoPrincipal, match="authority"):
        named(authority.odd(["billing"], authority=True))


def test_a_name_of_an_odd_kind_names_nobody(authority: Authority) -> None:
    """Two bytes a character can be read in two ways."""
    with pytest.raises(NoPrincipal):
        named(authority.odd(["admin"], kind=_ASN1Type.BMPString))


def test_what_is_no_certificate_is_refused_and_nothing_worse(authority: Authority) -> None:
    """Cut anywhere, or with any byte changed: read or refused."""
    der = ssl.PEM_cert_to_DER_cert(authority.odd(["billing"], ["spiffe://example.org/a"]).cert.read_text())
    for end in range(len(der)):
        with pytest.raises(NoPrincipal):
            read_der(der[:end])
    for at in range(len(der)):
        for flip in (0x01, 0x80, 0xFF):
            changed = der[:at] + bytes([der[at] ^ flip]) + der[at + 1 :]
            try:
                read_der(changed)
            except NoPrincipal:
                continue


def test_whether_it_has_expired_is_asked_again(authority: Authority) -> None:
    """A session of TLS 1.2 that is taken up brings a certificate that no handshake has looked at again."""
    pem = authority.client("billing", expired=True).cert.read_text()

    class Peer:
        def getpeercert(self, binary_form: bool = False) -> object:
            return ssl.PEM_cert_to_DER_cert(pem) if binary_form else {}

    with pytest.raises(NoPrincipal, match="has expired"):
        principal_of(Peer())  # type: ignore[arg-type]


def test_a_connection_has_the_principal_of_its_certificate(authority: Authority) -> None:
    """And it is known how it is known; without a certificate it is nobody."""
    mine = authority.odd([], ["spiffe://example.org/ns/shop/sa/billing"])

    async def scenario() -> None:
        async with secured(tls_of(authority, clients=Clients.OPTIONAL)) as box:
            for pair, known in (
                (mine, ("spiffe://example.org/ns/shop/sa/billing", How.CERTIFICATE)),
                (None, ("", How.NOT)),
            ):
                async with aio.connect(url_of(box.port, authority, pair)):
                    (connection,) = box.server.door.connections
                    assert (connection.principal, connection.known_by) == known
                await box.until(lambda: not box.server.door.connections)

    run(asyncio.new_event_loop, scenario)


@pytest.mark.parametrize(
    "odd", [["admin\0evil"], ["billing", "admin"], ["\u0430dmin"]], ids=["NUL", "two", "look-alike"]
)
def test_an_odd_certificate_is_not_let_in(authority: Authority, odd: list[str]) -> None:
    """Though a trusted authority signed it. Both sides are told why."""
    mine = authority.odd(odd)

    async def scenario() -> None:
        async with secured(tls_of(authority, clients=Clients.OPTIONAL)) as box:
            with pytest.raises((PermissionDenied, Unavailable), match="common name"):
                async with aio.connect(url_of(box.port, authority, mine), connect_timeout=1):
                    pass
            assert "common name" in box.refused[0]
            await box.until(lambda: not box.server.door.connections)

    run(asyncio.new_event_loop, scenario)
