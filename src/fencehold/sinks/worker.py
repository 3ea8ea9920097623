"""The worker: one thread for a target whose driver blocks. What it is asked it does one after the other.

Who waits may be cancelled; what was begun is finished all the same, and what is asked next, such as to close the
target, comes after it: a connection that is closed while another thread writes by it takes the process with it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class Worker:
    """A thread that is there while it is needed."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def do(self, call: Callable[..., Result], *args: Any) -> Result:
        """Have something done, after all that was asked before."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "fencehold-sink")
        doing = asyncio.get_running_loop().run_in_executor(self._thread, call, *args)
        doing.add_done_callback(_forget)
        return await asyncio.shield(doing)

    async def end(self, call: Callable[[], None]) -> None:
        """Have a last thing done, and end the thread."""
        await self.do(call)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None


def _forget(doing: "asyncio.Future[Any]") -> None:
    """Who asked may be gone, and nobody else looks at what became of it."""
    if not doing.cancelled():
        doing.exception()
