"""Gates, at which callers wait until the portal's thread opens them; and how that thread is started.

1. The portal's thread is a real one, also where an application's threads are greenlets (gevent, eventlet): a
   greenlet that computes for long must not keep sessions from being kept alive.
2. A caller that waits at a gate lets the application's other threads run, or its other greenlets.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol


class Gate(Protocol):
    """Opened once, by any thread; passed by the thread or greenlet that made it."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, for so many seconds at most; says whether it is."""

    def open(self) -> None:
        """Let the waiting thread pass, now or when it waits."""


class Threads(Protocol):
    """The kind of threads of an application: real ones or greenlets."""

    @property
    def gate(self) -> Callable[[], Gate]:
        """Makes a gate for the calling thread, or greenlet."""

    def start(self, body: Callable[[], None]) -> Callable[[], object]:
        """Run a body on a real thread. What is returned waits for its end."""

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """An event loop for the real thread that calls this."""

    def caller(self) -> Callable[[Callable[[], object]], object]:
        """A function by which any thread can have a call made on a thread, or greenlet, of the application."""


class LockGate:
    """For real threads: a plain lock."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, timeout: float | None = None) -> bool:
        return self._lock.acquire(timeout=-1 if timeout is None else timeout)

    def open(self) -> None:
        self._lock.release()


class RealThreads:
    """Threads of the operating system."""

    gate = LockGate

    def start(self, body: Callable[[], None]) -> Callable[[], object]:
        thread = threading.Thread(target=body, name="fencehold", daemon=True)
        thread.start()
        return thread.join

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def caller(self) -> Callable[[Callable[[], object]], object]:
        return lambda call: threading.Thread(target=call, name="fencehold callback", daemon=True).start()
