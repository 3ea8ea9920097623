"""Where eventlet has patched threads: a caller that waits for the portal's thread waits in its own thread's hub.

An eventlet hub does not notice what another thread does to its locks. So each has a *bell*: a pipe that one of its
greenlets reads, and any thread writes to.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import eventlet
from eventlet.event import Event
from eventlet.hubs import trampoline
from eventlet.patcher import original

from fencehold.client.threads.greenlets import loop_of_greenlets, on_real_thread

_os: Any = original("os")


class Bell:
    """Has things called in the hub of one thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._calls: deque[Callable[[], object]] = deque()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        eventlet.spawn(self._listen)

    def ring(self, call: Callable[[], object]) -> None:
        """Have something called there. Any thread may."""
        self._calls.append(call)
        # A full pipe wakes up the reader, too.
        with suppress(BlockingIOError):
            _os.write(self._writing, b"!")

    def _listen(self) -> None:
        while True:
            trampoline(self._reading, read=True)
            _os.read(self._reading, 4_096)
            while self._calls:
                self._calls.popleft()()


_own: Any = original("threading").local()
"""The bell of each real thread."""


def bell() -> Bell:
    """That of the calling thread; in a child process another than its parent's."""
    found: Bell | None = getattr(_own, "bell", None)
    if found is None or found.pid != os.getpid():
        found = _own.bell = Bell()
    return found


class EventletGate:
    """Opened by the bell of the hub that its greenlet waits in."""

    __slots__ = ("_bell", "_event")

    def __init__(self) -> None:
        self._bell = bell()
        self._event: Any = Event()

    def wait(self, timeout: float | None = None) -> bool:
        # What was sent, or None when the time is over.
        return bool(self._event.wait(timeout))

    def open(self) -> None:
        self._bell.ring(lambda: self._event.send(True))


class EventletThreads:
    """An application whose threads are eventlet's."""

    gate = EventletGate

    def start(self, body: Callable[[], None]) -> Callable[[], object]:
        return on_real_thread(original("_thread").start_new_thread, body, EventletGate())

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return loop_of_greenlets(eventlet.spawn)

    def caller(self) -> Callable[[Callable[[], object]], object]:
        ringing = bell()
        return lambda call: ringing.ring(lambda: eventlet.spawn(call))
