"""A checkup: the health of the engine behind the journal, requested by operators.

1. One look at a time, and none more often than every few seconds, however many ask: what was found last is the
   answer meanwhile. So requests cannot overload the engine.
2. No caller waits longer than a bound. A look that takes longer continues in the background, for later callers.
"""

import asyncio
import contextlib
from collections.abc import Callable

from fencehold.journal.health import Health
from fencehold.journal.port import Journal

WITHIN_S = 3.0
_FRESH_S = 2.0
_GRACE_S = 0.5
"""A look is to end by itself within its time; so much later callers stop waiting for it."""


class Checkup:
    """Looks at one journal's engine."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._found = Health()
        self._found_at: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()

    def ask(self, reply: Callable[[Health], None]) -> None:
        """Call `reply` with what is found, at once if that is known."""
        now = asyncio.get_running_loop().time()
        if self._found_at is not None and now - self._found_at < _FRESH_S:
            reply(self._found)
            return
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="fencehold checkup")
        waiting = asyncio.create_task(self._await(self._looking, reply))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    async def _await(self, looking: "asyncio.Task[None]", reply: Callable[[Health], None]) -> None:
        await asyncio.wait({looking}, timeout=WITHIN_S + _GRACE_S)
        late = Health(note=f"the engine did not report its health within {WITHIN_S:g} s")
        reply(self._found if looking.done() else late)

    async def _look(self) -> None:
        try:
            self._found = await self._journal.health(WITHIN_S)
            self._found_at = asyncio.get_running_loop().time()
        finally:
            self._looking = None

    async def end(self) -> None:
        """Stop looking; pending callers get no reply."""
        tasks = [*self._waiting, *([self._looking] if self._looking is not None else [])]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
