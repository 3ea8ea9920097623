"""Listening: one connection on which a client hears that it is the turn of one of its asks.

1. It is made when somebody first waits, and made anew when it is lost, ever less eagerly.
2. What was said while nobody listened is lost. So whoever waits tries again as soon as it listens.
3. Where it cannot listen, nothing is wrong: those who wait try again now and then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fencehold.drivers.postgres.failures import Rejected
from fencehold.drivers.postgres.line import Line
from fencehold.errors import FenceholdError

_PAUSE_S = 0.05
_PAUSE_S_MAX = 5.0


class Listening:
    """Belongs to the event loop it was made on."""

    def __init__(
        self,
        make: Callable[[], Awaitable[Line]],
        channel: str,
        on_word: Callable[[str], None],
        on_listening: Callable[[], None],
    ) -> None:
        self._make = make
        self._channel = channel
        self._on_word = on_word
        self._on_listening = on_listening
        self._task: asyncio.Task[None] | None = None
        self._listens = False

    @property
    def channel(self) -> str:
        """Where to be told something; empty while nobody listens."""
        return self._channel if self._listens else ""

    def begin(self) -> None:
        """From now on. Done twice it changes nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        pause_s = _PAUSE_S
        while True:
            with suppress(FenceholdError, Rejected):
                await self._listen()
                pause_s = _PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _listen(self) -> None:
        line = await self._make()
        try:
            line.on_notify = self._on_word
            await line.ask(f'LISTEN "{self._channel}"'.encode())
            self._listens = True
            self._on_listening()
            await line.ended.wait()
        finally:
            self._listens = False
            line.end("nobody listens any more")
