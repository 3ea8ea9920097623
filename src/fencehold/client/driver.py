"""The driver: carries the session protocol over an asyncio loop. It decides nothing.

1. What one turn of the loop asks for is written at once, at the end of the turn.
2. One timer, for whatever is due next in the protocol; drivers of one client share one (`keep_alive_timer`).
3. Data of a connection that was dropped is ignored; a parked one stays open until the sweep.
4. After a fork the child closes its copies of the parent's sockets, and sends nothing on them.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from math import inf
from typing import cast
from weakref import WeakSet

from fencehold.client.keep_alive_timer import KeepAliveTimer
from fencehold.client.protocol.connection import Connect, Drop, NodeConnection
from fencehold.client.protocol.ledger import Session
from fencehold.client.protocol.session import SessionProtocol
from fencehold.drivers import connect_errors as troubles
from fencehold.drivers.address import Endpoint
from fencehold.drivers.tls import ClientTls
from fencehold.locks import meter as metering
from fencehold.locks.clock import Clock, clock
from fencehold.locks.log import CONNECTIONS, Teller

FLUSH_AT = 32
"""So many commands are written before the turn is over: the server can begin while others are made."""
PARKED_MAX = 8
"""Connections that stay open until the session is resumed elsewhere; beyond this, the oldest is closed."""


class Connection(asyncio.Protocol):
    """One connection, or the attempt to make it."""

    def __init__(self, driver: "Driver") -> None:
        self._driver = driver
        self.transport: asyncio.Transport | None = None
        self.wanted = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Cast, not checked: the transports of other loops are no subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self._driver.on_made(self)

    def data_received(self, data: bytes) -> None:
        if self.wanted:
            driver = self._driver
            driver.protocol.on_data(data, driver.clock())
            driver.act()

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.on_lost(self, exc)

    def abort(self) -> None:
        """Close it now, without waiting for what was not written."""
        self.wanted = False
        if self.transport is not None:
            self.transport.abort()


class ConnectionLog:
    """What is logged about a connection, lost or back, and about its session.

    1. An outage is logged when it begins, when it has lasted for as long as a call waits for the service, then
       each time it has lasted twice as long, and when it is over.
    2. A session that was resumed kept all it held. One that was not is logged as a warning: all of that is lost.
    """

    __slots__ = ("_down_at", "_session", "_tell_at_s", "_teller")

    def __init__(self, teller: Teller = CONNECTIONS) -> None:
        self._teller = teller
        self._session: Session | None = None
        """The last one itself, not its number: a server that has lost everything reuses numbers."""
        self._down_at: float | None = None
        self._tell_at_s = 0.0

    def on_up(self, connection: NodeConnection, session: Session, now: float) -> None:
        """A connection carries a session."""
        before, self._session = self._session, session
        down_at, self._down_at = self._down_at, None
        after_s = 0.0 if down_at is None else now - down_at
        if before is None:
            self._teller.tell(logging.DEBUG, "connected to %s, session %d", connection.node, session.id)
        elif before is session:
            message = "session %d resumed on %s after %.1f s"
            self._teller.tell(logging.INFO, message, session.id, connection.node, after_s)
        else:
            self._teller.tell(
                logging.WARNING,
                "session %d has ended and all it held is lost; session %d opened on %s after %.1f s",
                before.id,
                session.id,
                connection.node,
                after_s,
            )

    def on_down(self, connection: NodeConnection, now: float) -> None:
        """No connection carries the session, or a new one failed."""
        if self._session is None:
            # The caller of connect gets the error.
            return
        if self._down_at is None:
            self._down_at, self._tell_at_s = now, connection.patience
            if metering.meter is not None:
                metering.meter.on_disconnected()
            self._teller.tell(logging.INFO, "connection to %s lost: %s", connection.node, connection.trouble)
        elif now - self._down_at >= self._tell_at_s:
            lasted_s = now - self._down_at
            self._tell_at_s = 2 * lasted_s
            self._teller.tell(logging.WARNING, "not connected for %.0f s: %s", lasted_s, connection.unreached())


class Driver:
    """The sockets and the timer of one protocol, on one loop."""

    def __init__(
        self,
        protocol: SessionProtocol,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | ClientTls | None = None,
        *,
        clock: Clock = clock,
    ) -> None:
        self.protocol = protocol
        self.loop = loop
        self.clock = clock
        self._tls = tls
        self._connection: Connection | None = None
        self._attempts: dict[asyncio.Task[None], None] = {}
        """In the order they were begun."""
        self._open: set[Connection] = set()
        self._parked: list[Connection] = []
        self._pipeline = protocol.pipeline
        self._outbox = protocol.pipeline.outbox
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._shared_timer: KeepAliveTimer | None = None
        """The shared timer, if it is one of several of a client; then it has no timer of its own."""
        self._acting = False
        # Looked up once: they are called in every turn of the loop.
        self._call_soon, self._act = loop.call_soon, self.act
        self._idle: asyncio.Event = asyncio.Event()
        self._log = ConnectionLog()
        self.on_wake: Callable[[float], None] | None = None
        """Called whenever the timer went off."""
        self.endpoint: Endpoint | None = None
        """Where the last connection went, or was to go."""
        _drivers.add(self)

    def soon(self) -> None:
        """There is a new request: send it when this turn of the loop is over, or now if it is alone."""
        if self._pipeline.is_lone:
            self._pipeline.is_lone = False
            self.act()
        elif len(self._outbox) >= FLUSH_AT:
            self.act()
        elif not self._acting:
            self._acting = True
            self._call_soon(self._act)

    def act(self) -> None:
        """Carry out the orders of the protocol, send its output, set its timer."""
        self._acting = False
        protocol = self.protocol
        while protocol.connection.orders:
            self._carry_out()
        outbox = self._outbox
        if outbox:
            connection = self._connection
            if connection is not None and connection.transport is not None:
                connection.transport.write(b"".join(outbox))
            outbox.clear()
        if protocol.wake_at < self._timer_at:
            self._arm()

    def share_timer(self, timer: KeepAliveTimer) -> None:
        """Be woken by that timer from now on."""
        self._shared_timer = timer
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            timer.expect(self._timer_at, self.clock())

    def due_at(self) -> float:
        """When it is to be woken; -inf: never, until `wake`."""
        return self._timer_at

    def wake(self) -> None:
        """Check the clock now: it was moved, or a `sleep` is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._on_timer()

    def sleep(self) -> None:
        """Let no timer go off until `wake`, as if the process were stopped. For tests."""
        if self._timer is not None:
            self._timer.cancel()
        # Nothing is due earlier than that, so `act` sets no timer.
        self._timer, self._timer_at = None, -inf

    def lines(self) -> list[tuple[int, int]]:
        """The local and the remote port of each open connection. Any thread may call it."""
        names = ("sockname", "peername")
        open_ = [connection.transport for connection in tuple(self._open) if connection.transport is not None]
        ends = [[transport.get_extra_info(name) for name in names] for transport in open_]
        return [(near[1], far[1]) for near, far in ends if near and far]

    async def wait_closed(self) -> None:
        """Wait until nothing is left of a protocol that was closed: no socket, no task, no timer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._shared_timer is not None:
            self._shared_timer.leave(self)
        await asyncio.gather(*self._attempts, return_exceptions=True)
        while self._open:
            self._idle.clear()
            await self._idle.wait()

    # What happens to connections.

    def on_made(self, connection: Connection) -> None:
        self._open.add(connection)
        if not connection.wanted:
            connection.abort()
            return
        self.protocol.on_connected(self.clock())
        self.act()

    def on_lost(self, connection: Connection, error: Exception | None = None) -> None:
        self._open.discard(connection)
        if connection in self._parked:
            self._parked.remove(connection)
        if not self._open:
            self._idle.set()
        if connection.wanted:
            # In TLS 1.3 a server that rejects our certificate reports it after the connection was made.
            self._fail(connection, troubles.of_attempt(error) if isinstance(error, ssl.SSLError) else "")

    def on_forked(self) -> None:
        """In the child: close the sockets. Closing them there says nothing to the server."""
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in self._open:
            transport = connection.transport
            if transport is not None and (sock := transport.get_extra_info("socket")) is not None:
                # Replaced rather than closed: what closes the number later must not hit another file.
                os.dup2(nowhere, sock.fileno(), inheritable=False)
        os.close(nowhere)
        self.protocol.on_forked()

    # Orders.

    def _carry_out(self) -> None:
        connection = self.protocol.connection
        orders, connection.orders = connection.orders, []
        for order in orders:
            if isinstance(order, Connect):
                self._connect(order.endpoint)
            elif isinstance(order, Drop):
                self._drop(order.park)
            else:
                self._sweep()

    def _connect(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        connection = self._connection = Connection(self)
        attempt = self.loop.create_task(self._attempt(connection, endpoint), name=f"fencehold: {endpoint}")
        self._attempts[attempt] = None
        attempt.add_done_callback(self._attempts.pop)

    async def _attempt(self, connection: Connection, endpoint: Endpoint) -> None:
        tls = self._tls() if isinstance(self._tls, ClientTls) else self._tls
        name = endpoint.host if tls is not None else None
        try:
            await self.loop.create_connection(
                lambda: connection, endpoint.host, endpoint.port, ssl=tls, server_hostname=name
            )
        except (OSError, UnicodeError) as error:
            if connection.wanted:
                self._fail(connection, troubles.of_attempt(error))

    def _fail(self, connection: Connection, why: str = "") -> None:
        connection.wanted = False
        self._connection = None
        self.protocol.on_disconnected(self.clock(), why)
        self._tell_down()
        self.act()

    def _drop(self, park: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._tell_down()
        connection.wanted = False
        if connection.transport is None:
            for attempt in self._attempts:
                attempt.cancel()
        elif park:
            self._park(connection)
        else:
            connection.abort()

    def _park(self, connection: Connection) -> None:
        self._parked.append(connection)
        if len(self._parked) > PARKED_MAX:
            self._parked.pop(0).abort()
            self.protocol.on_connection_closed(self.clock())

    def _tell_down(self) -> None:
        if not self.protocol.unusable:
            self._log.on_down(self.protocol.connection, self.clock())

    def _sweep(self) -> None:
        if self.protocol.attached:
            self._log.on_up(self.protocol.connection, self.protocol.session, self.clock())
        for connection in self._parked:
            connection.abort()
        self._parked.clear()

    # The timer.

    def _arm(self) -> None:
        self._timer_at = self.protocol.wake_at
        if self._shared_timer is not None:
            self._shared_timer.expect(self._timer_at, self.clock())
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(max(0.0, self._timer_at - self.clock()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = inf
        now = self.clock()
        self.protocol.on_timer(now)
        if self.on_wake is not None:
            self.on_wake(now)
        self.act()


_drivers: WeakSet[Driver] = WeakSet()
_inherited: list[Driver] = []
"""In a child: drivers of the parent. Kept for good, because their loops must not be closed: what a loop watches
is shared with the parent until then."""


def drivers() -> list[Driver]:
    """All of this process. Any thread may call it."""
    while True:
        try:
            return list(_drivers)
        except RuntimeError:
            # Another thread made one meanwhile: try again.
            continue


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.on_forked()
        _inherited.append(driver)
    _drivers.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
