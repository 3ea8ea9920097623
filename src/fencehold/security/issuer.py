"""A certificate authority of one's own: it signs the certificates of a first cluster, and renews them.

1. Existing files are not overwritten, except by a renewal; keys are readable by their owner alone from the first
   byte.
2. A certificate is for nodes, which serve and connect, or for one client. All nodes have the same common name:
   that is how they recognize one another.
3. A renewal has a new key and the same names. Files are replaced atomically.

It is for users without an authority. Users who have one (Vault, cert-manager, SPIRE, step-ca) use that.
"""

import ipaddress
import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fencehold.errors import Unsupported, UsageError
from fencehold.security.certificates import check_principal

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

NODE = "fencehold-node"
"""The common name of all nodes."""
CA_DAYS = 3_650
DAYS = 365
CRL = "crl.pem"
"""The list of revoked certificates. It is valid as long as an authority is: it is not reissued every week, and an
expired one would lock all clients out."""
_BACKDATED = timedelta(minutes=5)
"""For clocks that are a little behind."""


class Pair(NamedTuple):
    """A certificate and its key, in files."""

    cert: Path
    key: Path


def pair_in(folder: Path, name: str) -> Pair:
    """Where a certificate of that name is, or will be."""
    return Pair(folder / f"{name}.pem", folder / f"{name}.key")


class Issuer:
    """An authority in a directory."""

    def __init__(self, folder: Path) -> None:
        """Read it.

        Raises:
            UsageError: there is none.
            Unsupported: `cryptography` is not installed.
        """
        _needed()
        self.folder = folder
        self.ca = pair_in(folder, "ca")
        self._certificate, self._key = _read(self.ca)

    @classmethod
    def make(cls, folder: Path) -> "Issuer":
        """Make an authority in a directory that has none.

        Raises:
            UsageError: it has one, or cannot be written.
            Unsupported: `cryptography` is not installed.
        """
        _needed()
        ca = pair_in(folder, "ca")
        for path in ca:
            if path.exists():
                raise UsageError(
                    f"{path} exists already: `fencehold security renew` and `cert` sign with it; "
                    "for another authority choose another directory"
                )
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(f"cannot make {folder}: {error.strerror}") from None
        key = _new_key()
        name = _subject("Fencehold CA")
        builder = _builder(name, name, key, CA_DAYS)
        builder = _with_authority(builder, key)
        _write(ca, _signed(builder, key), key)
        return cls(folder)

    def for_node(self, name: str, hosts: Sequence[str], days: int = DAYS) -> Pair:
        """A certificate for a node with these names and addresses.

        Raises:
            UsageError: one of them is invalid, or the file exists already.
        """
        pair = self._new(name)
        self._issue(pair, NODE, _alternatives(hosts), days, serves=True)
        return pair

    def for_client(self, name: str, principal: str, days: int = DAYS) -> Pair:
        """A certificate for a client: its common name is the principal, or its URI, if that is a SPIFFE ID.

        Raises:
            UsageError: the principal is invalid, or the file exists already.
        """
        pair = self._new(name)
        check_principal(principal)
        if principal == NODE:
            raise UsageError(f"{NODE} is reserved for nodes: for a node, give its --host")
        self._issue(
            pair, principal, _alternatives([principal]) if "://" in principal else None, days, serves=False
        )
        return pair

    def renew(self, name: str, days: int = DAYS) -> Pair:
        """A new key and certificate with the names of the old one.

        Raises:
            UsageError: there is none of that name.
        """
        from cryptography import x509  # noqa: PLC0415
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

        pair = pair_in(self.folder, name)
        if name == "ca":
            raise UsageError("an authority is not renewed but replaced: see the page on rotating certificates")
        old, _ = _read(pair)
        uses = old.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        try:
            names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            names = None
        common = old.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        subject = str(common[0].value) if common else ""
        self._issue(pair, subject, names, days, serves=ExtendedKeyUsageOID.SERVER_AUTH in uses)
        return pair

    def revoke(self, *names: str) -> Path:
        """Add certificates to the list of revoked ones, which is made if there is none; returns its file.

        Raises:
            UsageError: there is no certificate of that name, or the list cannot be read or written.
        """
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415

        path = self.folder / CRL
        now = datetime.now(UTC)
        serials = {entry.serial_number: entry.revocation_date_utc for entry in self._revoked(path)}
        for name in names:
            if name == "ca":
                raise UsageError("an authority revokes what it signed, not itself: stop trusting it, see the docs")
            serials.setdefault(_read_certificate(pair_in(self.folder, name).cert).serial_number, now)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject)
        builder = builder.last_update(now - _BACKDATED).next_update(now + timedelta(days=CA_DAYS))
        for serial, at in serials.items():
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(at).build()
            builder = builder.add_revoked_certificate(entry)
        made = builder.sign(self._key, hashes.SHA256())
        try:
            _put(path, made.public_bytes(serialization.Encoding.PEM), 0o644)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        return path

    def _revoked(self, path: Path) -> "x509.CertificateRevocationList | tuple[()]":
        from cryptography import x509  # noqa: PLC0415

        if not path.exists():
            return ()
        try:
            return x509.load_pem_x509_crl(path.read_bytes())
        except (OSError, ValueError):
            raise UsageError(f"{path} is not a list of revoked certificates") from None

    def names(self) -> list[str]:
        """Of all certificates here but its own."""
        found = sorted(path.stem for path in self.folder.glob("*.pem") if path.with_suffix(".key").exists())
        return [name for name in found if name != "ca"]

    def _new(self, name: str) -> Pair:
        pair = pair_in(self.folder, name)
        if "/" in name or not name or name == "ca":
            raise UsageError(f"a certificate is a file of this directory, and {name!r} is not a valid name of one")
        for path in pair:
            if path.exists():
                raise UsageError(f"{path} exists already: `fencehold security renew` replaces it")
        return pair

    def _issue(
        self, pair: Pair, common: str, names: "x509.SubjectAlternativeName | None", days: int, *, serves: bool
    ) -> None:
        from cryptography import x509  # noqa: PLC0415
        from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

        key = _new_key()
        is_spiffe = common.startswith("spiffe://")
        subject = x509.Name([]) if is_spiffe or not common else _subject(common)
        builder = _builder(subject, self._certificate.subject, key, days)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if serves else [])]
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if names is not None:
            builder = builder.add_extension(names, critical=is_spiffe)
        _write(pair, _signed(builder, self._key), key)


def _needed() -> None:
    try:
        import cryptography  # noqa: F401, PLC0415
    except ImportError:
        raise Unsupported("certificates are made with `cryptography`: pip install 'fencehold[security]'") from None


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    return ec.generate_private_key(ec.SECP256R1())


def _subject(common: str) -> "x509.Name":
    from cryptography import x509  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    except ValueError as error:
        raise UsageError(f"{common!r} cannot be a common name: {error}") from None


def _builder(
    subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey", days: int
) -> "x509.CertificateBuilder":
    from cryptography import x509  # noqa: PLC0415

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _with_authority(
    builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey"
) -> "x509.CertificateBuilder":
    from cryptography import x509  # noqa: PLC0415

    return (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> "x509.KeyUsage":
    from cryptography import x509  # noqa: PLC0415

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey") -> "x509.Certificate":
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415

    return builder.sign(key, hashes.SHA256())


def _alternatives(names: Sequence[str]) -> "x509.SubjectAlternativeName":
    from cryptography import x509  # noqa: PLC0415

    def each(name: str) -> "x509.GeneralName":
        if "://" in name:
            return x509.UniformResourceIdentifier(name)
        try:
            return x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            pass
        try:
            return x509.DNSName(name)
        except ValueError:
            raise UsageError(f"{name!r} is not a host name in plain ASCII") from None

    return x509.SubjectAlternativeName([each(name) for name in names])


def _read_certificate(path: Path) -> "x509.Certificate":
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path} is not a certificate") from None


def _read(pair: Pair) -> "tuple[x509.Certificate, EllipticCurvePrivateKey]":
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        certificate = x509.load_pem_x509_certificate(pair.cert.read_bytes())
        key = load_pem_private_key(pair.key.read_bytes(), None)
    except OSError as error:
        hint = ": `fencehold security init` makes one" if pair.cert.stem == "ca" else ""
        raise UsageError(f"cannot read {error.filename}: {error.strerror}{hint}") from None
    except (ValueError, TypeError):
        raise UsageError(f"{pair.cert} and {pair.key} are not a certificate and its unencrypted key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{pair.key} is not a key that was made here")
    return certificate, key


def _write(pair: Pair, certificate: "x509.Certificate", key: "EllipticCurvePrivateKey") -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        _put(pair.key, secret, 0o600)
        _put(pair.cert, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    except OSError as error:
        raise UsageError(f"cannot write {pair.cert.parent}: {error.strerror}") from None


def _put(path: Path, data: bytes, mode: int) -> None:
    """Written to a temporary file, then renamed: no server reads half of it."""
    handle, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
