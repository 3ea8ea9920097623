"""Certificates: the principal of a peer's certificate, and how long it is valid.

1. The principal is the one URI among the alternative names, if there is any; it must be a SPIFFE ID. Otherwise it
   is the one common name of the subject.
2. It is compared as a whole, and what could be mistaken for something else is refused: a NUL or any other
   character that is not plain ASCII, a space or a dot at an end, two names where one is expected, an empty or an
   over-long one.
3. The certificate of an authority is not a login: its owner could as well sign any other.
4. Nothing is looked up: no name server, no address, no header decides who a peer is.

That a trusted authority signed it, and that it is valid now, the handshake has checked before (OpenSSL). What is
in it is read here from its DER form, strictly, and must be what OpenSSL reads in it: if two readers do not agree
on a name, it is refused.
"""

import re
import ssl
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from fencehold.errors import PermissionDenied

COMMON_NAME_BYTES_MAX = 128
SPIFFE_BYTES_MAX = 2_048
_BASIC_CONSTRAINTS, _ALTERNATIVE_NAMES = b"\x55\x1d\x13", b"\x55\x1d\x11"
_COMMON_NAME_ID = b"\x55\x04\x03"

_COMMON_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._@:+=/-]*[A-Za-z0-9])?")
_TRUST_DOMAIN = r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?"
_SPIFFE = re.compile(rf"spiffe://{_TRUST_DOMAIN}(?:/(?!\.{{1,2}}(?:/|$))[A-Za-z0-9._-]+)+")

TOKEN_USER = "token"
"""No principal: the user name under which a token is sent."""
SPEAKS_FOR = "for:"
"""The prefix of the user that a listener speaks for; the secret is its own token."""
COMES_FROM = "from:"
"""The prefix of the user of a login that a listener passes on: `from:ADDRESS USER`, and `KEY SECRET` as the
secret. No principal has a space in it."""
ALONE = "="
"""The end of the address if the connection is that client's alone: `from:ADDRESS= USER`. Other connections of a
listener are shared by all clients with the same login, from any address."""


class NoPrincipal(PermissionDenied):
    """A certificate that names no principal, or an ambiguous one; the message says why."""


def check_principal(name: str) -> str:
    """A principal, as given by hand: a SPIFFE ID, or a name like that of a certificate's subject.

    Raises:
        NoPrincipal: it cannot be one.
    """
    if name.startswith("spiffe:"):
        return _spiffe(name)
    return _common_name(name, "a name")


def principal_of(peer: ssl.SSLObject) -> str:
    """The principal of a connection's peer; empty if it showed no certificate.

    Raises:
        NoPrincipal: its certificate names none, or is ambiguous.
    """
    der = peer.getpeercert(binary_form=True)
    if der is None:
        return ""
    read = read_der(der)
    if read.not_after <= datetime.now(UTC):
        # A full handshake would have refused it; one that resumes a session of TLS 1.2 does not check again.
        raise NoPrincipal("the client certificate has expired")
    principal = principal_in(read)
    try:
        shown: Any = peer.getpeercert() or {}
    except ValueError:
        raise NoPrincipal("the client certificate has names that are not text") from None
    uris = tuple(value for kind, value in shown.get("subjectAltName", ()) if kind == "URI")
    names = tuple(value for part in shown.get("subject", ()) for kind, value in part if kind == "commonName")
    if (uris, names) != (read.uris, read.common_names):
        raise NoPrincipal("the names in the client certificate can be read in two ways")
    return principal


def principal_in(read: "Read") -> str:
    """The principal that a certificate names.

    Raises:
        NoPrincipal: none, or ambiguous.
    """
    if read.is_authority:
        raise NoPrincipal("the client certificate is that of an authority, which cannot log in")
    uris, names = read.uris, read.common_names
    if len(uris) > 1:
        raise NoPrincipal(f"the client certificate has {len(uris)} URIs as names, not one")
    if uris:
        return _spiffe(uris[0])
    if len(names) != 1:
        raise NoPrincipal(f"the client certificate has {len(names)} common names and no SPIFFE ID, not one")
    return _common_name(names[0], "the common name of the client certificate")


def _spiffe(uri: str) -> str:
    # Never shown whole: it may be long, and is the peer's text.
    if not uri.startswith("spiffe://"):
        raise NoPrincipal(f"the URI of a client certificate is a SPIFFE ID (spiffe://…), not {uri[:40]!a}")
    if len(uri.encode(errors="replace")) > SPIFFE_BYTES_MAX:
        raise NoPrincipal(f"a SPIFFE ID has at most {SPIFFE_BYTES_MAX} bytes")
    if _SPIFFE.fullmatch(uri) is None:
        raise NoPrincipal(f"not a SPIFFE ID of a workload (spiffe://domain/path): {uri[:80]!a}")
    return uri


def _common_name(name: str, what: str) -> str:
    if len(name.encode(errors="replace")) > COMMON_NAME_BYTES_MAX:
        raise NoPrincipal(f"{what} has at most {COMMON_NAME_BYTES_MAX} bytes")
    if _COMMON_NAME.fullmatch(name) is None or "//" in name:
        raise NoPrincipal(f"{what} is of ASCII letters, digits and . _ @ : + = / - within, not {name[:40]!a}")
    if name.lower() == TOKEN_USER:
        raise NoPrincipal(f"{what} is {name!a}, which is not a name but reserved for tokens")
    return name


class Read(NamedTuple):
    """What is read from the DER form."""

    not_before: datetime
    not_after: datetime
    is_authority: bool
    common_names: tuple[str, ...]
    uris: tuple[str, ...]
    key: bytes = b""
    """What distinguishes it from all others: its issuer and serial number (`key_of`)."""


def read_pem(text: str) -> Read:
    """The first certificate of a PEM file.

    Raises:
        NoPrincipal: there is none that can be read.
    """
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    start = text.find(begin)
    stop = text.find(end, start)
    if start < 0 or stop < 0:
        raise NoPrincipal("there is no certificate in PEM form")
    try:
        return read_der(ssl.PEM_cert_to_DER_cert(text[start : stop + len(end)]))
    except ValueError:
        raise NoPrincipal("there is no certificate in PEM form") from None


def read_der(der: bytes) -> Read:
    """Read a certificate (RFC 5280, 4.1).

    Raises:
        NoPrincipal: it is none, or not encoded correctly.
    """
    try:
        ((_, certificate),) = _items(der)
        (_, tbs), *_ = _items(certificate)
        fields = list(_items(tbs))
        if fields[0][0] == 0xA0:
            # The version, which the oldest certificates have not.
            fields = fields[1:]
        not_before, not_after = (_instant(*field) for field in _items(fields[3][1]))
        extensions = next((value for tag, value in fields if tag == 0xA3), b"")
        return Read(
            not_before,
            not_after,
            _is_authority(extensions),
            _common_names(fields[4][1]),
            _uris(extensions),
            key_of(fields[2][1], fields[0][1]),
        )
    except (ValueError, IndexError):
        raise NoPrincipal("the certificate cannot be read") from None


def key_of(issuer: bytes, serial: bytes) -> bytes:
    """A certificate by its issuer and serial number, both in DER."""
    return blake2b(len(issuer).to_bytes(4) + issuer + serial, digest_size=16).digest()


def revoked_in(der: bytes) -> tuple[frozenset[bytes], datetime | None]:
    """The keys of the certificates on a list of revoked ones (RFC 5280, 5.1), and when the next list is due.

    Raises:
        NoPrincipal: it is no such list.
    """
    try:
        ((_, signed),) = _items(der)
        (_, tbs), *_ = _items(signed)
        fields = list(_items(tbs))
        if fields[0][0] == 0x02:
            # The version.
            fields = fields[1:]
        issuer, rest = fields[1][1], fields[3:]
        is_due = bool(rest) and rest[0][0] in (0x17, 0x18)
        next_at = _instant(*rest.pop(0)) if is_due else None
        entries = rest[0][1] if rest and rest[0][0] == 0x30 else b""
        return frozenset(key_of(issuer, next(_items(each))[1]) for _, each in _items(entries)), next_at
    except (ValueError, IndexError, StopIteration):
        raise NoPrincipal("the list of revoked certificates cannot be read") from None


def pem_blocks(text: str, kind: str) -> list[bytes]:
    """The DER form of all blocks of a kind in a PEM file.

    Raises:
        NoPrincipal: one is not in PEM form.
    """
    begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
    try:
        return [b64decode("".join(part.partition(end)[0].split())) for part in text.split(begin)[1:]]
    except ValueError:
        raise NoPrincipal(f"a block of {kind} is not in PEM form") from None


def _common_names(subject: bytes) -> tuple[str, ...]:
    parts = [list(_items(part)) for _, among in _items(subject) for _, part in _items(among)]
    return tuple(_text(*value) for (_, kind), value in parts if kind == _COMMON_NAME_ID)


def _text(tag: int, value: bytes) -> str:
    """UTF-8, printable, IA5. Strings of two or four bytes a character are as old as they are ambiguous."""
    if tag not in (0x0C, 0x13, 0x16):
        raise ValueError("a text of an odd kind")
    return value.decode("utf-8" if tag == 0x0C else "ascii")


def _uris(extensions: bytes) -> tuple[str, ...]:
    names = _extension(extensions, _ALTERNATIVE_NAMES)
    return tuple(value.decode("utf-8") for tag, value in _items(names) if tag == 0x86)


def _is_authority(extensions: bytes) -> bool:
    constraints = _extension(extensions, _BASIC_CONSTRAINTS)
    return any(tag == 0x01 and value != b"\x00" for tag, value in _items(constraints))


def _extension(extensions: bytes, wanted: bytes) -> bytes:
    """What is in the one sequence that an extension is; empty if it is not there."""
    if not extensions:
        return b""
    ((_, each),) = _items(extensions)
    found = [list(_items(extension)) for _, extension in _items(each)]
    said = [parts[-1][1] for parts in found if parts[0] == (0x06, wanted)]
    if len(said) > 1:
        raise ValueError("an extension is there twice")
    if not said:
        return b""
    ((_, inner),) = _items(said[0])
    return inner


def _instant(tag: int, value: bytes) -> datetime:
    text = value.decode("ascii")
    if tag == 0x17:
        # Two digits of a year, as RFC 5280 reads them.
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The items of a constructed value: the tag of each, and what is in it."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            if not 0 < size <= 4:
                raise ValueError("a length that cannot be")
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError("cut off")
        yield tag, data[at : at + length]
        at += length
