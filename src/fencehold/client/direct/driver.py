"""The driver of a client whose callers send and receive by themselves. What it adds to `Driver`:

1. It makes its connections as lines, by the same addresses and with the same errors.
2. It continues what callers leave unfinished.
3. A client that is called often keeps the loop from listening on its line between calls: the loop's thread checks
   every `TICK_S` whether there are still calls, and listens again when there are none. So messages that no caller
   waits for are received at once while the client is idle, and within two ticks while it is in use. While a
   request waits in a queue, or there is a watch, the loop stops listening for no longer than a call takes.
"""

import asyncio
import ssl
from math import inf

from fencehold.client.direct.line import Line, dial
from fencehold.client.direct.turns import CLAIMED, RECEIVED, RECEIVING, SENDING, Call, SharedProtocol
from fencehold.client.driver import Connection, Driver
from fencehold.client.protocol import single_request
from fencehold.client.protocol.requests import DONE
from fencehold.drivers import connect_errors as troubles
from fencehold.drivers.address import Endpoint
from fencehold.drivers.tls import ClientTls
from fencehold.errors import FenceholdError
from fencehold.locks.clock import Clock, clock

TICK_S = 0.01
ALONE = 256
"""Consecutive calls in turns of their own, after which contention is forgotten."""
COMPANY_TIMES_MAX = 32


class LineDriver(Driver):
    """The lines and the timer of one protocol, on one loop, for callers on any thread."""

    protocol: SharedProtocol

    def __init__(
        self,
        protocol: SharedProtocol,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | ClientTls | None = None,
        *,
        clock: Clock = clock,
    ) -> None:
        super().__init__(protocol, loop, tls, clock=clock)
        self.turns = self.protocol.turns
        self.turns.settle, self.turns.on_over = self._settle, self._listen
        self.company = 0
        """How many more calls are to be handed to the loop's thread."""
        self._company_times = 1
        self.alone = 0
        """Calls in turns of their own since contention was found."""
        self.is_ticking = False
        """Whether the tick lets the loop listen again, and not each caller."""
        self.called_at = self._ticked_at = -inf
        """When a caller last had a turn; and the same as of the last tick."""

    def line(self) -> Line | None:
        """The one that carries the session, if there is one."""
        connection = self._connection
        return connection.transport if connection is not None else None  # type: ignore[return-value]

    def tick_soon(self) -> None:
        """Check after a while whether there are still calls."""
        if not self.is_ticking and not self.protocol.subscriptions():
            self.is_ticking = True
            self.loop.call_later(TICK_S, self._tick)

    def expect_company(self, calls: int) -> None:
        """A turn was refused or left: make so many calls without one; more, if that was so shortly before."""
        is_again = self.alone < ALONE
        self._company_times = min(2 * self._company_times, COMPANY_TIMES_MAX) if is_again else 1
        self.company, self.alone = calls * self._company_times, 0

    async def _attempt(self, connection: Connection, endpoint: Endpoint) -> None:
        tls = self._tls() if isinstance(self._tls, ClientTls) else self._tls
        try:
            sock, end = await dial(self.loop, endpoint, tls)
        except (OSError, UnicodeError) as error:
            if connection.wanted:
                self._fail(connection, troubles.of_attempt(error))
            return
        line = Line(sock, end, self.turns, self.loop, connection)
        line.begin()
        connection.connection_made(line)  # type: ignore[arg-type]  # As much of a transport as is needed.

    def _settle(self, call: Call) -> None:
        """Continue what a caller has left unfinished."""
        protocol, request, now = self.protocol, call.request, self.clock()
        if call.stage == CLAIMED:
            # A copy: its caller may be about to number the original.
            call.request = request.renewed()
            self.submit(call)
        elif request.stage == DONE:
            protocol.session.acknowledge(request.id, request.number)
        else:
            single_request.adopt(protocol, request, now)
            if call.stage in (SENDING, RECEIVING):
                single_request.doubt(protocol, now)
            elif call.stage == RECEIVED:
                protocol.on_data(call.data, now)
            elif call.unsent:
                call.line.write_raw(call.unsent)
        self._call_soon(self._act)

    def submit(self, call: Call) -> None:
        """Send a request for a caller that has not sent it itself."""
        try:
            self.protocol.submit(call.request, self.clock())
        except FenceholdError as error:
            call.set_exception(error)

    def _listen(self) -> None:
        """The loop's turn is over: it receives the replies to all that is in flight."""
        line = self.line()
        if line is not None and not line.is_heard:
            line.listen()

    def _tick(self) -> None:
        is_called = self.called_at != self._ticked_at and not self.protocol.subscriptions()
        if is_called or not self.turns.take_at_once():
            self._ticked_at = self.called_at
            self.loop.call_later(TICK_S, self._tick)
            return
        try:
            # In the loop's turn: a caller checks this at the end of its own.
            self.is_ticking = False
        finally:
            self.turns.__exit__()
