"""For users of redis-py: its `Lock` on Fencehold, and a shadow that reports what redis-py's own locks do.

``Lock(client, name, timeout=…)`` takes a client of `fencehold.connect`, or of redis-py, and so
``Redis.lock(name, lock_class=Lock)`` works. `Shadow` leaves the locks where they are. `asyncio` has the same for
event loops. All of it needs redis-py: ``pip install 'fencehold[redis]'``.
"""

from fencehold.compat.redis.errors import (
    Denied,
    Gone,
    InDoubt,
    Misused,
    NotAcquired,
    NotHeld,
    NotHonoured,
    TooBusy,
    Unreachable,
)
from fencehold.compat.redis.locks import Lock, close, lock
from fencehold.compat.redis.shadow_locks import ShadowLock
from fencehold.compat.redis.shadows import Shadow
from fencehold.compat.shadow import Report, Side, Summary

__all__ = [
    "Denied",
    "Gone",
    "InDoubt",
    "Lock",
    "Misused",
    "NotAcquired",
    "NotHeld",
    "NotHonoured",
    "Report",
    "Shadow",
    "ShadowLock",
    "Side",
    "Summary",
    "TooBusy",
    "Unreachable",
    "close",
    "lock",
]
