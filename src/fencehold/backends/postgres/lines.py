"""The lines of a client: a few connections for its steps, made as they are needed.

1. A step goes on the line with the least under way. If all have something, one more is made meanwhile, up to a
   number: a server commits for several connections at once, but for one only one after the other.
2. Nobody who can go on waits for a connection to be made; those who must wait for the same one.
3. After a failure the next attempt waits, ever longer, up to a second; who asks meanwhile is told that failure.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fencehold.drivers.postgres.line import Line
from fencehold.errors import FenceholdError, Unavailable

_PAUSE_S = 0.05
_PAUSE_S_MAX = 1.0


class Lines:
    """Belongs to the event loop it was made on."""

    def __init__(self, make: Callable[[], Awaitable[Line]], count_max: int, first: Line) -> None:
        self._make = make
        self._count_max = count_max
        self._lines = [first]
        self._making: asyncio.Task[Line] | None = None
        self._pause_s = 0.0
        self._not_before = 0.0
        self._failure: FenceholdError = Unavailable("the client is closed")
        """Why the last attempt failed."""
        self._is_closed = False

    async def pick(self) -> Line:
        """A line to send something on, now.

        Raises:
            Unavailable, PermissionDenied, …: there is none, as `make` says.
        """
        best = self._best()
        if best is not None:
            if best.load and len(self._lines) < self._count_max:
                self._begin()
            return best
        making = self._begin()
        if making is None:
            raise type(self._failure)(str(self._failure))
        # Others wait for the same one, and go on if this one is cancelled.
        return await asyncio.shield(making)

    async def close(self) -> None:
        """End all."""
        self._is_closed = True
        if self._making is not None:
            self._making.cancel()
            with suppress(asyncio.CancelledError, FenceholdError):
                await self._making
        for line in tuple(self._lines):
            line.end("the client was closed")

    def _best(self) -> Line | None:
        self._lines = [line for line in self._lines if not line.ended.is_set()]
        return min(self._lines, key=lambda line: line.load, default=None)

    def _begin(self) -> "asyncio.Task[Line] | None":
        if self._making is None and not self._is_closed and asyncio.get_running_loop().time() >= self._not_before:
            self._making = asyncio.create_task(self._made())
            self._making.add_done_callback(self._on_made)
        return self._making

    async def _made(self) -> Line:
        line = await self._make()
        self._lines.append(line)
        return line

    def _on_made(self, task: "asyncio.Task[Line]") -> None:
        self._making = None
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._pause_s = 0.0
            return
        self._failure = error if isinstance(error, FenceholdError) else Unavailable(str(error))
        self._pause_s = min(max(_PAUSE_S, 2 * self._pause_s), _PAUSE_S_MAX)
        self._not_before = asyncio.get_running_loop().time() + self._pause_s
