"""Marks for a guard that has no table of its own: where the greatest fence seen for each name is kept.

1. *`raise_to` is one atomic step*: with any number of concurrent calls, the mark never goes back, and each call
   returns the mark after its own step. A call that gets a greater number than its fence is stale.
2. *It is idempotent.* A caller that does not know whether it happened calls it again.
3. *A mark that is forgotten is a hole*: after it, the next fence is taken for the first. So a store is as durable
   as what it protects, and never evicts a name: a full store is an error.
4. `strict` stores know their names beforehand (`register`), and refuse others with `UsageError`.

`MemoryMarks` is for one process that keeps what it protects in memory, too, and for tests. `SqliteMarks` is in
`fencehold.guards.marks_sqlite`, `RedisMarks` in `fencehold.guards.marks_redis`; `GuardMarks` has another guard
keep them, beside the data.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from fencehold.errors import LimitExceeded, UsageError
from fencehold.guards.offer import Offer

NAMES_MAX = 1_000_000
"""About 150 MB of them in memory."""


class MarkStore(Protocol):
    """Where marks are kept."""

    async def raise_to(self, name: str, fence: int) -> int:
        """Raise the mark of a name to a fence, unless it is as great already; returns the mark after that.

        Atomic. Cancelled, it has happened or not.

        Raises:
            StaleFence: instead of returning a greater mark, where the store cannot tell it.
            UsageError: the store is strict, and does not know the name; or name and fence are none.
            LimitExceeded: it is full. Nothing happened.
            Unavailable: certainly nothing happened.
            OutcomeUnknown: it may have happened; calling again is safe.
        """
        ...


class MemoryMarks:
    """Marks in this process's memory: gone with it, and unknown to every other."""

    def __init__(self, *, strict: bool = False, names_max: int = NAMES_MAX) -> None:
        self._marks: dict[str, int] = {}
        self._strict = strict
        self._names_max = names_max

    def register(self, name: str) -> None:
        """Register a name, with no fence seen yet."""
        self._room_for(name)
        self._marks.setdefault(Offer(name, 1).checked().name, 0)

    async def raise_to(self, name: str, fence: int) -> int:
        """As `MarkStore` says. One step of the event loop, so nothing comes between."""
        offer = Offer(name, fence).checked()
        if self._strict and name not in self._marks:
            raise unknown(name)
        self._room_for(name)
        mark = self._marks[name] = max(offer.fence, self._marks.get(name, 0))
        return mark

    def _room_for(self, name: str) -> None:
        if name not in self._marks and len(self._marks) >= self._names_max:
            raise LimitExceeded(f"marks: there are {self._names_max} names already, and none may be forgotten")


class GuardMarks:
    """Marks that another guard keeps, beside the data it guards.

    ::

        async def enter(offer):
            async with pool.connection() as connection:
                await guard.enter(connection, offer)

        FenceMiddleware(app, GuardMarks(enter))

    So the middleware and the handler's own guard share one mark.
    """

    def __init__(self, enter: Callable[[Offer], Awaitable[object]]) -> None:
        """`enter` raises the mark and commits it, or raises `StaleFence`."""
        self._enter = enter

    async def raise_to(self, name: str, fence: int) -> int:
        """As `MarkStore` says; a greater mark always raises `StaleFence`."""
        await self._enter(Offer(name, fence).checked())
        return fence


def unknown(name: str) -> UsageError:
    """The error of a strict store for a name it does not know."""
    return UsageError(f"{name!r} has no mark: this store is strict, register the name first")
