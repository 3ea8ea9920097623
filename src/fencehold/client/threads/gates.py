"""Gates, at which callers wait until the portal's thread opens them; and how that thread is started.

1. The portal's thread is a real one, also where an application's threads are greenlets (gevent, eventlet): a
   greenlet that computes for long must not keep sessions from being kept alive.
2. A caller that waits at a gate lets the application's other threads run, or its other greenlets.
3. Whether the application's threads are real is checked when a portal is made: patches come before that.
"""

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol


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


_REAL = RealThreads()


def threads() -> Threads:
    """The kind of threads of this application now."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        from fencehold.client.threads.on_gevent import GeventThreads  # noqa: PLC0415 - it needs gevent

        return GeventThreads()
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        from fencehold.client.threads.on_eventlet import EventletThreads  # noqa: PLC0415 - it needs eventlet

        return EventletThreads()
    return _REAL


def are_real() -> bool:
    """Whether the threads of this application are real ones now."""
    return threads() is _REAL


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
