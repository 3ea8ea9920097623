"""What every listener of a gateway is told alike: where it may listen, and its TLS.

1. It speaks TLS as a node does, by the same code: the same bounds of handshakes, the same certificates of
   clients, the same list of revoked ones, read again when a file changes or when asked to.
2. A connection whose certificate was revoked is ended when the list is read.
3. Why somebody was not let in is told in the log of the listener, so many times a minute at the most.
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
    """What options say of TLS; None: none.

    Raises:
        UsageError: they do not fit together, or a file is not what it should be.
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
    # Read once now, so that what is wrong with them is said before anything is started.
    Certificates(tls)
    return tls


def check_listener(host: str, tls: ServerTls | None, *, insecure: bool) -> None:
    """Refuse to listen in the clear where other machines can connect.

    Raises:
        UsageError: it would; nobody said that it may.
    """
    if tls is None and not insecure and not is_loopback(host):
        raise UsageError(
            f"other machines can reach {host}, and nothing would be encrypted: add --tls-cert and --tls-key, "
            "or --insecure on a network that you trust"
        )


def tell_refused(peer: str, why: str) -> None:
    """Tell that somebody was not let in; a flood of them does not become a flood of words."""
    _REFUSALS.tell(logging.WARNING, "refused", facts={"peer": peer, "why": why})


def tell_reloaded(words: str, is_trouble: bool) -> None:
    """Tell what became of certificates that were read again."""
    event = "certificate_kept" if is_trouble else "certificate_reloaded"
    _LOG.log(logging.WARNING if is_trouble else logging.INFO, event, extra={"facts": {"note": words}})


class TlsEntrance:
    """Where the connections of a listener come in that speaks TLS."""

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

        `plain_reply`: what is said to who does not speak TLS. `on_revoked`: called when other certificates than
        before are on the list; connections that are open with one are to be ended (`is_revoked`).

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
        """Take connections; returns the port.

        Raises:
            OSError: the address is in use, or not this machine's.
        """
        port = await self._listener.open(host, port, _BACKLOG)
        self._watching = asyncio.create_task(self._certificates.watch(), name="fencehold certificates")
        return port

    def close(self) -> None:
        """Take no more."""
        if self._watching is not None:
            self._watching.cancel()
        self._listener.close()

    def reload(self) -> bool:
        """Read the files again, as at SIGHUP; says whether they can be used."""
        return self._certificates.reload()

    def is_revoked(self, shown: ssl.SSLObject | None) -> bool:
        """Whether a connection has shown a certificate that is on the list by now."""
        return self._certificates.is_revoked(shown)
