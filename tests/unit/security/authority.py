"""Authorities and certificates for tests: good ones by trustme, odd ones made by hand."""

import warnings
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fencehold.security.tls import Clients, ServerTls


class Pair(NamedTuple):
    """A certificate and its key, in files."""

    cert: Path
    key: Path


class Authority:
    """A CA, and what it has signed, in one directory."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.file = folder / f"{name}.pem"
        self.ca.cert_pem.write_to_path(self.file)

    def server(self, *hosts: str, name: str = "server", expired: bool = False, common: str = "node") -> Pair:
        """For a server that is called by these names."""
        return self.leaf(*(hosts or ("127.0.0.1", "localhost")), name=name, expired=expired, common=common)

    def leaf(self, *names: str, name: str, expired: bool = False, common: str | None = None) -> Pair:
        past = datetime.now(UTC) - timedelta(days=1)
        made = self.ca.issue_cert(
            *names,
            common_name=common,
            key_type=trustme.KeyType.ECDSA,
            not_before=past - timedelta(days=1) if expired else None,
            not_after=past if expired else None,
        )
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        pair.cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(pair.key)
        return pair

    def client(self, common: str, *, name: str = "client", expired: bool = False) -> Pair:
        """For a client of this common name."""
        return self.odd([common], name=name, expired=expired)

    def odd(
        self,
        commons: Iterable[str] = (),
        uris: Iterable[str] = (),
        *,
        name: str = "odd",
        expired: bool = False,
        authority: bool = False,
        kind: "x509.name._ASN1Type | None" = None,
    ) -> Pair:
        """With whatever names; cryptography's own checks are for those who mean well."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        until = now - timedelta(minutes=1) if expired else now + timedelta(days=1)
        parts = [_attribute(common, kind) for common in commons]
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(parts))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if urls := [x509.UniformResourceIdentifier(uri) for uri in uris]:
            builder = builder.add_extension(x509.SubjectAlternativeName(urls), critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        pair.cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    @property
    def _certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.ca.cert_pem.bytes())

    @property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.ca.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key


def _attribute(common: str, kind: "x509.name._ASN1Type | None") -> "x509.NameAttribute[str]":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x509.NameAttribute(NameOID.COMMON_NAME, common, _type=kind, _validate=False)


def tls_of(
    authority: Authority, pair: Pair | None = None, clients: Clients = Clients.NONE, ca: Authority | None = None
) -> ServerTls:
    """What a server is secured with."""
    pair = pair or authority.server()
    return ServerTls(pair.cert, pair.key, (ca or authority).file, clients)


def url_of(port: int, authority: Authority, pair: Pair | None = None, host: str = "127.0.0.1") -> str:
    """Where a secured server is, and with which files."""
    mine = f"&cert={pair.cert}&key={pair.key}" if pair else ""
    return f"fenceholds://{host}:{port}?ca={authority.file}{mine}"
