"""The client's clock: monotonic seconds, which also pass while the machine sleeps.

A laptop that wakes up must find its holds lost: the server's time has passed. On Linux, CLOCK_BOOTTIME does this;
where it is missing, the monotonic clock has to do.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Returns seconds since some fixed instant, and never goes back."""

_read: Clock = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)

shift = 0.0
"""Seconds by which the clock is ahead. Only `fencehold.testing` moves it, and only forward."""


def clock() -> float:
    """Now, in seconds since some fixed instant."""
    return _read() + shift
