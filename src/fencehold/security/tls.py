"""TLS as a server speaks it: its certificate, which clients it asks for one, and how both are replaced while it
runs.

1. TLS 1.2 at least. Clients are asked for a certificate not at all, optionally, or always; what they show must be
   signed by an authority of the file given for that, and by no other.
2. Certificates are read again when a file changes, or when asked to. New ones are for connections from then on; no
   connection is dropped. If they cannot be used, the old ones stay, and that is logged.
3. A server does not start with an expired certificate, nor with an expired list of revoked ones.
4. A list of revoked certificates is checked in every handshake, and open connections are ended when their
   certificate is added to it (`Certificates.revoked`).
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from fencehold.drivers.address import TlsFiles
from fencehold.drivers.tls import load_authorities, load_pair, load_revocations, stamp_of
from fencehold.errors import UsageError
from fencehold.security.certificates import (
    NoPrincipal,
    Read,
    pem_blocks,
    principal_in,
    read_der,
    read_pem,
    revoked_in,
)

WATCH_S = 1.0
"""How often files are checked for changes."""

_LOG = logging.getLogger("fencehold")


class Clients(Enum):
    """Whether clients are asked for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class ServerTls(NamedTuple):
    """What a listener is secured with."""

    cert: Path
    key: Path
    ca: Path | None = None
    """The authorities of the certificates of clients and of other nodes."""
    clients: Clients = Clients.NONE
    crl: Path | None = None
    """The revoked ones of those: a list by each of their authorities."""

    def checked(self) -> "ServerTls":
        """The same, if it is consistent.

        Raises:
            UsageError: clients are asked for certificates, and no authority for them is given.
        """
        if self.clients is not Clients.NONE and self.ca is None:
            raise UsageError(
                f"--tls-clients {self.clients.value} needs --tls-ca FILE: who signs the certificates of clients"
            )
        if self.clients is Clients.NONE and self.crl is not None:
            raise UsageError("--tls-crl is about certificates of clients: add --tls-clients and --tls-ca")
        return self

    @property
    def own(self) -> TlsFiles:
        """What a node shows others when it connects to them."""
        return TlsFiles(self.ca, self.cert, self.key, crl=self.crl if self.ca is not None else None)


def server_context(tls: ServerTls, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    """A context for a listener, which speaks these protocols (RFC 7301).

    Raises:
        UsageError: a file cannot be read, or is not what it should be; or the certificate has expired.
    """
    tls.checked()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation and compression only ever helped attackers.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # A session resumed by a ticket brings the old certificate, expired or not. Connections are long-lived here:
    # tickets gain nothing. (TLS 1.2 has a cache that Python cannot turn off; it is gone with the context when an
    # authority is replaced, and whether a certificate has expired is checked again.)
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if alpn:
        context.set_alpn_protocols(alpn)
    load_pair(context, tls.cert, tls.key)
    expires_at = expiry_of(tls.cert)
    if expires_at <= datetime.now(UTC):
        raise UsageError(f"the certificate in {tls.cert} expired at {expires_at:%Y-%m-%d %H:%M} UTC")
    if tls.ca is not None and tls.clients is not Clients.NONE:
        load_authorities(context, tls.ca)
        # A CA that is not self-signed, or is one of several, may be trusted as it stands in the file.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN if hasattr(ssl, "VERIFY_X509_PARTIAL_CHAIN") else 0
        required = tls.clients is Clients.REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        if tls.crl is not None:
            load_revocations(context, tls.crl)
    return context


def read_revoked(path: Path) -> frozenset[bytes]:
    """The keys of the certificates that a file of lists names.

    Raises:
        UsageError: it cannot be read, or is none, or a list of it has expired: no client would be admitted.
    """
    try:
        lists = [revoked_in(der) for der in pem_blocks(path.read_text(errors="replace"), "X509 CRL")]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except NoPrincipal as error:
        raise UsageError(f"{path}: {error}") from None
    due_at = min((at for _, at in lists if at is not None), default=None)
    if due_at is not None and due_at <= datetime.now(UTC):
        raise UsageError(f"the list of revoked certificates in {path} expired at {due_at:%Y-%m-%d %H:%M} UTC")
    return frozenset().union(*(keys for keys, _ in lists))


def expiry_of(cert: Path) -> datetime:
    """When the certificate of a file expires.

    Raises:
        UsageError: it cannot be read.
    """
    return read_file(cert).not_after


def read_file(cert: Path) -> Read:
    """The first certificate of a file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return read_pem(cert.read_text(errors="replace"))
    except OSError as error:
        raise UsageError(f"cannot read {cert}: {error.strerror or error}") from None
    except NoPrincipal as error:
        raise UsageError(f"{cert}: {error}") from None


def principal_of_file(cert: Path) -> str:
    """The principal of the certificate of a file; empty if it names none."""
    try:
        return principal_in(read_file(cert))
    except (UsageError, NoPrincipal):
        return ""


SOON = timedelta(days=14)


def notes_of(tls: ServerTls) -> list[str]:
    """Warnings about files that can be used, but should not be as they are."""
    notes = []
    if tls.key.stat().st_mode & 0o007:
        notes.append(f"every user here can read the key in {tls.key}: chmod o= {tls.key}")
    expires_at = expiry_of(tls.cert)
    if expires_at - datetime.now(UTC) < SOON:
        notes.append(f"the certificate in {tls.cert} expires at {expires_at:%Y-%m-%d %H:%M} UTC: renew it")
    return notes


class Certificates:
    """The context that new connections get, kept up to date with the files."""

    def __init__(self, tls: ServerTls, *, alpn: tuple[str, ...] = ()) -> None:
        """Read them.

        Raises:
            UsageError: as `server_context`.
        """
        self.tls = tls.checked()
        self._alpn = alpn
        self.revoked = read_revoked(tls.crl) if tls.crl is not None else frozenset()
        """The keys of revoked certificates (`certificates.key_of`)."""
        self.on_revoked: Callable[[], None] = _ignore
        """Called when they change."""
        self.context = server_context(tls, alpn)
        self.principal = principal_of_file(tls.cert)
        """The principal of its own certificate: other nodes show the same."""
        self.on_reloaded: Callable[[str, bool], None] = _log
        """Called with the result of a reload, and whether that is a problem."""
        self._stamp = self._stamped()

    @property
    def expires_at(self) -> datetime:
        return expiry_of(self.tls.cert)

    def is_revoked(self, shown: ssl.SSLObject | None) -> bool:
        """Whether a client has shown a certificate that is on the revocation list now."""
        der = shown.getpeercert(binary_form=True) if self.revoked and shown is not None else None
        try:
            return der is not None and read_der(der).key in self.revoked
        except NoPrincipal:
            # An unreadable certificate authenticates no client.
            return False

    def reload(self) -> bool:
        """Read them again. If they cannot be used, the old ones stay; returns whether they can."""
        self._stamp = self._stamped()
        try:
            revoked = read_revoked(self.tls.crl) if self.tls.crl is not None else frozenset()
            self.context = server_context(self.tls, self._alpn)
        except UsageError as error:
            self.on_reloaded(f"the old certificate stays in use, as the new one cannot be: {error}", True)
            return False
        self.principal = principal_of_file(self.tls.cert)
        self.on_reloaded(f"a new certificate is in use, valid until {self.expires_at:%Y-%m-%d %H:%M} UTC", False)
        if revoked != self.revoked:
            self.revoked = revoked
            self.on_revoked()
        return True

    async def watch(self) -> None:
        """Read them again whenever one of the files changes, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self._stamped() != self._stamp:
                self.reload()

    def _stamped(self) -> object:
        return stamp_of(self.tls.cert, self.tls.key, self.tls.ca, self.tls.crl)


def _ignore() -> None:
    """No callback is set."""


def _log(words: str, is_trouble: bool) -> None:
    _LOG.log(logging.WARNING if is_trouble else logging.INFO, words)
