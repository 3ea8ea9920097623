"""Test your own code against Fencehold, without running a server.

`Service` is a server inside the test's process: real clients talk to it by real connections, time can be made to
pass at once, and a test can cause the failures that a lock service must survive: a holder pauses, the network is
cut, the server restarts. ``with Service() as service`` has blocking verbs, ``async with Service() as service``
awaitable ones. With pytest there are fixtures: `fencehold_service`, `fencehold_url`, `fencehold_client`.

Names are imported when they are first used: the pytest plugin must cost a project that does not use it nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencehold.testing.aio import AsyncService
    from fencehold.testing.history import Held
    from fencehold.testing.service import Service

_HOME_OF = {
    "AsyncService": "fencehold.testing.aio",
    "Held": "fencehold.testing.history",
    "Service": "fencehold.testing.service",
}

__all__ = ["AsyncService", "Held", "Service"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fencehold.testing' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
