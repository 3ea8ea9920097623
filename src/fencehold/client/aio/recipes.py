"""What is made of locks: readers and writers, re-entrant locks, elections."""

from collections.abc import AsyncGenerator
from types import EllipsisType, TracebackType
from typing import Any

from fencehold.client.aio.channel import Channel, current_task
from fencehold.client.aio.hold import Hold
from fencehold.client.aio.lock import Lock, OnLost
from fencehold.client.aio.watch import Watch, Watches
from fencehold.client.current import Body
from fencehold.client.made import Levels
from fencehold.client.terms import Terms
from fencehold.client.views import Event, Holder, explanation
from fencehold.client.wire import command
from fencehold.errors import NotOwner, SessionExpired, UsageError

CLOSED = (UsageError, SessionExpired)
"""What asking who leads raises when the client is, or is being, closed."""


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

    __slots__ = ("_levels", "_lock")

    def __init__(self, lock: Lock, levels: Levels[Hold]) -> None:
        self._lock = lock
        self._levels = levels
        """Shared by all of a client, so that another object of the same name is no stranger."""

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
        hold = self._levels.held(task, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = await self._lock.acquire(blocking=blocking, timeout=timeout)
        if hold is not None:
            self._levels.enter(task, self.name, hold)
        return hold

    async def release(self) -> None:
        """Leave one level; the last one releases."""
        left = self._levels.leave(current_task(), self.name)
        if left is None:
            raise NotOwner(f"this task holds nothing by a re-entrant lock on {self.name!r}")
        hold, is_last = left
        if is_last:
            await hold.release()

    def owned(self) -> bool:
        """Whether this task has it, and can trust it."""
        hold = self._levels.held(current_task(), self.name)
        return hold is not None and hold.safe_for() > 0

    async def locked(self) -> bool:
        """Whether anyone has it."""
        return await self._lock.locked()

    async def __aenter__(self) -> Hold:
        task = current_task()
        hold = self._levels.held(task, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = await self._lock.acquire_or_raise()
            if self._lock._on_lost == "cancel":
                hold._enter_body(task)
        self._levels.enter(task, self.name, hold, Body(hold))
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = self._levels.leave(current_task(), self.name)
        # None: the body has released it itself.
        if left is not None and left[1]:
            await left[0]._leave(error)


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
        """See who leads, now and whenever that changes; None while nobody does. Ends when the client is closed."""
        async with Watch(self._channel, self._watches, self.name) as watch:
            seen = await self.leader()
            yield seen
            async for event in watch:
                if not may_concern(event, self.name):
                    continue
                try:
                    leader = await self.leader()
                except CLOSED:
                    return
                if (leader and leader.fence) != (seen and seen.fence):
                    seen = leader
                    yield seen


def may_concern(event: Event, name: str) -> bool:
    """Whether somebody else may lead after this event."""
    return name in event.names or event.kind in ("gap", "session_ended")
