"""What is made of locks, for threads: readers and writers, re-entrant locks, elections, watches, jobs."""

import threading
from collections.abc import Callable, Generator
from functools import wraps
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from fencehold.client.aio.recipes import CLOSED, may_concern
from fencehold.client.aio.watch import Watch as AsyncWatch
from fencehold.client.blocking.hold import Hold
from fencehold.client.blocking.lock import Lock
from fencehold.client.clock import clock
from fencehold.client.current import Body
from fencehold.client.jobs import Busy
from fencehold.client.made import Levels
from fencehold.client.terms import Terms
from fencehold.client.views import Event, Holder, explanation
from fencehold.client.wire import command
from fencehold.errors import NotOwner, UsageError

if TYPE_CHECKING:
    from fencehold.client.blocking.client import Client

Given = ParamSpec("Given")
Result = TypeVar("Result")


class RWLock:
    """One name, for many readers or one writer. A waiting writer is not overtaken by later readers."""

    __slots__ = ("_client", "_options", "name")

    def __init__(self, client: "Client", name: str, options: dict[str, Any]) -> None:
        self._client = client
        self._options = options
        self.name = name

    def read(self) -> Lock:
        """The lock of a reader."""
        return Lock(self._client, Terms((self.name,), shared=True, **self._options))

    def write(self) -> Lock:
        """The lock of the writer."""
        return Lock(self._client, Terms((self.name,), **self._options))


class RLock:
    """A lock that the thread which has it may take again. The fence is the same inside."""

    __slots__ = ("_levels", "_lock")

    def __init__(self, lock: Lock, levels: Levels[Hold]) -> None:
        self._lock = lock
        self._levels = levels
        """Shared by all of a client, so that another object of the same name is no stranger."""

    @property
    def name(self) -> str:
        """The name asked for."""
        return self._lock.name

    def acquire(self, *, blocking: bool = True, timeout: float | EllipsisType | None = ...) -> Hold | None:
        """As `Lock.acquire`; granted at once if this thread has it.

        Raises:
            HoldLost: this thread had it and lost it: it must leave all levels before it asks anew.
        """
        thread = threading.current_thread()
        hold = self._levels.held(thread, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = self._lock.acquire(blocking=blocking, timeout=timeout)
        if hold is not None:
            self._levels.enter(thread, self.name, hold)
        return hold

    def release(self) -> None:
        """Leave one level; the last one releases."""
        left = self._levels.leave(threading.current_thread(), self.name)
        if left is None:
            raise NotOwner(f"this thread holds nothing by a re-entrant lock on {self.name!r}")
        hold, is_last = left
        if is_last:
            hold.release()

    def owned(self) -> bool:
        """Whether this thread has it, and can trust it."""
        hold = self._levels.held(threading.current_thread(), self.name)
        return hold is not None and hold.safe_for() > 0

    def locked(self) -> bool:
        """Whether anyone has it."""
        return self._lock.locked()

    def __enter__(self) -> Hold:
        thread = threading.current_thread()
        hold = self._levels.held(thread, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = self._lock.acquire_or_raise()
        self._levels.enter(thread, self.name, hold, Body(hold))
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = self._levels.leave(threading.current_thread(), self.name)
        # None: the body has released it itself.
        if left is not None and left[1]:
            left[0]._leave(error)


class Leadership(Hold):
    """Being elected. The fence is the epoch of the term: it grows with every leader."""

    __slots__ = ()

    @property
    def epoch(self) -> int:
        """The number of this term."""
        return self.fence


class Election:
    """One leader at a time for a name, and a way to see who it is."""

    __slots__ = ("_client", "_leadership", "_terms", "name")

    def __init__(self, client: "Client", terms: Terms) -> None:
        self._client = client
        self._terms = terms
        self._leadership: Leadership | None = None
        self.name = terms.names[0]

    def campaign(self, *, timeout: float | None = None) -> Leadership | None:
        """Wait to be elected; None if that did not happen in time. Resign, or lose it, to end the term."""
        portal = self._client.portal()
        grant = portal.acquire(self._terms.waiting(timeout))
        if grant is None:
            return None
        self._leadership = Leadership(portal, grant)
        return self._leadership

    def resign(self) -> None:
        """End this client's term.

        Raises:
            NotOwner: it has none.
            HoldLost: it had lost it before.
        """
        leadership, self._leadership = self._leadership, None
        if leadership is None:
            raise NotOwner(f"this client does not lead {self.name!r}")
        leadership.release()

    def leader(self) -> Holder | None:
        """Who leads at this moment; None if nobody does."""
        reply = self._client.portal().read(command("LOCK.INFO", self.name))
        return next(iter(explanation(reply).holders), None)

    def observe(self) -> Generator[Holder | None, None, None]:
        """See who leads, now and whenever that changes; None while nobody does. Ends when the client is closed."""
        with Watch(self._client, self.name) as watch:
            seen = self.leader()
            yield seen
            for event in watch:
                if not may_concern(event, self.name):
                    continue
                try:
                    leader = self.leader()
                except CLOSED:
                    return
                if (leader and leader.fence) != (seen and seen.fence):
                    seen = leader
                    yield seen


class Watch:
    """Events of names with a prefix. Iterate over it; leave it with `with`, or by `close`."""

    __slots__ = ("_portal", "_watch")

    def __init__(self, client: "Client", prefix: str) -> None:
        self._portal = client.portal()
        self._watch = AsyncWatch(self._portal.channel, self._portal.watches, prefix)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        if self._portal.is_closed():
            raise StopIteration
        try:
            return self._portal.run(self._watch.__anext__())
        except (StopAsyncIteration, UsageError) as error:
            if isinstance(error, UsageError) and not self._portal.is_closed():
                raise
            raise StopIteration from None

    def close(self) -> None:
        """Watch no longer. It does not wait, and may come after the client was closed."""
        # Whoever waited here could be the portal's own thread, when it collects an iterator that was forgotten.
        self._portal.run_soon(self._watch.close())

    def __enter__(self) -> Self:
        """Once entered, no event is missed."""
        self._portal.run(self._watch.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def once(
    lock: Lock, at_least: float, busy: Busy
) -> Callable[[Callable[Given, Result]], Callable[Given, Result | None]]:
    """Decorate a function so that one call of it runs at a time, anywhere; None is a skipped one."""

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result | None]:
        @wraps(function)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Result | None:
            # A stranger: once it is over, this thread may wait for a name that is kept, like anybody else.
            owner = lock._stranger() if at_least else None
            hold = lock._acquire_unowned(lock._terms, owner) if busy == "skip" else lock.acquire_or_raise(owner)
            if hold is None:
                return None
            began_at = clock()
            body = Body(hold)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                body.leave()
                hold._leave(error, keep=at_least - (clock() - began_at))
                raise
            body.leave()
            hold._leave(None, keep=at_least - (clock() - began_at))
            return result

        return run

    return decorate
