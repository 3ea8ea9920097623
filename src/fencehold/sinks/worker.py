"""The worker: one thread for a target whose driver blocks. It does its calls one after the other.

A waiting caller may be cancelled; the call it began is finished all the same, and the next one, such as closing
the target, comes after it: closing a connection while another thread writes to it crashes the process.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class Worker:
    """A thread that exists while it is needed."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def do(self, call: Callable[..., Result], *args: Any) -> Result:
        """Run a call, after all earlier ones."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "fencehold-sink")
        doing = asyncio.get_running_loop().run_in_executor(self._thread, call, *args)
        doing.add_done_callback(_forget)
        return await asyncio.shield(doing)

    async def end(self, call: Callable[[], None]) -> None:
        """Run a last call, and end the thread."""
        await self.do(call)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None


def _forget(doing: "asyncio.Future[Any]") -> None:
    """The caller may be gone, and nothing else retrieves the result."""
    if not doing.cancelled():
        doing.exception()
