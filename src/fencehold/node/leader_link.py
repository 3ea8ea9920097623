"""The link to the leader: a standby's connection to the leader's RESP listener, and the few messages on it.

1. The standby sends `NODE.FOLLOW name address position` as its heartbeat, and gets its rank in reply.
2. The leader pushes `goodbye` before it stops, and `hurry` when journals are to be followed closely for a while.
   A node that does not lead answers `NOTLEADER`, or `UNAVAILABLE`.
3. A leader whose policy does not admit the standby counts as heard all the same: it is alive.
4. Silence on a link is not reported: `suspicion` measures it. A broken link is.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, cast

from hiredis import HiredisError, PushNotification, Reader, ReplyError

from fencehold.drivers.address import endpoint
from fencehold.drivers.connect_errors import of_attempt
from fencehold.drivers.resp.wire import command
from fencehold.drivers.tls import ClientTls
from fencehold.node.standby import Parting
from fencehold.node.standbys import Member

BEAT_S = 0.25
CONNECT_S = 0.5
_LOG = logging.getLogger("fencehold")
_NOTHING = object()
_NOT_LET_IN = ("NOAUTH", "DENIED")
_LAST = 3
"""The rank of one that its leader does not know: those that it knows go first."""


class LeaderLink:
    """Makes links for one node, or for one shard of it."""

    def __init__(self, member: Member, tls: ClientTls | None = None, shard: int | None = None) -> None:
        self._member = member
        words: tuple[str | int, ...] = ("HELLO", 3) if shard is None else ("HELLO", 3, "SHARD", shard)
        self._hello = command(*words)
        self._tls = tls
        """How leaders are reached that speak TLS: with this node's own certificate."""
        self._told = ""
        self.on_hurry: Callable[[], None] = _ignore
        """Called when the leader pushes `hurry`."""

    async def follow(self, address: str, position: Callable[[], int], on_heard: Callable[[int], None]) -> Parting:
        """As `node.standby.Line` says."""
        loop = asyncio.get_running_loop()
        host, port = endpoint(address)
        connection = _LeaderConnection(on_heard, self._hello, self.on_hurry)
        try:
            async with asyncio.timeout(CONNECT_S):
                tls = self._tls() if self._tls is not None else None
                name = host if tls is not None else None
                await loop.create_connection(lambda: connection, host, port, ssl=tls, server_hostname=name)
        except (OSError, TimeoutError) as error:
            self._tell(address, error)
            connection.abort()
            return Parting.BROKEN
        try:
            while not connection.parted.done():
                connection.say(command("NODE.FOLLOW", self._member.name, self._member.address, position()))
                await asyncio.wait({connection.parted}, timeout=BEAT_S)
            return connection.parted.result()
        finally:
            self._tell(address, connection.error)
            connection.abort()

    def _tell(self, address: str, error: Exception | None) -> None:
        """Log why the handshake fails: it is the configuration that is wrong, and waiting does not help."""
        why = of_attempt(error) if isinstance(error, ssl.SSLError) else ""
        if why and why != self._told:
            _LOG.warning("no_line", extra={"facts": {"leader": address, "why": why}})
        self._told = why


class _LeaderConnection(asyncio.Protocol):
    """One link."""

    def __init__(
        self, on_heard: Callable[[int], None], hello: bytes, on_hurry: Callable[[], None] | None = None
    ) -> None:
        self._on_heard = on_heard
        self._on_hurry = on_hurry or _ignore
        self._hello = hello
        self._reader = Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self.error: Exception | None = None
        """What broke it, if that is known."""
        self.parted: asyncio.Future[Parting] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: the transports of other loops are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self.say(self._hello)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING:
                self._on_reply(reply)
        except HiredisError:
            self._part(Parting.BROKEN)

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._part(Parting.BROKEN)

    def say(self, data: bytes) -> None:
        # What a leader that hangs does not read must not pile up here: one heartbeat is enough to know that it is
        # alive.
        if self._transport is not None and not self._transport.get_write_buffer_size():
            self._transport.write(data)

    def abort(self) -> None:
        self._part(Parting.BROKEN)
        if self._transport is not None:
            self._transport.abort()

    def _on_reply(self, reply: Any) -> None:
        match reply:
            case PushNotification():
                if reply and reply[0] == b"goodbye":
                    self._part(Parting.GOODBYE)
                elif reply and reply[0] == b"hurry":
                    self._on_hurry()
            case ReplyError() if str(reply).startswith(_NOT_LET_IN):
                # It is alive and leads, and only does not register this node: no reason to take its place.
                self._on_heard(_LAST)
            case ReplyError():
                self._part(Parting.GOODBYE)
            case int():
                self._on_heard(reply)
            case _:
                pass

    def _part(self, parting: Parting) -> None:
        if not self.parted.done():
            self.parted.set_result(parting)


def _ignore() -> None:
    """No callback was set."""
