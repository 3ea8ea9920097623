"""An alarm: one call, at the earliest time that was asked for."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Rings once for the earliest of the times it was set to."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, delay_s: float) -> None:
        """Ring in so many seconds, unless it rings before that anyway."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._on_time)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        self._ring()
