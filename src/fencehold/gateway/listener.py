"""What every listener of a gateway is told alike: where it may listen, and its TLS, as the server's own is."""

import ssl
from pathlib import Path
from typing import NamedTuple

from fencehold.drivers.address import is_loopback
from fencehold.errors import UsageError

CLIENTS = ("none", "optional", "required")
"""Whether clients are asked for a certificate."""


class ListenerTls(NamedTuple):
    """Files in PEM: a certificate and its chain, its key, and who signs the certificates of clients."""

    cert: Path
    key: Path
    ca: Path | None = None
    clients: str = "none"

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """What the files hold.

        Raises:
            UsageError: one cannot be read.
        """
        try:
            ca = None if self.ca is None else self.ca.read_bytes()
            return self.cert.read_bytes(), self.key.read_bytes(), ca
        except OSError as error:
            raise UsageError(f"cannot read {error.filename}: {error.strerror}") from None

    def changed_at(self) -> tuple[float, ...]:
        """When each file was last changed; 0 if it is not there, as while it is replaced."""
        files = (self.cert, self.key, *([self.ca] if self.ca else []))
        return tuple(file.stat().st_mtime if file.exists() else 0.0 for file in files)


def tls_of(cert: Path | None, key: Path | None, ca: Path | None, clients: str) -> ListenerTls | None:
    """What options say of TLS; None: none.

    Raises:
        UsageError: they do not fit together, or a file is not what it should be.
    """
    if clients not in CLIENTS:
        raise UsageError(f"tls_clients is one of {', '.join(CLIENTS)}, not {clients!r}")
    if cert is None and key is None:
        if ca is not None or clients != "none":
            raise UsageError("certificates of clients are for a listener that speaks TLS: add --tls-cert")
        return None
    if cert is None or key is None:
        raise UsageError("a certificate needs its key: give both --tls-cert and --tls-key")
    if clients != "none" and ca is None:
        raise UsageError("to ask clients for certificates, name the CA that signs them: --tls-ca")
    tls = ListenerTls(cert, key, ca, clients)
    tls.read()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(f"{cert} and {key} are no certificate and its key: {error}") from None
    return tls


def check_listener(host: str, tls: ListenerTls | None, *, insecure: bool) -> None:
    """Refuse to listen in the clear where other machines can connect.

    Raises:
        UsageError: it would; nobody said that it may.
    """
    if tls is None and not insecure and not is_loopback(host):
        raise UsageError(
            f"other machines can reach {host}, and nothing would be encrypted: add --tls-cert and --tls-key, "
            "or --insecure on a network that you trust"
        )
