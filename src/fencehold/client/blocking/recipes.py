# Made of src/fencehold/client/aio/recipes.py by scripts/blocking: change that one.
"""Recipes: readers and writers, re-entrant locks."""

from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, overload

from fencehold.client.blocking.hold import Claim
from fencehold.client.blocking.lock import Held, Lock, Untimed, UntimedLock, lock_on
from fencehold.client.blocking.routes import Route, Routed, this_thread
from fencehold.client.options import BlockingOnly, Options
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
        "_reading",
        "_writing",
        "name",
    )

    def __init__(
        self,
        route: Route,
        name: str,
        held: type[Held],
        timeout: Duration | None,
        **options: Unpack[Options],
    ) -> None:
        self._reading = Terms((name,), timeout=timeout, shared=True, **options)
        self._writing = Terms((name,), timeout=timeout, **options)
        admit(self._reading, route.guarantees)
        super().__init__(route)
        self._held = held
        self.name = name

    def read(self) -> Lock[Held]:
        """The lock of a reader."""
        return self._lock(self._reading)

    def write(self) -> Lock[Held]:
        """The lock of the writer."""
        return self._lock(self._writing)

    def _lock(self, terms: Terms) -> Lock[Held]:
        return lock_on(self._route, terms, self._held)


class UntimedRWLock(RWLock[Held]):
    """One that was made without a timeout, and makes locks that have none."""

    __slots__ = ()

    if TYPE_CHECKING:

        def read(self) -> UntimedLock[Held]: ...

        def write(self) -> UntimedLock[Held]: ...


class RLock(BlockingOnly, Generic[Held]):
    """A lock that the thread which holds it may acquire again, with the same fence. Other threads wait for it."""

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
    def acquire(self, *, blocking: Literal[True] = True, timeout: Forever) -> Held: ...

    @overload
    def acquire(self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> Held | None: ...

    def acquire(self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> Held | None:
        """As `Lock.acquire`; granted at once if this thread holds it.

        Raises:
            HoldLost: this thread held it and lost it: it must leave all levels before it acquires it again.
        """
        thread = this_thread()
        hold, depth = self._levels.held(thread, self.name), self._levels.depth(thread, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = self._lock.acquire(blocking=blocking, timeout=timeout)
        if hold is not None:
            try:
                self._levels.enter(thread, self.name, hold)
            except BaseException:
                self._go_back(thread, hold, depth)
                raise
        return hold

    def release(self) -> None:
        """Leave one level; the last one releases."""
        thread = this_thread()
        hold, depth = self._levels.held(thread, self.name), self._levels.depth(thread, self.name)
        if hold is None:
            raise NotOwner(f"this thread holds nothing by a re-entrant lock on {self.name!r}")
        try:
            if depth == 1:
                hold.release()
        finally:
            # Not if an interrupt came first: then this thread still holds it.
            if depth > 1 or hold._grant.ending:
                self._levels.go_back(thread, self.name, depth - 1)

    def owned(self) -> bool:
        """Whether this thread holds it, and can trust it."""
        hold = self._levels.held(this_thread(), self.name)
        return hold is not None and hold.safe_for() > 0

    def locked(self) -> bool:
        """Whether it is held by any owner."""
        return self._lock.locked()

    def __enter__(self) -> Held:
        thread = this_thread()
        hold, depth = self._levels.held(thread, self.name), self._levels.depth(thread, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = self._lock.acquire_or_raise()
        body: Body[Held] | None = None
        try:
            body = Body(hold)
            self._levels.enter(thread, self.name, hold, body.enter())
            self._entered.enter(thread, body)
        except BaseException:
            if body is not None:
                self._entered.leave(thread, body)
            self._go_back(thread, hold, depth)
            raise
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered: tuple[Any, Body[Held]] | None = None
        is_last: bool | None = None
        try:
            entered = self._entered.last(this_thread(), error)
            if entered is not None:
                who, body = entered
                is_last = self._levels.is_last(who, self.name, body)
                self._entered.leave(who, body)
                self._levels.leave(who, self.name, body)
                if is_last:
                    body.hold._leave(error)
        except FenceholdError:
            raise
        except BaseException:
            # Interrupted: do what that may have prevented.
            entered = entered or self._entered.last(this_thread(), error)
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
