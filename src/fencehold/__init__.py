"""Fencehold: locks as safe as consensus, as fast as Redis, that your database itself can enforce.

``fencehold.connect(…)`` is the client for threads, ``fencehold.aio.connect(…)`` the one for an event loop. Names
are imported when they are first used: a command line that asks for the version should not wait for an event loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fencehold.version import __version__

if TYPE_CHECKING:
    from fencehold import aio, errors
    from fencehold.client.blocking.client import Client, connect
    from fencehold.client.trust import State
    from fencehold.client.views import Event, Explanation, Holder, Party, Waiting
    from fencehold.errors import (
        Deadlock,
        FenceholdError,
        HoldLost,
        LimitExceeded,
        LockTimeout,
        NotOwner,
        OutcomeUnknown,
        PermissionDenied,
        QueueFull,
        Refused,
        SessionExpired,
        Unavailable,
        Unsupported,
        UsageError,
    )

_HOMES = {
    "fencehold.client.blocking.client": ("Client", "connect"),
    "fencehold.client.trust": ("State",),
    "fencehold.client.views": ("Event", "Explanation", "Holder", "Party", "Waiting"),
    "fencehold.errors": (
        "Deadlock",
        "FenceholdError",
        "HoldLost",
        "LimitExceeded",
        "LockTimeout",
        "NotOwner",
        "OutcomeUnknown",
        "PermissionDenied",
        "QueueFull",
        "Refused",
        "SessionExpired",
        "Unavailable",
        "Unsupported",
        "UsageError",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Client",
    "Deadlock",
    "Event",
    "Explanation",
    "FenceholdError",
    "HoldLost",
    "Holder",
    "LimitExceeded",
    "LockTimeout",
    "NotOwner",
    "OutcomeUnknown",
    "Party",
    "PermissionDenied",
    "QueueFull",
    "Refused",
    "SessionExpired",
    "State",
    "Unavailable",
    "Unsupported",
    "UsageError",
    "Waiting",
    "__version__",
    "aio",
    "connect",
    "errors",
]


def __getattr__(name: str) -> Any:
    if name in ("aio", "errors"):
        return import_module(f"fencehold.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fencehold' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
