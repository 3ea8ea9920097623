"""What is made of locks: readers and writers, re-entrant locks, elections."""

import asyncio
from collections.abc import AsyncGenerator
from types import EllipsisType, TracebackType
from typing import Any

from fencehold.client.aio.channel import Channel, current_task
from fencehold.client.aio.hold import Hold
from fencehold.client.aio.lock import Lock, OnLost
from fencehold.client.aio.watch import Watch, Watches
from fencehold.client.terms import Terms
from fencehold.client.views import Holder, explanation
from fencehold.client.wire import command
from fencehold.errors import NotOwner


class RWLock:
    """One name, for many readers or one writer. A waiting writer is not overtaken by later readers."""

    __slots__ = ("_channel", "_on_lost", "_options", "name")

    def __init__(self, channel: Channel, name: str, on_lost: OnLost, options: dict[str, Any]) -> None:
        self._channel = channel
        self._on_lost: OnLost = on_lost
        self._options = options
        self.name = name

    def read(self) -> Lock:
        """The lock of a reader."""
        return Lock(self._channel, Terms((self.name,), shared=True, **self._options), self._on_lost)

    def write(self) -> Lock:
        """The lock of the writer."""
        return Lock(self._channel, Terms((self.name,), **self._options), self._on_lost)


class RLock:
    """A lock that the task which has it may take again, with the same fence. Other tasks are strangers."""

    __slots__ = ("_depths", "_lock")

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._depths: dict[asyncio.Task[Any], tuple[Hold, int]] = {}

    @property
    def name(self) -> str:
        """The name asked for."""
        return self._lock.name

    async def acquire(self, *, blocking: bool = True, timeout: float | EllipsisType | None = ...) -> Hold | None:
        """As `Lock.acquire`; granted at once if this task has it.

        Raises:
            HoldLost: this task had it and lost it: it must leave all levels before it asks anew.
        """
        task = current_task()
        if task in self._depths:
            return self._deeper(task)
        hold = await self._lock.acquire(blocking=blocking, timeout=timeout)
        if hold is not None:
            self._depths[task] = (hold, 1)
        return hold

    async def release(self) -> None:
        """Leave one level; the last one releases."""
        task = current_task()
        if task not in self._depths:
            raise NotOwner(f"this task holds nothing by this lock on {self.name!r}")
        if self._shallower(task) == 0:
            await self._lock.release()

    def owned(self) -> bool:
        """Whether this task has it, and can trust it."""
        return self._lock.owned()

    async def locked(self) -> bool:
        """Whether anyone has it."""
        return await self._lock.locked()

    async def __aenter__(self) -> Hold:
        task = current_task()
        if task in self._depths:
            return self._deeper(task)
        hold = await self._lock.__aenter__()
        self._depths[task] = (hold, 1)
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shallower(current_task()) == 0:
            await self._lock.__aexit__(kind, error, trace)

    def _deeper(self, task: "asyncio.Task[Any]") -> Hold:
        hold, depth = self._depths[task]
        hold.check()
        self._depths[task] = (hold, depth + 1)
        return hold

    def _shallower(self, task: "asyncio.Task[Any]") -> int:
        hold, depth = self._depths.pop(task)
        if depth > 1:
            self._depths[task] = (hold, depth - 1)
        return depth - 1


class Leadership(Hold):
    """Being elected. The fence is the epoch of the term: it grows with every leader."""

    __slots__ = ()

    @property
    def epoch(self) -> int:
        """The number of this term."""
        return self.fence


class Election:
    """One leader at a time for a name, and a way to see who it is."""

    __slots__ = ("_channel", "_leadership", "_terms", "_watches", "name")

    def __init__(self, channel: Channel, watches: Watches, terms: Terms) -> None:
        self._channel = channel
        self._watches = watches
        self._terms = terms
        self._leadership: Leadership | None = None
        self.name = terms.names[0]

    async def campaign(self, *, timeout: float | None = None) -> Leadership | None:
        """Wait to be elected; None if that did not happen in time. Resign, or lose it, to end the term."""
        grant = await self._channel.acquire(self._terms.waiting(timeout), current_task())
        if grant is None:
            return None
        self._leadership = Leadership(self._channel, grant)
        return self._leadership

    async def resign(self) -> None:
        """End this client's term.

        Raises:
            NotOwner: it has none.
            HoldLost: it had lost it before.
        """
        leadership, self._leadership = self._leadership, None
        if leadership is None:
            raise NotOwner(f"this client does not lead {self.name!r}")
        await leadership.release()

    async def leader(self) -> Holder | None:
        """Who leads at this moment; None if nobody does."""
        reply = await self._channel.read(command("LOCK.INFO", self.name))
        return next(iter(explanation(reply).holders), None)

    async def observe(self) -> AsyncGenerator[Holder | None, None]:
        """See who leads, now and whenever that changes; None while nobody does."""
        async with Watch(self._channel, self._watches, self.name) as watch:
            seen = await self.leader()
            yield seen
            async for event in watch:
                if self.name not in event.names and event.kind not in ("gap", "session_ended"):
                    continue
                leader = await self.leader()
                if (leader and leader.fence) != (seen and seen.fence):
                    seen = leader
                    yield seen
