"""The keep-alive timer of a client with sessions in several shards: one for all of them.

1. Each session is kept alive by its own protocol over its own connection, and trusted on its own (G7). Only the
   timer is shared: drivers that join have none of their own.
2. It goes off when the first of them is due, and wakes those that are. When a keep-alive is among what is due,
   those that would be due soon are sent, too: earlier is always safe. So after a few times all are sent together,
   in one turn of the loop, with one write per connection.
3. Each driver is woken by a callback of its own, and writing never waits: a connection that hangs, a shard that is
   down, or an error in one delays no other.
"""

import asyncio
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencehold.client.driver import Driver


class KeepAliveTimer:
    """One timer for several drivers, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._drivers: list[Driver] = []
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf
        self.times = 0
        """How often it went off."""

    def join(self, driver: "Driver") -> None:
        """Wake this driver from now on."""
        if driver not in self._drivers:
            self._drivers.append(driver)
            driver.share_timer(self)

    def leave(self, driver: "Driver") -> None:
        """Wake it no more."""
        if driver in self._drivers:
            self._drivers.remove(driver)
        if not self._drivers and self._timer is not None:
            self._timer.cancel()
            # Reset, too: a driver that joins later would wait for it.
            self._timer, self._at = None, inf

    def expect(self, instant: float, now: float) -> None:
        """A driver is to be woken then."""
        if instant < self._at:
            if self._timer is not None:
                self._timer.cancel()
            self._at = instant
            self._timer = self._loop.call_later(max(0.0, instant - now), self._go_off)

    def _go_off(self) -> None:
        self._timer, self._at = None, inf
        self.times += 1
        drivers = [driver for driver in self._drivers if driver.due_at() > -inf]
        is_alive = any(driver.protocol.is_keep_alive_due(driver.clock()) for driver in drivers)
        for driver in drivers:
            now = driver.clock()
            if driver.due_at() <= now or (is_alive and driver.protocol.hasten(now)):
                # In a callback of its own: an error there must not affect the others.
                self._loop.call_soon(driver.wake)
            else:
                self.expect(driver.due_at(), now)
