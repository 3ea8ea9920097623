"""What failed logins cost: time, for the address they come from, and never the processor.

1. A login that fails is answered late: the later, the more have failed from its address recently. The next command
   of the same connection is handled only after that answer.
2. Logins from an address that had failures take turns. So it guesses no faster with a thousand connections, or
   with a thousand commands sent at once, than with one.
3. Waiting logins are bounded, per address and in all; one beyond that is refused, unchecked. The refusal is
   delayed a moment, or a flood would return as fast as it is refused; but only for a bounded number at a time.
4. Failures are forgiven after a while, and the remembered addresses are bounded: the one that failed longest ago
   is dropped first.

An address is a machine, or for IPv6 the network of one (`listener.network_of`). It is never an identity: it only
decides who is delayed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from fencehold.errors import Overloaded

FIRST_DELAY_S = 0.1
TURNED_AWAY_S = 0.25
"""How long a refusal takes."""
_SWEEP_EVERY_S = 1.0
"""How often addresses with forgiven failures are searched for: there may be thousands."""


class Bounds(NamedTuple):
    """What failures cost, and what is remembered of them."""

    delay_s_max: float = 5.0
    forgiven_s: float = 60.0
    """After this long without a failure from an address, all is forgiven."""
    addresses_max: int = 4_096
    waiting_per_address_max: int = 16
    waiting_max: int = 512
    turned_away_max: int = 1_024
    """Delayed refusals at a time. A client that has disconnected is counted all the same, so the bound on
    connections does not bound these."""


class _Record:
    """What is known of one address."""

    __slots__ = ("failed_at", "failures", "turn", "waiting")

    def __init__(self) -> None:
        self.failures = 0
        self.failed_at = 0.0
        self.waiting = 0
        self.turn = asyncio.Lock()


class Throttle:
    """Which addresses failed, and how long that delays the next answer."""

    def __init__(self, bounds: Bounds | None = None, *, sleep: Callable[[float], object] | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._sleep = sleep or asyncio.sleep
        self._records: dict[str, _Record] = {}
        """By address, the last to fail at the end."""
        self._waiting = self._turned_away = 0
        self._sweep_at = 0.0
        self.failures = 0
        """In all, since it was made."""

    def delay_s(self, address: str) -> float:
        """How long an answer takes after the failures so far."""
        record = self._records.get(address)
        if record is None or not record.failures:
            return 0.0
        return min(self.bounds.delay_s_max, FIRST_DELAY_S * 2.0 ** min(record.failures - 1, 16))

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[Callable[[], None]]:
        """Have a login checked in the body; what it yields is to be called if it failed, before the end.

        Raises:
            Overloaded: too many wait already. Nothing was checked.
        """
        record = self._entered(address)
        if record is None:
            await self._hold_off()
            raise Overloaded("too many logins from there wait already", retry_after_s=1.0)
        failed: list[bool] = []
        try:
            if record.failures or record.turn.locked():
                async with record.turn:
                    yield lambda: failed.append(True)
                    await self._settle(address, record, failed)
            else:
                yield lambda: failed.append(True)
                await self._settle(address, record, failed)
        finally:
            record.waiting -= 1
            self._waiting -= 1
            if not record.failures and not record.waiting:
                self._records.pop(address, None)

    async def _settle(self, address: str, record: _Record, failed: list[bool]) -> None:
        if not failed:
            return
        self.failures += 1
        record.failures += 1
        record.failed_at = asyncio.get_running_loop().time()
        # Last in line to be dropped.
        self._records[address] = self._records.pop(address, record)
        await self._wait(self.delay_s(address))

    async def _hold_off(self) -> None:
        """Delay a refusal, if not too many are delayed."""
        if self._turned_away >= self.bounds.turned_away_max:
            return
        self._turned_away += 1
        try:
            await self._wait(TURNED_AWAY_S)
        finally:
            self._turned_away -= 1

    async def _wait(self, delay_s: float) -> None:
        waited = self._sleep(delay_s)
        if asyncio.iscoroutine(waited):
            await waited

    def _entered(self, address: str) -> _Record | None:
        """None: too many wait already."""
        self._forget()
        record = self._records.get(address)
        waiting = record.waiting if record is not None else 0
        if waiting >= self.bounds.waiting_per_address_max or self._waiting >= self.bounds.waiting_max:
            return None
        if record is None:
            record = self._records[address] = _Record()
        record.waiting += 1
        self._waiting += 1
        return record

    def _forget(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEEP_EVERY_S
            forgiven = [
                address
                for address, record in self._records.items()
                if not record.waiting and now - record.failed_at > self.bounds.forgiven_s
            ]
            for address in forgiven:
                del self._records[address]
        while len(self._records) >= self.bounds.addresses_max:
            oldest = next((each for each, record in self._records.items() if not record.waiting), None)
            if oldest is None:
                return
            del self._records[oldest]
