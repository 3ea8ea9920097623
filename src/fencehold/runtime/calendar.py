"""The time of day: a door apart from the clock, since it may be set, forwards and back, at any time.

No lock, session or leader is ever decided by it. It dates what people read, and a restore raises the fences above
it.
"""

from time import time_ns


def now_us() -> int:
    """Microseconds since the Unix epoch."""
    return time_ns() // 1_000
