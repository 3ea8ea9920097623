"""An owner inside a session: a task that asks on its behalf, so that the SDK tells its requests from others'.

1. To the SDK, a task is an owner. So all that one owner asks for is asked by one task, one thing after the
   other, as a thread would; two owners are two tasks, and a circle between them is a deadlock that is found.
2. Stopping to wait withdraws what was asked. What was granted in the same moment is given to `undo`.
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
    """Made when an owner first asks; stopped when it neither asks nor holds anything."""

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
        """Ask for nothing any more."""
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
            # Only what was asked is withdrawn: the owner goes on.
            task.uncancel()
        except Exception as error:
            if not ask.answer.done():
                ask.answer.set_exception(error)
        else:
            if ask.answer.done():
                ask.undo(result)
            else:
                ask.answer.set_result(result)
