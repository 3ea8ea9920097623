"""The time of day: separate from the clock, since it may be set, forwards and back, at any time.

No lock, session or leader is ever decided by it. It dates what people read, and a restore raises the fences above
it.
"""

from collections.abc import Callable
from time import time_ns
from typing import TypeAlias

Calendar: TypeAlias = Callable[[], int]
"""Tells the time of day, in milliseconds since the Unix epoch."""


def unix_ms() -> int:
    """The calendar of the machine this runs on."""
    return time_ns() // 1_000_000


def now_us() -> int:
    """Microseconds since the Unix epoch."""
    return time_ns() // 1_000
