"""An owner inside a session: a task that makes its requests, so that the SDK can tell them from others'.

1. To the SDK, a task is an owner. So all requests of one owner are made by one task, one after the other, as a
   thread would; two owners are two tasks, and a circle between them is detected as a deadlock.
2. Stopping to wait withdraws the request. What was granted at the same moment is passed to `undo`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

Call = Callable[[], Awaitable[Any]]
Undo = Callable[[Any], None]


class _Ask(NamedTuple):
    call: Call
    answer: "asyncio.Future[Any]"
    undo: Undo


class OwnerTask:
    """Made at an owner's first request; stopped when it neither requests nor holds anything."""

    def __init__(self, name: str) -> None:
        self.holds = 0
        """Holds that were acquired by it: as long as there are any, it must stay the same owner."""
        self._asks: deque[_Ask] = deque()
        self._current: _Ask | None = None
        self._wake = asyncio.Event()
        self._is_stopped = False
        self._task = asyncio.create_task(self._run(), name=name)

    @property
    def is_idle(self) -> bool:
        return not self.holds and not self._asks and self._current is None

    async def run(self, call: Call, undo: Undo) -> Any:
        """Have this called by the owner, and return what it returns."""
        ask = _Ask(call, asyncio.get_running_loop().create_future(), undo)
        self._asks.append(ask)
        self._wake.set()
        try:
            return await ask.answer
        except asyncio.CancelledError:
            if ask is self._current:
                self._task.cancel()
            elif ask.answer.done() and not ask.answer.cancelled() and ask.answer.exception() is None:
                undo(ask.answer.result())
            raise

    def stop(self) -> None:
        """Make no more requests."""
        self._is_stopped = True
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            while not self._asks:
                self._wake.clear()
                await self._wake.wait()
            self._current = ask = self._asks.popleft()
            try:
                if not ask.answer.done():
                    await self._answer(ask)
            finally:
                self._current = None

    async def _answer(self, ask: _Ask) -> None:
        try:
            result = await ask.call()
        except asyncio.CancelledError:
            ask.answer.cancel()
            task = asyncio.current_task()
            if self._is_stopped or task is None:
                raise
            # Only the request is withdrawn: the owner continues.
            task.uncancel()
        except Exception as error:
            if not ask.answer.done():
                ask.answer.set_exception(error)
        else:
            if ask.answer.done():
                ask.undo(result)
            else:
                ask.answer.set_result(result)
