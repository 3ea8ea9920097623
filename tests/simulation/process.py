"""Processes: each with an event loop of its own and the clock of its machine; killed, stopped and continued.

1. A killed process does nothing more: what was arranged for it is dropped. Its objects are kept until the run is
   over, so that no `finally` or `__del__` of a dead one runs in the middle of somebody else's work.
2. A stopped one does nothing until it is continued; its clock goes on. What came meanwhile is then there at once:
   in the order it came, or, as event loops do it, what came over the network before the timers, and that in
   whatever order the kernel tells of its sockets.
3. Between the steps of one process nothing else happens: code takes no time.
"""

import asyncio
import contextlib
import traceback
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from math import ceil
from random import Random
from typing import Any, NamedTuple

from tests.simulation.loop import SimulatedLoop
from tests.simulation.scheduler import SECOND, Scheduler


class Drift(NamedTuple):
    """How the clock of a machine tells the time."""

    offset_s: float
    rate: float
    """Its seconds in one true second."""

    def seconds(self, now_ns: int) -> float:
        """What it shows."""
        return self.offset_s + now_ns * (self.rate / SECOND)

    def ns(self, seconds: float) -> int:
        """When it will have shown that; never too early."""
        return ceil((seconds - self.offset_s) / self.rate * SECOND) + 1


class Process:
    """One running program on one machine."""

    def __init__(self, scheduler: Scheduler, host: str, drift: Drift, on_complaint: Callable[[str], None]) -> None:
        self.scheduler = scheduler
        self.host = host
        self.drift = drift
        self._offset_s, self._rate_ns = drift.offset_s, drift.rate / SECOND
        self.alive = True
        self.stopped = False
        self.ready: deque[asyncio.Handle] = deque()
        self.loop = SimulatedLoop(self)  # type: ignore[abstract]  # What it lacks nobody here asks for.
        self._on_complaint = on_complaint
        self._waking = False
        self._backlog: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def __repr__(self) -> str:
        return f"<process on {self.host}>"

    def seconds(self) -> float:
        """The clock of its machine, which goes on while it is stopped."""
        # As `Drift.seconds`, written out: nothing is called more often.
        return self._offset_s + self.scheduler.now_ns * self._rate_ns

    goes_by_itself = True

    def now_ms(self) -> float:
        """The same, as a node reads it."""
        return self.seconds() * 1000

    # What is done inside it.

    def do(self, call: Callable[..., object], *args: Any) -> None:
        """Make a call inside it, then whatever that made ready; later, if it is stopped."""
        if not self.alive:
            return
        if self.stopped:
            self._backlog.append((call, args))
            return
        scheduler, ready = self.scheduler, self.ready
        before = scheduler.running
        if before is self:
            # A step within a step: what it makes ready has its turn after what was ready before.
            call(*args)
            return
        scheduler.enter(self)
        try:
            call(*args)
            while ready:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        except Exception:
            self.complain(traceback.format_exc())
        finally:
            scheduler.running = before
            if before is not None:
                scheduler.enter(before)

    def wake(self) -> None:
        """Something is ready, though it is not running: let it run."""
        if not self._waking:
            self._waking = True
            self.scheduler.at(self.scheduler.now_ns, self, self._woken)

    def _woken(self) -> None:
        self._waking = False

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Run a coroutine in it."""
        return self.loop.create_task(coroutine, name=name)

    def complain(self, what: str) -> None:
        """Something went wrong that must never go wrong."""
        if self.alive:
            self._on_complaint(f"{self.host}: {what}")

    # What is done to it.

    def stop(self) -> None:
        """As by SIGSTOP."""
        self.stopped = True

    def go_on(self, random: Random) -> None:
        """As by SIGCONT."""
        self.stopped = False
        backlog, self._backlog = self._backlog, []
        how = random.choice(("as it came", "timers last", "in any order, timers last"))
        if how != "as it came":
            timers = [entry for entry in backlog if entry[0] == self.loop.ring]
            others = [entry for entry in backlog if entry[0] != self.loop.ring]
            if how != "timers last":
                random.shuffle(others)
                # A connection is taken before it is read.
                others.sort(key=lambda entry: entry[0].__name__ != "accept")
            backlog = others + timers
        for call, args in backlog:
            self.do(call, *args)

    def kill(self) -> None:
        """As by SIGKILL."""
        self.alive = False

    def bury(self) -> None:
        """The run is over: let go of everything, without a word."""
        self.alive = False
        _set_running_loop(self.loop)
        try:
            for task in asyncio.all_tasks(self.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                # Whatever a dead program still tries when it is cleared away is nobody's concern.
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        finally:
            _set_running_loop(None)
        self.ready.clear()
        self._backlog.clear()
