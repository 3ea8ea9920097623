"""The current session, and the next one when it is over.

1. There is one session at a time. When it is over, its owners are notified first; the next one begins after a
   pause, so that servers that refuse us are not flooded: with exponential back-off while they reject us.
2. Callers get the rejection at once while the servers reject us, until they answer a request again.
3. After `close`, no thread and no socket is left.
"""

import asyncio
from collections.abc import Callable

from fencehold.backends.port import Settings
from fencehold.backends.zookeeper.session import ZookeeperSession
from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.errors import FenceholdError, Unavailable
from fencehold.locks.clock import Clock

_ANEW_S = 0.1
_ANEW_S_MAX = 2.0
_GOODBYE_S = 2.0


class SessionKeeper:
    """Belongs to the event loop it was made on."""

    def __init__(self, address: ZookeeperAddress, settings: Settings, clock: Clock) -> None:
        self.on_over: Callable[[ZookeeperSession], None] = lambda _: None
        """Called when a session is over."""
        self.on_back: Callable[[ZookeeperSession], None] = lambda _: None
        """Called when a session has a connection (again)."""
        self._address = address
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._denial: FenceholdError | None = None
        """Why the last session is over, if the servers rejected us."""
        self._pause_s = _ANEW_S
        self._bells: set[asyncio.Event] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._session = self._made(0)
        self._session.start()

    async def ready(self, seconds: float) -> ZookeeperSession:
        """The session, once it has a connection.

        Raises:
            Unavailable: it has none in time.
            PermissionDenied: the servers reject us.
        """
        if self._is_ready():
            return self._session
        bell = asyncio.Event()
        self._bells.add(bell)
        try:
            async with asyncio.timeout(seconds):
                while not self._is_ready():
                    if self._is_closed:
                        raise Unavailable(f"{self._address}: the client was closed")
                    if self._denial is not None:
                        raise type(self._denial)(str(self._denial))
                    bell.clear()
                    await bell.wait()
        except TimeoutError as error:
            why = self._session.trouble and f": {self._session.trouble}"
            raise Unavailable(f"{self._address}: no server could be reached in {seconds:g} s{why}") from error
        finally:
            self._bells.discard(bell)
        return self._session

    async def close(self) -> None:
        """End the session: all that is in it is removed by the servers, at once if one can be reached."""
        if not self._is_closed:
            self._is_closed = True
            self._end(self._session, _GOODBYE_S if self._session.is_connected else 0)
        if self._ending:
            await asyncio.wait(self._ending)

    def _is_ready(self) -> bool:
        return self._session.is_connected and (self._denial is None or self._session.is_admitted)

    def _made(self, zxid: int) -> ZookeeperSession:
        session = ZookeeperSession(self._address, self._settings.ttl, zxid, self._clock)
        session.on_change = self._on_change
        return session

    def _on_change(self, session: ZookeeperSession) -> None:
        if session is not self._session:
            return
        if session.is_over:
            self.on_over(session)
            self._denial = session.denial
            if not self._is_closed:
                self._session = self._made(session.zxid)
                self._pause_s = _ANEW_S if self._denial is None else min(2 * self._pause_s, _ANEW_S_MAX)
                self._loop.call_later(self._pause_s, self._session.start)
                self._end(session, 0)
        elif session.is_connected:
            self.on_back(session)
        for bell in self._bells:
            bell.set()

    def _end(self, session: ZookeeperSession, patience_s: float) -> None:
        task = self._loop.create_task(session.end(patience_s))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
