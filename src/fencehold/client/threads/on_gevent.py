"""Where gevent has patched threads: a caller that waits for the portal's thread waits in its own thread's hub.

gevent's patched locks are not enough: they give up (`LoopExit`) when they wait for another thread and their hub
has nothing else to do. An async watcher is what gevent lets other threads use, and keeps the hub running.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event
from gevent.monkey import get_original

from fencehold.client.threads.greenlets import loop_of_greenlets, on_real_thread


class GeventGate:
    """Opened by an async watcher."""

    __slots__ = ("_event", "_is_open", "_watcher")

    def __init__(self) -> None:
        self._event: Any = Event()
        self._watcher: Any = gevent.get_hub().loop.async_()
        self._is_open = False

    def wait(self, timeout: float | None = None) -> bool:
        self._watcher.start(self._event.set)
        try:
            # After the start: either this is seen here, or the watcher goes off.
            return self._is_open or self._event.wait(timeout) or self._is_open
        finally:
            self._watcher.stop()

    def open(self) -> None:
        self._is_open = True
        self._watcher.send()


class GeventThreads:
    """An application whose threads are gevent's."""

    gate = GeventGate

    def start(self, body: Callable[[], None]) -> Callable[[], object]:
        def run() -> None:
            try:
                body()
            finally:
                # Its threads, which resolve names, end with it.
                gevent.get_hub().destroy(destroy_loop=True)

        return on_real_thread(get_original("_thread", "start_new_thread"), run, GeventGate())

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return loop_of_greenlets(gevent.spawn)

    def caller(self) -> Callable[[Callable[[], object]], object]:
        loop: Any = gevent.get_hub().loop
        return lambda call: loop.run_callback_threadsafe(gevent.spawn, call)
