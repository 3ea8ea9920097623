"""The link to the leader: a standby's connection to the leader's RESP listener, and the little that is said on it.

1. The standby says `NODE.FOLLOW name address position` every beat, and is answered its rank.
2. The leader pushes `goodbye` before it stops. A node that does not lead answers `NOTLEADER`, or `UNAVAILABLE`.
3. A leader whose policy does not let the standby in is heard all the same: it lives.
4. A link that is silent is no news: `suspicion` counts since when. A link that breaks is.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from hiredis import HiredisError, PushNotification, Reader, ReplyError

from fencehold.drivers.address import endpoint
from fencehold.drivers.resp.wire import command
from fencehold.node.standby import Parting
from fencehold.node.standbys import Member

BEAT_S = 0.25
CONNECT_S = 0.5
_NOTHING = object()
_NOT_LET_IN = ("NOAUTH", "DENIED")
_LAST = 3
"""The rank of one that its leader does not know: those that it knows go first."""


class LeaderLink:
    """Makes links for one node."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def follow(self, address: str, position: Callable[[], int], on_heard: Callable[[int], None]) -> Parting:
        """As `node.standby.Line` says."""
        loop = asyncio.get_running_loop()
        host, port = endpoint(address)
        connection = _LeaderConnection(on_heard)
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(lambda: connection, host, port)
        except (OSError, TimeoutError):
            connection.abort()
            return Parting.BROKEN
        try:
            while not connection.parted.done():
                connection.say(command("NODE.FOLLOW", self._member.name, self._member.address, position()))
                await asyncio.wait({connection.parted}, timeout=BEAT_S)
            return connection.parted.result()
        finally:
            connection.abort()


class _LeaderConnection(asyncio.Protocol):
    """One link."""

    def __init__(self, on_heard: Callable[[int], None]) -> None:
        self._on_heard = on_heard
        self._reader = Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self.parted: asyncio.Future[Parting] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Said, not checked: the transports of other loops are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self.say(command("HELLO", 3))

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING:
                self._on_reply(reply)
        except HiredisError:
            self._part(Parting.BROKEN)

    def connection_lost(self, exc: Exception | None) -> None:
        self._part(Parting.BROKEN)

    def say(self, data: bytes) -> None:
        # What a leader that hangs does not read must not pile up here: a beat is enough to know that it lives.
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
            case ReplyError() if str(reply).startswith(_NOT_LET_IN):
                # It lives and leads, and only takes no note of this node: no reason to take its place.
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
