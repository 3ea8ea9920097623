"""The carrier: takes a client's requests to what grants locks, the service or a backend used directly.

1. A grant that was made by a carrier is released and extended through the same one.
2. However the wait for an acquire ends, nothing of it stays behind.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from fencehold.errors import UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.clock import Clock
from fencehold.locks.identity import Owners, Who
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.locks.views import EXPLAIN_LIMIT, Explanation


class Answer(NamedTuple):
    """The immediate result of an acquire."""

    grant: Grant | None
    is_known: bool
    """Without a grant: whether another certainly holds the name now; if not, the loop has to find out."""


class AtOnce(Protocol):
    """For threads to send requests themselves, where handing over to the loop would take longer than the reply."""

    def acquire(self, terms: Terms, who: Who) -> Answer:
        """Try to acquire names, without waiting for them."""

    def release(self, grant: Grant) -> bool:
        """Release a grant; False if that has to be done on the loop.

        Raises:
            HoldLost: it was gone already.
        """

    def release_unclaimed(self, grant: Grant) -> None:
        """Have a grant released that no caller received: the caller was interrupted. Does not wait."""


class Carrier(Protocol):
    """Belongs to the event loop that made it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def owners(self) -> Owners: ...

    @property
    def guarantees(self) -> Guarantees: ...

    @property
    def at_once(self) -> AtOnce | None:
        """For threads; None where requests must go through the loop."""

    async def acquire(self, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        """Acquire for a task or thread, or for an owner made `anew`; None if it was not acquired in time."""

    def release(self, grant: Grant) -> Awaitable[None]:
        """Release a grant. It is done whether or not the result is awaited."""

    async def extend(self, grant: Grant, ttl: float | None) -> None:
        """Let a grant end that many seconds from now; None: with its session."""

    async def explain(self, name: str, *, stale: bool = False, limit: int | None = EXPLAIN_LIMIT) -> Explanation:
        """Who holds a name and who waits for it, so many of each; as of some moment ago, if `stale` will do."""

    async def break_hold(self, name: str, fence: int) -> int:
        """Force-release a name: from its holders up to a fence, if one is given."""

    def changes(self, name: str) -> AbstractAsyncContextManager[AsyncIterator[object]]:
        """Yields whenever a name may have changed hands; ends when the client is closed."""

    async def ready(self) -> None:
        """Wait until it can be used."""

    async def close(self) -> None:
        """Release everything and disconnect."""


def check_loop(loop: asyncio.AbstractEventLoop, unusable: str = "") -> None:
    """Raise unless this runs on the event loop that a client belongs to.

    Args:
        unusable: why the client cannot be used at all; reported first.
    """
    if asyncio.get_running_loop() is not loop:
        raise UsageError(unusable or "this client belongs to another event loop: connect inside the running one")


def current_task() -> "asyncio.Task[Any]":
    """The calling task."""
    task = asyncio.current_task()
    if task is None:
        raise UsageError("this must be called inside a task")
    return task
