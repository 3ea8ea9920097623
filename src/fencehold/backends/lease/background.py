"""Background retries: what is still to be done after its caller has stopped waiting.

1. A withdrawal is retried, with back-off, until it is done or its time is over: what it would withdraw has expired
   then.
2. Their number is bounded. Beyond that, what should be withdrawn expires by itself, too.
3. When the client is closed, they get a moment to finish, and no more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fencehold.errors import FenceholdError

_TASKS_MAX = 1_024
_PAUSE_S = 0.05
_PAUSE_S_MAX = 1.0
_CLOSING_S = 2.0


class BackgroundRetries:
    """The background retries of one backend."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, work: Callable[[], Awaitable[object]], seconds: float) -> None:
        """Have it done; retry for so long at most."""
        if len(self._tasks) < _TASKS_MAX:
            task = asyncio.create_task(_until_done(work, seconds))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Let them finish."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSING_S)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _until_done(work: Callable[[], Awaitable[object]], seconds: float) -> None:
    pause_s = _PAUSE_S
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                try:
                    await work()
                    return
                except FenceholdError:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_S_MAX)
