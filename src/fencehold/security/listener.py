"""A TLS listener: it accepts connections, performs their handshakes, and hands over those that succeed.

1. Handshakes are bounded in seconds and in number. When there is one more, the oldest of the address that has the
   most of them is dropped: a real client needs milliseconds, and is done by then. So a thousand that were begun
   and left open lock no client out.
2. Each handshake has the certificate that is current when it begins.
3. A plaintext client gets an error in its own protocol, and why a handshake failed is reported at this end, in
   words, a bounded number of times a second.
"""

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from fencehold.security.channel import Buffers, Factory, NotTls, TlsHandshake
from fencehold.security.tls import Certificates

_ACCEPT_AT_ONCE = 64
_ACCEPT_AGAIN_S = 0.5
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TOLD_PER_S = 5
_LINGER_S = 0.3
"""How long a client has to read why its handshake failed before the connection is closed."""

Trouble = Callable[[str, str], None]
"""Called with the address of a failed handshake, and why it failed."""


class HandshakeBounds(NamedTuple):
    """The bounds of handshakes."""

    handshakes_max: int = 1_024
    handshake_seconds_max: float = 5.0


class TlsListener:
    """Listening sockets and the handshakes in flight."""

    def __init__(
        self,
        factory: Factory,
        certificates: Certificates,
        bounds: HandshakeBounds,
        *,
        plain_reply: bytes = b"",
        on_trouble: Trouble = lambda _peer, _why: None,
    ) -> None:
        self._factory = factory
        self._certificates = certificates
        self._bounds = bounds
        self._plain_reply = plain_reply
        """Sent to a client that does not speak TLS."""
        self._on_trouble = on_trouble
        self._buffers = Buffers()
        self._sockets: list[socket.socket] = []
        self._under_way: dict[str, dict[asyncio.Task[None], None]] = {}
        """By address, in the order they began."""
        self._count = 0
        self._told_in = 0.0
        self._told = 0
        self.dropped = 0
        """Handshakes that had to make room for others."""

    async def open(self, host: str, port: int, backlog: int = 1_024) -> int:
        """Listen; returns the port.

        Raises:
            OSError: the address is in use, or not one of this machine.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._sockets.append(_bound(socket.socket(family, kind, protocol), address, backlog))
        except OSError:
            self.close()
            raise
        for listening in self._sockets:
            loop.add_reader(listening, self._on_ready, listening)
        return int(self._sockets[0].getsockname()[1])

    @property
    def handshakes(self) -> int:
        """How many are in flight."""
        return self._count

    def close(self) -> None:
        """Stop listening, and drop the handshakes in flight."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets = []
        for tasks in tuple(self._under_way.values()):
            for task in tuple(tasks):
                task.cancel()

    # Accepting.

    def _on_ready(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._rest(listening)
                return
            accepted.setblocking(False)
            self._begin(accepted, address)

    def _rest(self, listening: socket.socket) -> None:
        """No file descriptor is left: wait for some to be closed."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)

        def again() -> None:
            if listening in self._sockets:
                loop.add_reader(listening, self._on_ready, listening)

        loop.call_later(_ACCEPT_AGAIN_S, again)

    def _begin(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        where = network_of(address[0])
        tasks = self._under_way.setdefault(where, {})
        task = asyncio.create_task(self._shake(accepted, f"{address[0]}:{address[1]}"))
        tasks[task] = None
        self._count += 1
        task.add_done_callback(lambda done: self._on_done(where, done))
        if self._count > self._bounds.handshakes_max:
            self._drop_one()

    def _on_done(self, where: str, task: "asyncio.Task[None]") -> None:
        if self._forget(where, task) and not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "a handshake", "exception": error})

    def _forget(self, where: str, task: "asyncio.Task[None]") -> bool:
        tasks = self._under_way.get(where)
        if tasks is None or task not in tasks:
            return False
        del tasks[task]
        if not tasks:
            del self._under_way[where]
        self._count -= 1
        return True

    def _drop_one(self) -> None:
        where = max(self._under_way, key=lambda each: len(self._under_way[each]))
        oldest = next(iter(self._under_way[where]))
        self._forget(where, oldest)
        self.dropped += 1
        oldest.cancel()

    # One handshake.

    async def _shake(self, accepted: socket.socket, peer: str) -> None:
        seconds = self._bounds.handshake_seconds_max
        handshake = TlsHandshake(lambda: self._certificates.context, self._factory, self._buffers)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().connect_accepted_socket(lambda: handshake, accepted)
                await handshake.over
        except TimeoutError:
            self._tell(peer, f"the handshake was not finished within {seconds:g} s")
        except NotTls:
            self._tell(peer, "it does not speak TLS")
            handshake.say(self._plain_reply)
            await _linger(handshake)
        except ssl.SSLError as error:
            self._tell(peer, why(error))
            await _linger(handshake)
        except (OSError, ssl.CertificateError) as error:
            self._tell(peer, why(error))
        finally:
            handshake.abort()

    def _tell(self, peer: str, why: str) -> None:
        """A flood of failures must not become a flood of messages."""
        now = asyncio.get_running_loop().time()
        if now - self._told_in >= 1.0:
            self._told_in, self._told = now, 0
        self._told += 1
        if self._told <= _TOLD_PER_S:
            self._on_trouble(peer, why)


def _bound(listening: socket.socket, address: Any, backlog: int) -> socket.socket:
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listening.family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


async def _linger(handshake: TlsHandshake) -> None:
    """Closed at once, with something unread, the connection would be reset, and the last reply lost."""
    await asyncio.wait([handshake.closed], timeout=_LINGER_S)


def network_of(host: str) -> str:
    """What counts as one address: for IPv6, where a machine has as many as it likes, its network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)


_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no client certificate, and one is required",
    "UNSUPPORTED_PROTOCOL": "it speaks an older TLS than 1.2",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust this server's certificate: it knows no authority that signed it",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that this server's certificate has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this server's certificate: is the host it calls in it?",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept this server's certificate",
    "NO_SHARED_CIPHER": "no cipher is known to both sides",
}


def why(error: Exception) -> str:
    """Why a handshake failed, as this end sees it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its client certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = str(error.reason or error)
        return _REASONS.get(reason) or f"TLS failed: {reason.replace('_', ' ').lower()}"
    return "it closed the connection during the handshake: perhaps it does not trust this server's certificate"
