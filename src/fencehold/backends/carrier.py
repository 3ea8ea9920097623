"""The carrier of a client that connects to a backend directly.

1. A release is done whether or not its caller waits for it.
2. It is opened when it is first used, and again when that failed.
3. In a child process it cannot be used: its connections are the parent's.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from math import inf
from typing import cast
from weakref import WeakSet

from fencehold.backends.port import Ask, Backend, Lease, Settings
from fencehold.errors import Unavailable, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import AtOnce, check_loop
from fencehold.locks.clock import Clock, clock
from fencehold.locks.identity import Owners, Who, name_of
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.locks.views import EXPLAIN_LIMIT, Explanation, limited
from fencehold.locks.waits import LongWaits

_LOOK_S = 0.5
"""How often to check whether a name has changed hands."""
_LAST_WORD_S = 0.1
"""A backend keeps to its timeout, and reports what it waited for: this is for those that cannot."""
_LOOKS = 4
"""How often waits are checked within the time after which a wait is long."""


class DirectCarrier:
    """Belongs to the event loop it was made on."""

    def __init__(
        self, backend: Backend, settings: Settings, clock: Clock = clock, *, long_wait: float = inf
    ) -> None:
        self._backend = backend
        self._settings = settings
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.owners = Owners()
        self._opening = asyncio.Lock()
        self._is_open = self._is_closed = False
        self._why_closed = "the client is closed"
        self._releases: set[asyncio.Task[None]] = set()
        self._waits = LongWaits(backend.look, long_wait)
        self._waiting: dict[str, tuple[Terms, float]] = {}
        """By token: what is waited for, and since when."""
        self._looking: asyncio.TimerHandle | None = None
        _all.add(self)

    @property
    def guarantees(self) -> Guarantees:
        return self._backend.guarantees

    @property
    def at_once(self) -> AtOnce | None:
        return self._backend.at_once if self._is_open else None

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        await self._opened()
        ask = Ask(terms, secrets.token_hex(16), name_of(who))
        if terms.timeout == 0 or self._waits.after_s == inf:
            return await self._backend.acquire(ask)
        self._waiting[ask.token] = (terms, self.clock())
        if self._looking is None:
            self._look_later()
        try:
            return await self._backend.acquire(ask)
        finally:
            del self._waiting[ask.token]

    def release(self, grant: Grant) -> Awaitable[None]:
        self._check_loop()
        task = self.loop.create_task(self._backend.release(cast(Lease, grant)))
        self._releases.add(task)
        task.add_done_callback(self._on_released)
        awaited = asyncio.shield(task)
        # Retrieved here: without a waiting caller, asyncio must not complain about an unretrieved exception.
        awaited.add_done_callback(lambda done: done.cancelled() or done.exception())
        return awaited

    async def extend(self, grant: Grant, ttl: float | None) -> None:
        self._check_loop()
        await self._backend.extend(cast(Lease, grant), ttl)

    async def explain(self, name: str, *, stale: bool = False, limit: int | None = EXPLAIN_LIMIT) -> Explanation:
        await self._opened()
        return limited(await self._backend.look(name), limit)

    async def break_hold(self, name: str, fence: int) -> int:
        await self._opened()
        return await self._backend.break_hold(name, fence)

    @asynccontextmanager
    async def changes(self, name: str) -> AsyncIterator[AsyncIterator[object]]:
        yield self._ticks()

    async def ready(self) -> None:
        await self._opened()

    async def close(self) -> None:
        if self._is_closed and asyncio.get_running_loop() is not self.loop:
            # Closed before, or made by a parent process: there is nothing to be done here.
            return
        check_loop(self.loop)
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        self._waits.stop()
        if self._releases:
            await asyncio.wait(self._releases)
        async with self._opening:
            if self._is_open:
                self._is_open = False
                await self._backend.close()
        await self._waits.stopped()

    def on_forked(self) -> None:
        """In a child: nothing here is its own, and nothing is sent to the backend."""
        self._is_open, self._is_closed = False, True
        self._why_closed = "this client was created before a fork: connect again in the child process"
        self._releases.clear()

    def _check_loop(self) -> None:
        check_loop(self.loop, self._why_closed if self._is_closed else "")

    async def _opened(self) -> None:
        self._check_loop()
        if self._is_open:
            return
        async with self._opening:
            if self._is_closed:
                raise UsageError(self._why_closed)
            if not self._is_open:
                await self._open()

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._settings.connect_timeout + _LAST_WORD_S):
                await self._backend.open()
        except TimeoutError as error:
            raise Unavailable(
                f"{self.guarantees.backend}:// was not reached in {self._settings.connect_timeout:g} s"
            ) from error
        self._is_open = True

    def _look_later(self) -> None:
        self._looking = self.loop.call_later(self._waits.after_s / _LOOKS, self._look)

    def _look(self) -> None:
        self._looking = None
        if self._waiting and not self._is_closed:
            self._waits.look(self._waiting.values(), self.clock())
            self._look_later()

    async def _ticks(self) -> AsyncIterator[object]:
        while not self._is_closed:
            await asyncio.sleep(_LOOK_S)
            yield None

    def _on_released(self, task: "asyncio.Task[None]") -> None:
        self._releases.discard(task)
        if not task.cancelled():
            # Retrieved here: without a waiting caller, asyncio must not complain about an unretrieved exception.
            task.exception()


_all: WeakSet[DirectCarrier] = WeakSet()
_inherited: list[DirectCarrier] = []
"""Kept for ever: when collected, they would close their connections, which the parent's loop watches."""


def _after_fork_in_child() -> None:
    for carrier in list(_all):
        carrier.on_forked()
        _inherited.append(carrier)
    _all.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
