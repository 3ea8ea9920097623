"""The scheduler: all that is to happen, by virtual time. What happens at one instant happens in the order it was
arranged in."""

import asyncio
from asyncio.events import _set_running_loop
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.process import Process

SECOND = 1_000_000_000
"""Nanoseconds, the unit of virtual time: whole numbers, so that no sum depends on its order."""

MOMENT = 1_000_000
STEPS_IN_A_MOMENT_MAX = 100_000


class Livelock(Exception):
    """Something happens again and again while hardly any time passes."""


class Scheduler:
    """Virtual time, and what will happen in it."""

    __slots__ = ("_entered", "_heap", "_moment_ns", "_moment_steps", "_sequence", "now_ns", "running", "steps")

    def __init__(self) -> None:
        self.now_ns = 0
        self.steps = 0
        self.running: Process | None = None
        """The process whose code runs at this moment."""
        self._heap: list[tuple[int, int, Process | None, Any, tuple[Any, ...]]] = []
        self._sequence = 0
        self._moment_ns = self._moment_steps = 0
        self._entered: Process | None = None

    @property
    def now_s(self) -> float:
        return self.now_ns / SECOND

    def at(self, at_ns: int, process: "Process | None", call: Callable[..., object], *args: Any) -> None:
        """Have a call made then: inside a process, if it lives, or, with None, in the world."""
        self._sequence += 1
        heappush(self._heap, (at_ns, self._sequence, process, call, args))

    def ring_at(self, at_ns: int, process: "Process", handle: asyncio.TimerHandle) -> None:
        """Have a timer of a process go off then, unless it is cancelled before."""
        self._sequence += 1
        heappush(self._heap, (at_ns, self._sequence, process, handle, ()))

    def after(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Have something happen in the world, that long from now."""
        self.at(self.now_ns + int(seconds * SECOND), None, call, *args)

    def run(self, until_ns: int) -> None:
        """Let time pass, up to and including an instant."""
        heap = self._heap
        while heap and heap[0][0] <= until_ns:
            at_ns, _, process, call, args = heappop(heap)
            if type(call) is asyncio.TimerHandle:
                if call._cancelled:
                    continue
                call, args = process.loop.ring, (call,)  # type: ignore[union-attr]
            self.steps += 1
            self.now_ns = max(self.now_ns, at_ns)
            if self.now_ns >= self._moment_ns:
                self._moment_ns, self._moment_steps = self.now_ns + MOMENT, self.steps
            elif self.steps - self._moment_steps > STEPS_IN_A_MOMENT_MAX:
                raise Livelock(f"at {self.now_s:.6f} s: {call!r}{args!r} in {process!r}")
            if process is None:
                call(*args)
            else:
                process.do(call, *args)
        self.now_ns = max(self.now_ns, until_ns)

    def enter(self, process: "Process") -> None:
        """The code of a process is about to run."""
        # Only when it changes, and left as it is between the steps: asyncio makes it dear.
        if self._entered is not process:
            self._entered = process
            _set_running_loop(process.loop)
        self.running = process

    def leave(self) -> None:
        """The run is over."""
        self._entered = None
        _set_running_loop(None)
