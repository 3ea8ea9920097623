"""Work that its caller may give up, but that goes on: giving up a statement is not undoing it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Crew:
    """All work of one open journal that is under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: "Coroutine[Any, Any, T]") -> "asyncio.Future[T]":
        """Start it at once. Cancelling what this returns does not cancel the work."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)

    async def end(self, seconds: float | None = None) -> None:
        """Wait until all of it has ended, or so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
