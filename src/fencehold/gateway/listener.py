"""What all listeners of a gateway share: where they may listen, and their TLS.

1. It speaks TLS as a node does, by the same code: the same bounds of handshakes, the same certificates of
   clients, the same list of revoked ones, read again when a file changes or when asked to.
2. A connection whose certificate was revoked is ended when the list is read.
3. Refused clients, with the reason, are in the log of the listener, rate-limited per minute.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from fencehold.drivers.address import is_loopback
from fencehold.errors import UsageError
from fencehold.locks.log import Teller
from fencehold.security.channel import Factory
from fencehold.security.listener import HandshakeBounds, TlsListener
from fencehold.security.tls import Certificates, Clients, ServerTls

CLIENT_HELLO = b"\x16\x03"
"""How a TLS handshake begins, and neither HTTP nor HTTP/2."""
SPEAKS_TLS_HERE = "it speaks TLS, and this listener does not"
_BACKLOG = 1_024
_REFUSALS = Teller("fencehold", per_minute=60)
_LOG = logging.getLogger("fencehold")


def tls_of(
    cert: Path | None, key: Path | None, ca: Path | None, clients: str, crl: Path | None = None
) -> ServerTls | None:
    """TLS as the options say; None: none.

    Raises:
        UsageError: they do not fit together, or a file is invalid.
    """
    if clients not in [each.value for each in Clients]:
        raise UsageError(f"tls_clients is one of {', '.join(each.value for each in Clients)}, not {clients!r}")
    if cert is None and key is None:
        if ca is not None or crl is not None or clients != "none":
            raise UsageError("certificates of clients are for a listener that speaks TLS: add --tls-cert")
        return None
    if cert is None or key is None:
        raise UsageError("a certificate needs its key: say both --tls-cert and --tls-key")
    tls = ServerTls(cert, key, ca, Clients(clients), crl)
    # Read once now, so that errors are reported before anything is started.
    Certificates(tls)
    return tls


def check_listener(host: str, tls: ServerTls | None, *, insecure: bool) -> None:
    """Refuse to listen in the clear where other machines can connect.

    Raises:
        UsageError: it would, without `insecure`.
    """
    if tls is None and not insecure and not is_loopback(host):
        raise UsageError(
            f"other machines can reach {host}, and nothing would be encrypted: add --tls-cert and --tls-key, "
            "or --insecure on a network that you trust"
        )


def tell_refused(peer: str, why: str) -> None:
    """Log a refused client; a flood of them does not become a flood of messages."""
    _REFUSALS.tell(logging.WARNING, "refused", facts={"peer": peer, "why": why})


def tell_reloaded(words: str, is_trouble: bool) -> None:
    """Log the result of reloading certificates."""
    event = "certificate_kept" if is_trouble else "certificate_reloaded"
    _LOG.log(logging.WARNING if is_trouble else logging.INFO, event, extra={"facts": {"note": words}})


class TlsEntrance:
    """Accepts the connections of a TLS listener."""

    def __init__(
        self,
        tls: ServerTls,
        factory: Factory,
        *,
        alpn: str,
        on_revoked: Callable[[], None],
        plain_reply: bytes = b"",
        bounds: HandshakeBounds = HandshakeBounds(),  # noqa: B008 - a value
    ) -> None:
        """Read its files.

        `plain_reply`: sent to a client that does not speak TLS. `on_revoked`: called when the list of revoked
        certificates has changed; open connections with one are to be ended (`is_revoked`).

        Raises:
            UsageError: they cannot be used.
        """
        self._certificates = Certificates(tls, alpn=(alpn,))
        self._certificates.on_reloaded = tell_reloaded
        self._certificates.on_revoked = on_revoked
        self._listener = TlsListener(
            factory, self._certificates, bounds, plain_reply=plain_reply, on_trouble=tell_refused
        )
        self._watching: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> int:
        """Accept connections; returns the port.

        Raises:
            OSError: the address is in use, or not this machine's.
        """
        port = await self._listener.open(host, port, _BACKLOG)
        self._watching = asyncio.create_task(self._certificates.watch(), name="fencehold certificates")
        return port

    def close(self) -> None:
        """Accept no more."""
        if self._watching is not None:
            self._watching.cancel()
        self._listener.close()

    def reload(self) -> bool:
        """Read the files again, as at SIGHUP; returns whether they can be used."""
        return self._certificates.reload()

    def is_revoked(self, shown: ssl.SSLObject | None) -> bool:
        """Whether a connection has shown a certificate that is on the revocation list now."""
        return self._certificates.is_revoked(shown)
