"""The background: one thread with an event loop, on which all test services of a process live.

1. It is there while any service is: the first one starts it, the last one ends it. Nothing is left.
2. One loop for all of them, because time is one for all of them.
3. A child process has neither the thread nor the services of its parent. It may open its own.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from fencehold.errors import UsageError
from fencehold.testing.timeline import Timeline

Result = TypeVar("Result")


class Background:
    """The thread, and what the services on it share."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.timeline = Timeline()

    def enter(self) -> None:
        """Start the thread, unless it runs."""
        with self._changing:
            self._users += 1
            if self._loop is None:
                self.timeline = Timeline()
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(loop,), name="fencehold testing", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """End the thread, unless another service needs it."""
        with self._changing:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def on_forked(self) -> None:
        """In a child: start afresh, and never close the parent's loop, since its file descriptors are shared."""
        _inherited.append(self._loop)
        self._changing = threading.Lock()
        self._users, self._loop, self._thread = 0, None, None

    def submit(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Run something there."""
        if self._loop is None:
            work.close()
            raise UsageError("the service is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run something there that needs the clients, and wait for it.

        Raises:
            UsageError: this is called on an event loop, which would block the clients on it.
        """
        if _on_a_loop():
            work.close()
            raise UsageError("on an event loop, await the verbs of `service.aio`: a blocking one would stop it")
        return self.submit(work).result()

    async def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The same for callers on an event loop."""
        return await asyncio.wrap_future(self.submit(work))


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


background = Background()
_inherited: list[asyncio.AbstractEventLoop | None] = []

os.register_at_fork(after_in_child=background.on_forked)
