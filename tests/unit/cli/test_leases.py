"""`acquire` that waits: what it is told while it does."""

import time
from math import inf
from typing import Any

import pytest

from fencehold.cli.leases import _waited
from fencehold.drivers.resp.wire import Moved
from fencehold.errors import Deadlock, FenceholdError, PermissionDenied


class _Told:
    """A connection on which an acquire is queued, then told this."""

    def __init__(self, *push: Any) -> None:
        self._push = push

    def call_once(self, *_: Any) -> list[str]:
        return ["queued"]

    def push(self, _: float) -> list[Any]:
        return list(self._push)


class _Member:
    ttl = 60.0

    def __init__(self, wire: _Told) -> None:
        self.wire = wire


@pytest.mark.parametrize(
    ("code", "error"), [("DENIED", PermissionDenied), ("DEADLOCK", Deadlock), ("MOVED", Moved)]
)
@pytest.mark.parametrize("wait_s", [inf, 3600.0])
def test_a_wait_that_is_refused_ends(code: str, error: type[FenceholdError], wait_s: float) -> None:
    """It may wait no longer, and nothing else will be said of it: it would wait for ever."""
    member: Any = _Member(_Told("refused", 1, code, "why"))
    with pytest.raises(error):
        _waited(member, ("LOCK.ACQUIRE", "a"), time.monotonic() + wait_s)
