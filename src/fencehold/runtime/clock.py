"""The clock: the only source of time. Monotonic, for durations only; it does not give the time of day."""

import time
from time import monotonic_ns
from typing import Protocol


class Clock(Protocol):
    """Something that advances and never goes back."""

    goes_by_itself: bool
    """Nothing sets it: if a task reads it late, that task was delayed."""

    def now_ms(self) -> float:
        """Milliseconds since some fixed instant."""
        ...


class MonotonicClock:
    """The clock of the machine this runs on."""

    goes_by_itself = True

    def now_ms(self) -> float:
        return monotonic_ns() / 1_000_000


def boot_ms() -> float:
    """Milliseconds of a clock that goes on while the machine sleeps, where there is one: for leases of others."""
    return time.clock_gettime_ns(_BOOT) / 1_000_000


def slept_ms() -> float:
    """How long the machine has slept since it was started, without the clock of durations counting it."""
    return boot_ms() - monotonic_ns() / 1_000_000


_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
