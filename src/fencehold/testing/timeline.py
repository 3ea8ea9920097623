"""The timeline: virtual time, one for all test services and all clients of the process.

1. Time that is made to pass is added to the time that passes anyway; it never goes back.
2. It passes in steps: never beyond what is due next, at a server or at a client, nor beyond a sixth of the
   shortest ttl. So a healthy client keeps its session alive by its own keep-alives, and things happen in order.
3. While every client is connected and idle, nothing but keep-alives can happen before the next thing is due: that
   time passes in a *leap*. Entries that renew all sessions that are connected are given to the servers' machines,
   one for each ttl, and the clients are informed that they were kept alive.
4. After each step the clients check the clock first, then the servers: a client stops trusting its hold before
   the server ends it.
5. A step is over when every reachable client has been notified of its effects.
6. One verb at a time. Each ends in bounded time, or reports which client blocks it.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, Protocol

from fencehold.client.driver import Driver
from fencehold.locks import clock as client_clock
from fencehold.runtime import calendar
from fencehold.runtime.clock import MonotonicClock
from fencehold.testing import clients

PATIENCE_S = 10.0
"""Real seconds within which a client must do its part."""
NEVER_TRUE = f"it was not true within {PATIENCE_S:g} s"
_STEP_MIN_S = 0.001
_NUDGE_AFTER_S = 0.03
"""Real seconds after which a client's back-off between two tries to connect is made to pass."""


class VirtualClock:
    """The servers' clock: real time, and what was made to pass, except for leaps: entries account for those."""

    goes_by_itself = False

    def __init__(self) -> None:
        self._real = MonotonicClock()
        self.leapt_ms = 0

    def now_ms(self) -> float:
        return self._real.now_ms() + client_clock.shift * 1000 - self.leapt_ms

    def unix_ms(self) -> int:
        """The time of day as it would be."""
        return calendar.unix_ms() + round(client_clock.shift * 1000)


class Served(Protocol):
    """What the timeline asks of a service."""

    def knows(self, driver: Driver) -> bool:
        """Whether this client has connected to it."""
        ...

    def is_cut_off(self, driver: Driver) -> bool:
        """Whether nothing goes between this client and the service."""
        ...

    def is_asleep(self, driver: Driver) -> bool:
        """Whether this client is paused."""
        ...

    def due_in(self) -> float:
        """Seconds until something is due at the server, or until sessions must have been renewed."""
        ...

    async def tick(self) -> None:
        """Let the server check the time."""
        ...

    def quiet_for(self) -> float:
        """Seconds for which the server can leap: nothing ends in them except what keep-alives renew."""
        ...

    def leap(self, seconds: int) -> None:
        """Let time pass at the server, with the sessions of all connected clients kept alive.

        The shared clock is moved by the same amount before the server reads it again.
        """
        ...


class Timeline:
    """Virtual time, and the services and clients in it."""

    def __init__(self) -> None:
        self.services: dict[Served, None] = {}
        self.turn = asyncio.Lock()
        """The lock for every change."""

    async def advance(self, seconds: float) -> None:
        """Let time pass; returns when everything due has happened, and clients have been notified."""
        async with self.turn:
            due = await self.settle()
            while seconds > 0:
                seconds -= self._leap(seconds)
                step = min(seconds, due)
                client_clock.shift += step
                seconds -= step
                due = await self.settle()

    async def settle(self) -> float:
        """Wait until every reachable client is connected and has received everything.

        Returns the seconds until something is due.
        """
        limit = time.monotonic() + PATIENCE_S
        due = await self._round()
        # Those of now: others may begin to connect all the time, and must not be waited for without end.
        expected = self._reaching()
        while expected:
            if time.monotonic() > limit:
                raise TimeoutError("a client did not connect again in time")
            if not await until(partial(self._are_reached, expected), _NUDGE_AFTER_S):
                # No more than that: a client that is connecting right now does so in real time.
                client_clock.shift += min(await _all(map(clients.pause_left, expected)))
            due = await self._round()
            expected &= self._reaching()
        return due

    def _leap(self, seconds: float) -> float:
        """Let time pass in which nothing happens but keep-alives; returns how much that was."""
        # In one piece: a client that asked or connected in between would count from another time.
        with no_other_thread():
            leap = int(min(seconds, self._quiet_for()))
            if leap > 0:
                for service in self.services:
                    service.leap(leap)
                for driver in clients.living():
                    clients.leap(driver, leap)
                client_clock.shift += leap
        return leap

    def _quiet_for(self) -> float:
        """Seconds in which nothing happens but keep-alives; 0 if that is not certain."""
        living = clients.living()
        if any(self._is_asleep(driver) or self._is_cut_off(driver) for driver in living):
            return 0.0
        spans = [clients.quiet_for(driver) for driver in living]
        return min([*spans, *(service.quiet_for() for service in self.services)], default=inf)

    async def _round(self) -> float:
        """Let all check the clock; returns the seconds until something is due."""
        awake = [driver for driver in clients.living() if not self._is_asleep(driver)]
        dues = await _all(clients.wake(driver) for driver in awake)
        await _all(service.tick() for service in self.services)
        await _all(
            clients.hear(driver) for driver in awake if driver.protocol.attached and self._is_served(driver)
        )
        dues += [service.due_in() for service in self.services]
        return max(0.0, min(dues, default=inf)) + _STEP_MIN_S

    def _reaching(self) -> set[Driver]:
        return {driver for driver in clients.living() if clients.is_reaching(driver) and self._is_served(driver)}

    def _are_reached(self, drivers: set[Driver]) -> bool:
        return not drivers & self._reaching()

    def _is_asleep(self, driver: Driver) -> bool:
        return any(service.is_asleep(driver) for service in self.services)

    def _is_cut_off(self, driver: Driver) -> bool:
        return any(service.is_cut_off(driver) for service in self.services)

    def _is_served(self, driver: Driver) -> bool:
        return any(service.knows(driver) and not service.is_cut_off(driver) for service in self.services)


@contextmanager
def no_other_thread() -> Iterator[None]:
    """Keep the interpreter's lock while the body runs, which must not wait for anything."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


async def until(true: Callable[[], object], seconds: float) -> bool:
    """Wait until something is true, for this many real seconds; says whether it is."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if true():
            return True
        await asyncio.sleep(0.001)
    return bool(true())


async def _all(parts: Iterable[Awaitable[Any]]) -> list[Any]:
    try:
        return await asyncio.wait_for(asyncio.gather(*parts), PATIENCE_S)
    except TimeoutError:
        raise TimeoutError(f"a client did not do its part in {PATIENCE_S:g} s: does its event loop run?") from None
