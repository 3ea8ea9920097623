"""Links: the connections between clients and the server, which can be cut.

1. Clients connect to the switchboard, and it to the server: it forwards what each side sends.
2. A link belongs to the client that opened the connection, identified by its ports. That is known when the first
   bytes arrive, no matter how the client was made; before, nothing is forwarded. Connections of other processes
   belong to no client, and are cut only when all are.
3. A cut link carries nothing, not even its end; what was sent arrives when the cut is repaired.
4. Of the connections that a client tried while it was cut off, only the newest is completed then.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from fencehold.client.driver import Driver
from fencehold.testing.clients import owner_of

HOST = "127.0.0.1"


class Cut:
    """A cut between the server and some clients, or all."""

    def __init__(self, drivers: frozenset[Driver] | None, *, asleep: bool = False) -> None:
        self.drivers = drivers
        self.asleep = asleep
        """The clients are paused, too."""

    def covers(self, driver: Driver | None) -> bool:
        return self.drivers is None or driver in self.drivers


class Link(asyncio.Protocol):
    """One connection. This is the client's end of it; `_Far` is the server's."""

    def __init__(self, board: "Switchboard") -> None:
        self._board = board
        self._near: asyncio.Transport | None = None
        self._far: asyncio.Transport | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._first = b""
        """What came before the server was reached."""
        self.driver: Driver | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._near = cast(asyncio.Transport, transport)
        self._board.links[self] = None
        self.look()

    def data_received(self, data: bytes) -> None:
        if self._far is not None:
            self._far.write(data)
            return
        self._first += data
        self.driver = self.driver or self._board.owner(self._near)
        self.look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._board.links.pop(self, None)
        if self._far is not None:
            self._far.close()

    def look(self) -> None:
        """A cut was made or repaired, or the client is known now."""
        flows = not self._board.is_cut(self.driver)
        for end in (self._near, self._far):
            if end is not None and not end.is_closing():
                (end.resume_reading if flows else end.pause_reading)()
        if flows and self._first and self._dialling is None:
            self._dialling = self._board.spawn(self._dial())

    def is_waiting(self) -> bool:
        """Whether a cut has kept it from reaching the server at all."""
        return self._dialling is None

    def abort(self) -> None:
        """Close the connection at both ends."""
        for end in (self._near, self._far):
            if end is not None:
                end.abort()

    async def _dial(self) -> None:
        loop, near = asyncio.get_running_loop(), self._near
        try:
            far, _ = await loop.create_connection(lambda: _Far(self), HOST, self._board.target)
        except OSError:
            self.abort()
            return
        if near is None or near.is_closing():
            far.abort()
            return
        self._far = far
        far.write(self._first)
        self.look()

    def say(self, data: bytes) -> None:
        """The server sent something."""
        if self._near is not None:
            self._near.write(data)

    def end(self) -> None:
        """The server's end was closed."""
        if self._near is not None:
            self._near.close()


class _Far(asyncio.Protocol):
    """The server's end of a link."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def data_received(self, data: bytes) -> None:
        self._link.say(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.end()


class Switchboard:
    """Where clients connect."""

    def __init__(self) -> None:
        self.links: dict[Link, None] = {}
        self.port = 0
        self.target = 0
        """The server's own port; 0 while there is none."""
        self.cuts: list[Cut] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: Link(self), HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        while self.links or self._tasks:
            self.drop(None)
            await asyncio.sleep(0)
        await self._server.wait_closed()

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run something; closing waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def owner(self, transport: asyncio.Transport | None) -> Driver | None:
        """The client of this process whose connection this is."""
        peer = transport.get_extra_info("peername") if transport is not None else None
        return owner_of((peer[1], self.port)) if peer else None

    def knows(self, driver: Driver) -> bool:
        """Whether a client connects to this switchboard."""
        return driver.endpoint == (HOST, self.port)

    def is_cut(self, driver: Driver | None) -> bool:
        return any(cut.covers(driver) for cut in self.cuts)

    def cut(self, cut: Cut) -> None:
        self.cuts.append(cut)
        self._look()

    def repair(self, cut: Cut) -> None:
        self.cuts.remove(cut)
        newest = {link.driver: link for link in self.links if link.driver is not None}
        for link in tuple(self.links):
            if link.is_waiting() and link.driver is not None and link is not newest[link.driver]:
                link.abort()
        self._look()

    def drop(self, drivers: frozenset[Driver] | None) -> None:
        """Close the connections of some clients, or all."""
        for link in tuple(self.links):
            if drivers is None or link.driver in drivers:
                link.abort()

    def _look(self) -> None:
        for link in tuple(self.links):
            link.look()
