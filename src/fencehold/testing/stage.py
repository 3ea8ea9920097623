"""The stage: one server, the links to it, and the actions on both. It lives on the background's loop.

Verbs run one at a time, and each ends when all reachable clients have been notified of its effects.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import hiredis

from fencehold.client.driver import Driver
from fencehold.client.info_pages import InfoPages
from fencehold.core.commands import Break, Command, Extend
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Broken, Outcome
from fencehold.core.state import State
from fencehold.drivers.resp.wire import command
from fencehold.drivers.tls import client_context
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import FenceholdError, UsageError
from fencehold.locks.views import Explanation
from fencehold.node.node import Node
from fencehold.security.tls import ServerTls
from fencehold.server import Config, Server
from fencehold.testing import clients, leaps
from fencehold.testing.history import History
from fencehold.testing.links import HOST, Cut, Switchboard
from fencehold.testing.timeline import PATIENCE_S, Timeline, VirtualClock, until

# A paused leader must not expire all sessions; a test may want just that.
_LIMITS = Limits(elapsed_ms_max=1 << 50)

Drivers = frozenset[Driver] | None
"""Some clients, or all."""


class Stage:
    """A service as the kit's verbs see it."""

    def __init__(self, timeline: Timeline, tls: ServerTls | None = None) -> None:
        self._timeline = timeline
        self._tls = tls
        self._store = MemoryStore()
        self._board = Switchboard()
        self._clock = VirtualClock()
        self._server = self._new_server()
        self.history = History()

    @property
    def url(self) -> str:
        where = f"{HOST}:{self._board.port}"
        if self._tls is None:
            return f"fencehold://{where}"
        return f"fenceholds://{where}" + (f"?ca={self._tls.ca}" if self._tls.ca is not None else "")

    # Its life.

    async def open(self) -> None:
        async with self._timeline.turn:
            await self._board.open()
            await self._start()
            self._timeline.services[self] = None

    async def close(self) -> None:
        """Cut off all connected clients permanently, then stop."""
        async with self._timeline.turn:
            self._timeline.services.pop(self, None)
            for driver in self._served():
                clients.kill_soon(driver)
            await self._server.stop()
            await self._board.close()

    async def restart(self) -> None:
        async with self._turn():
            self._board.target = 0
            await self._server.stop()
            self._server = self._new_server()
            await self._start()

    def _new_server(self) -> Server:
        config, journal = Config(port=0, limits=_LIMITS, tls=self._tls), MemoryJournal(self._store)
        return Server(config, journal=journal, clock=self._clock, calendar=self._clock.unix_ms)

    async def _start(self) -> None:
        await self._server.start()
        self.history.follow(self._server.node)
        self._board.target = self._server.port

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        async with self._timeline.turn:
            yield
            await self._timeline.settle()

    # What the timeline asks.

    def knows(self, driver: Driver) -> bool:
        return self._board.knows(driver)

    def is_cut_off(self, driver: Driver) -> bool:
        return self._board.is_cut(driver)

    def is_asleep(self, driver: Driver) -> bool:
        return any(cut.asleep and cut.covers(driver) for cut in self._board.cuts)

    def due_in(self) -> float:
        state = self._state
        renewals = (session.ttl_ms / 6_000 for session in state.sessions.values())
        return min([leaps.due_in(state, state.sessions_until.values()), *renewals])

    def quiet_for(self) -> float:
        return min(leaps.quiet_for(node) for node in self._nodes())

    async def tick(self) -> None:
        for connection in self._server.door.connections:
            # Kept alive by their connections, on a clock that does not move.
            if connection.member is not None and connection.member.implicit:
                connection.member.keep_alive()
        await self._told(lambda tell: self._server.node.ask(lambda _: None, tell))

    def leap(self, seconds: int) -> None:
        for node in self._nodes():
            leaps.leap(node, seconds * 1000)
        self._clock.leapt_ms += seconds * 1000

    def _nodes(self) -> tuple[Node, Node]:
        return (self._server.node, self._server.volatile.node)

    # The verbs.

    async def expire(self, names: tuple[str, ...], fence: int) -> None:
        async with self._turn():
            hold = self._state.find(names[0], fence)
            if hold is None:
                raise UsageError(f"{names[0]!r} is not held with fence {fence}")
            await self._do(Extend(hold.session, names, fence, ttl_ms=1))
            await asyncio.sleep(0.002)

    async def break_hold(self, name: str) -> int:
        async with self._turn():
            broken = await self._do(Break(name))
            if not isinstance(broken, Broken):
                raise UsageError(f"{name!r} cannot be broken: {broken}")
            return broken.fence

    async def cut(self, drivers: Drivers, *, asleep: bool = False) -> Cut:
        """Let nothing through any more; for paused clients, time stops, too."""
        async with self._timeline.turn:
            cut = Cut(drivers, asleep=asleep)
            if asleep:
                await asyncio.gather(*map(clients.put_to_sleep, drivers or ()))
            self._board.cut(cut)
            return cut

    async def repair(self, cut: Cut) -> None:
        async with self._turn():
            if cut.asleep:
                # They check the clock before they receive anything, as a process that wakes up does.
                await asyncio.gather(*map(clients.wake, cut.drivers or ()))
            self._board.repair(cut)

    async def drop(self, drivers: Drivers) -> None:
        async with self._turn():
            self._board.drop(drivers)

    async def kill(self, driver: Driver) -> None:
        async with self._turn():
            session = driver.protocol.session.id
            await clients.kill(driver)
            await until(lambda: not self._server.node.routes.is_attached(session), PATIENCE_S)

    async def explain(self, name: str) -> Explanation:
        """The same as `client.explain`, without a client."""
        tls = None if self._tls is None else client_context(self._tls.own)
        reader, writer = await asyncio.open_connection(HOST, self._server.port, ssl=tls)
        try:
            parser, pages = hiredis.Reader(), InfoPages(name, None)
            words: bytes | None = command("HELLO", 3)
            while words is not None:
                writer.write(words)
                while (reply := parser.gets()) is False:
                    parser.feed(await reader.read(65_536))
                if b"holds" in reply:
                    pages.take(reply)
                words = pages.words()
        finally:
            writer.close()
            await writer.wait_closed()
        return pages.explanation()

    def named(self, name: str) -> Driver:
        """The one client of this process with this name."""
        found = [driver for driver in self._served() if driver.protocol.settings.name == name]
        if len(found) != 1:
            raise UsageError(f"{len(found)} clients that are connected here are called {name!r}, not one")
        return found[0]

    @property
    def _state(self) -> State:
        return self._server.node.replica.machine.state

    def _served(self) -> list[Driver]:
        return [driver for driver in clients.living() if self.knows(driver)]

    async def _do(self, what: Command) -> Outcome:
        outcome: Outcome = await self._told(
            lambda tell: self._server.node.submit(what, lambda outcome, _: tell(outcome))
        )
        return outcome

    async def _told(self, ask: Callable[[Callable[[Any], None]], None]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ask(answer.set_result)
        told = await answer
        if isinstance(told, FenceholdError):
            raise told
        return told
