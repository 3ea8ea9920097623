"""Recipes: readers and writers, re-entrant locks."""

from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, overload

from fencehold.client.aio.hold import Claim
from fencehold.client.aio.lock import Held, Lock, OnLost, Untimed, UntimedLock, lock_on
from fencehold.client.aio.routes import Route, Routed, current_task
from fencehold.client.options import AsyncOnly, Options
from fencehold.client.ownership import Bodies, Levels
from fencehold.durations import Duration
from fencehold.errors import FenceholdError, NotOwner
from fencehold.locks.hold import Body
from fencehold.locks.identity import Who
from fencehold.locks.terms import Forever, Terms, admit


class RWLock(Routed, Generic[Held]):
    """One name, for many readers or one writer. A waiting writer is not overtaken by later readers."""

    __slots__ = (
        "_held",
        "_on_lost",  # ASYNC
        "_reading",
        "_writing",
        "name",
    )

    def __init__(
        self,
        route: Route,
        name: str,
        held: type[Held],
        on_lost: OnLost,  # ASYNC
        timeout: Duration | None,
        **options: Unpack[Options],
    ) -> None:
        self._reading = Terms((name,), timeout=timeout, shared=True, **options)
        self._writing = Terms((name,), timeout=timeout, **options)
        admit(self._reading, route.guarantees)
        super().__init__(route)
        self._held = held
        self._on_lost: OnLost = on_lost  # ASYNC
        self.name = name

    def read(self) -> Lock[Held]:
        """The lock of a reader."""
        return self._lock(self._reading)

    def write(self) -> Lock[Held]:
        """The lock of the writer."""
        return self._lock(self._writing)

    def _lock(self, terms: Terms) -> Lock[Held]:
        return lock_on(self._route, terms, self._held, self._on_lost)  # ASYNC
        # BLOCKING: return lock_on(self._route, terms, self._held)


class UntimedRWLock(RWLock[Held]):
    """One that was made without a timeout, and makes locks that have none."""

    __slots__ = ()

    if TYPE_CHECKING:

        def read(self) -> UntimedLock[Held]: ...

        def write(self) -> UntimedLock[Held]: ...


class RLock(AsyncOnly, Generic[Held]):
    """A lock that the task which holds it may acquire again, with the same fence. Other tasks wait for it."""

    __slots__ = ("_entered", "_levels", "_lock")

    def __init__(self, lock: Lock[Held], levels: Levels[Any]) -> None:
        self._lock = lock
        self._levels: Levels[Held] = levels
        """Shared by all of a client in one tier, so that another object with the same name counts as this one."""
        self._entered: Bodies[Held] = Bodies()

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._lock.name

    @overload
    async def acquire(self, *, blocking: Literal[True] = True, timeout: Forever) -> Held: ...

    @overload
    async def acquire(
        self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...
    ) -> Held | None: ...

    async def acquire(
        self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...
    ) -> Held | None:
        """As `Lock.acquire`; granted at once if this task holds it.

        Raises:
            HoldLost: this task held it and lost it: it must leave all levels before it acquires it again.
        """
        task = current_task()
        hold, depth = self._levels.held(task, self.name), self._levels.depth(task, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = await self._lock.acquire(blocking=blocking, timeout=timeout)
        if hold is not None:
            try:
                self._levels.enter(task, self.name, hold)
            except BaseException:
                self._go_back(task, hold, depth)
                raise
        return hold

    async def release(self) -> None:
        """Leave one level; the last one releases."""
        task = current_task()
        hold, depth = self._levels.held(task, self.name), self._levels.depth(task, self.name)
        if hold is None:
            raise NotOwner(f"this task holds nothing by a re-entrant lock on {self.name!r}")
        try:
            if depth == 1:
                await hold.release()
        finally:
            # Not if an interrupt came first: then this task still holds it.
            if depth > 1 or hold._grant.ending:
                self._levels.go_back(task, self.name, depth - 1)

    def owned(self) -> bool:
        """Whether this task holds it, and can trust it."""
        hold = self._levels.held(current_task(), self.name)
        return hold is not None and hold.safe_for() > 0

    async def locked(self) -> bool:
        """Whether it is held by any owner."""
        return await self._lock.locked()

    async def __aenter__(self) -> Held:
        task = current_task()
        hold, depth = self._levels.held(task, self.name), self._levels.depth(task, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = await self._lock.acquire_or_raise()
            if self._lock._on_lost == "cancel":  # ASYNC
                hold._enter_body(task)  # ASYNC
        body: Body[Held] | None = None
        try:
            body = Body(hold)
            self._levels.enter(task, self.name, hold, body.enter())
            self._entered.enter(task, body)
        except BaseException:
            if body is not None:
                self._entered.leave(task, body)
            self._go_back(task, hold, depth)
            raise
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered: tuple[Any, Body[Held]] | None = None
        is_last: bool | None = None
        try:
            entered = self._entered.last(current_task(), error)
            if entered is not None:
                who, body = entered
                is_last = self._levels.is_last(who, self.name, body)
                self._entered.leave(who, body)
                self._levels.leave(who, self.name, body)
                if is_last:
                    await body.hold._leave(error)
        except FenceholdError:
            raise
        except BaseException:
            # Interrupted: do what that may have prevented.
            entered = entered or self._entered.last(current_task(), error)
            if entered is not None:
                self._end(*entered, is_last)
            raise

    def _end(self, who: Who, body: Body[Held], is_last: bool | None) -> None:
        """Leave what could not be left for an interrupt; None: whether it is the last level is not known."""
        if is_last is None:
            is_last = self._levels.is_last(who, self.name, body)
        self._entered.leave(who, body)
        self._levels.leave(who, self.name, body)
        if is_last:
            body.hold._on_interrupted()

    def _go_back(self, who: Who, hold: Claim, depth: int) -> None:
        """Be at most so many levels deep, and hold nothing if that is 0."""
        self._levels.go_back(who, self.name, depth)
        if depth == 0:
            hold._on_interrupted()


class UntimedRLock(Untimed[Held], RLock[Held]):
    """A re-entrant lock that was made without a timeout."""

    __slots__ = ()
