"""Fencehold: locks as safe as consensus, as fast as Redis, that your database itself can enforce.

``fencehold.connect(…)`` is the client for threads, ``fencehold.aio.connect(…)`` the one for an event loop. Names
are imported when they are first used: a command line that asks for the version should not wait for an event loop.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if os.environ.get("FENCEHOLD_PURE", "0") not in ("", "0"):
    # Before any other module of this package: the compiled ones must not be found.
    from fencehold.build import prefer_source

    prefer_source()

from fencehold.version import __version__

if TYPE_CHECKING:
    from fencehold import aio, errors
    from fencehold.client.blocking.client import Client, connect
    from fencehold.client.blocking.election import Election, Leadership, Term, Turn
    from fencehold.client.blocking.hold import Claim, Hold, Loss
    from fencehold.client.blocking.lock import Lock, UntimedLock
    from fencehold.client.blocking.recipes import RLock, RWLock, UntimedRLock, UntimedRWLock
    from fencehold.client.blocking.watch import Watch
    from fencehold.durations import Duration
    from fencehold.errors import (
        Deadlock,
        FenceholdError,
        HoldLost,
        LimitExceeded,
        LockTimeout,
        NotOwner,
        OutcomeUnknown,
        Overloaded,
        PermissionDenied,
        QueueFull,
        Refused,
        SessionExpired,
        StaleFence,
        Unavailable,
        Unsupported,
        UsageError,
    )
    from fencehold.guarantees import Guarantees
    from fencehold.locks.history import History, PastHold, PastWait, Remark
    from fencehold.locks.hold import Holding, current_hold
    from fencehold.locks.traces import disable_traces, enable_traces
    from fencehold.locks.trust import State
    from fencehold.locks.views import Event, Explanation, Holder, Kept, Party, Waiting
    from fencehold.types import CORRECTNESS, EFFICIENCY, Link, Tier

_HOMES = {
    "fencehold.client.blocking.client": ("Client", "connect"),
    "fencehold.client.blocking.election": ("Election", "Leadership", "Term", "Turn"),
    "fencehold.client.blocking.hold": ("Claim", "Hold", "Loss"),
    "fencehold.client.blocking.lock": ("Lock", "UntimedLock"),
    "fencehold.client.blocking.recipes": ("RLock", "RWLock", "UntimedRLock", "UntimedRWLock"),
    "fencehold.client.blocking.watch": ("Watch",),
    "fencehold.locks.hold": ("Holding", "current_hold"),
    "fencehold.locks.history": ("History", "PastHold", "PastWait", "Remark"),
    "fencehold.locks.traces": ("disable_traces", "enable_traces"),
    "fencehold.locks.trust": ("State",),
    "fencehold.locks.views": ("Event", "Explanation", "Holder", "Kept", "Party", "Waiting"),
    "fencehold.durations": ("Duration",),
    "fencehold.errors": (
        "Deadlock",
        "FenceholdError",
        "HoldLost",
        "LimitExceeded",
        "LockTimeout",
        "NotOwner",
        "OutcomeUnknown",
        "Overloaded",
        "PermissionDenied",
        "QueueFull",
        "Refused",
        "SessionExpired",
        "StaleFence",
        "Unavailable",
        "Unsupported",
        "UsageError",
    ),
    "fencehold.guarantees": ("Guarantees",),
    "fencehold.types": ("CORRECTNESS", "EFFICIENCY", "Link", "Tier"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "CORRECTNESS",
    "EFFICIENCY",
    "Claim",
    "Client",
    "Deadlock",
    "Duration",
    "Election",
    "Event",
    "Explanation",
    "FenceholdError",
    "Guarantees",
    "History",
    "Hold",
    "HoldLost",
    "Holder",
    "Holding",
    "Kept",
    "Leadership",
    "LimitExceeded",
    "Link",
    "Lock",
    "LockTimeout",
    "Loss",
    "NotOwner",
    "OutcomeUnknown",
    "Overloaded",
    "Party",
    "PastHold",
    "PastWait",
    "PermissionDenied",
    "QueueFull",
    "RLock",
    "RWLock",
    "Refused",
    "Remark",
    "SessionExpired",
    "StaleFence",
    "State",
    "Term",
    "Tier",
    "Turn",
    "Unavailable",
    "Unsupported",
    "UntimedLock",
    "UntimedRLock",
    "UntimedRWLock",
    "UsageError",
    "Waiting",
    "Watch",
    "__version__",
    "aio",
    "connect",
    "current_hold",
    "disable_traces",
    "enable_traces",
    "errors",
]


def __getattr__(name: str) -> Any:
    if name in ("aio", "errors"):
        return import_module(f"fencehold.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fencehold' has no attribute {name!r}")
    # Kept: `fencehold.Tier` may stand in the path of every lock.
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found
