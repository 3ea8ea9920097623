"""What the threads of gevent and of eventlet have in common: one that is real, and the loop that runs on it."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fencehold.client.threads.gates import Gate


class GreenletExecutor(ThreadPoolExecutor):
    """For the loop of a portal, which resolves names by it: each call is a greenlet beside the loop.

    The threads of any other executor would be greenlets, too, for which the process would wait at its end, when
    the thread that could run them is gone.
    """

    def __init__(self, spawn: Callable[[Callable[[], None]], object]) -> None:
        super().__init__(1)
        self._spawn = spawn

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._spawn(run)
        return future


def loop_of_greenlets(spawn: Callable[[Callable[[], None]], object]) -> asyncio.AbstractEventLoop:
    """A new loop on a thread whose other greenlets are spawned by `spawn`."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(GreenletExecutor(spawn))
    return loop


def on_real_thread(start: Callable[..., object], body: Callable[[], None], end: Gate) -> Callable[[], object]:
    """Run a body by an original `start_new_thread`. What is returned waits for its end at a gate."""

    def run() -> None:
        threading.current_thread().name = "fencehold"
        try:
            body()
        finally:
            end.open()

    start(run, ())
    return end.wait
