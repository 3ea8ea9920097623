"""What is made of locks: readers and writers, re-entrant locks."""

from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from fencehold.client.admission import admit
from fencehold.client.aio.lock import Held, Lock, OnLost, Untimed, UntimedLock, lock_on
from fencehold.client.calls import AsyncOnly
from fencehold.client.ownership import Bodies, Levels
from fencehold.durations import Duration
from fencehold.errors import NotOwner
from fencehold.locks.carrier import Carrier, current_task
from fencehold.locks.hold import Body
from fencehold.locks.terms import Forever, Terms


class RWLock(Generic[Held]):
    """One name, for many readers or one writer. A waiting writer is not overtaken by later readers."""

    __slots__ = ("_carrier", "_held", "_on_lost", "_reading", "_writing", "name")

    def __init__(
        self, carrier: Carrier, name: str, held: type[Held], on_lost: OnLost, options: dict[str, Any]
    ) -> None:
        self._reading = Terms((name,), shared=True, **options)
        self._writing = Terms((name,), **options)
        admit(self._reading, carrier.guarantees)
        self._carrier = carrier
        self._held = held
        self._on_lost: OnLost = on_lost
        self.name = name

    def read(self) -> Lock[Held]:
        """The lock of a reader."""
        return lock_on(self._carrier, self._reading, self._held, self._on_lost)

    def write(self) -> Lock[Held]:
        """The lock of the writer."""
        return lock_on(self._carrier, self._writing, self._held, self._on_lost)


class UntimedRWLock(RWLock[Held]):
    """One that was made without a timeout, and makes locks that have none."""

    __slots__ = ()

    if TYPE_CHECKING:

        def read(self) -> UntimedLock[Held]: ...

        def write(self) -> UntimedLock[Held]: ...


class RLock(AsyncOnly, Generic[Held]):
    """A lock that the task which has it may take again, with the same fence. Other tasks are strangers."""

    __slots__ = ("_entered", "_levels", "_lock")

    def __init__(self, lock: Lock[Held], levels: Levels[Any]) -> None:
        self._lock = lock
        self._levels: Levels[Held] = levels
        """Shared by all of a client in one tier, so that another object of the same name is no stranger."""
        self._entered: Bodies[Held] = Bodies()

    @property
    def name(self) -> str:
        """The name asked for."""
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
        task = current_task()
        hold, depth = self._levels.held(task, self.name), self._levels.depth(task, self.name)
        if hold is None:
            raise NotOwner(f"this task holds nothing by a re-entrant lock on {self.name!r}")
        self._levels.go_back(task, self.name, depth - 1)
        if depth == 1:
            await hold.release()

    def owned(self) -> bool:
        """Whether this task has it, and can trust it."""
        hold = self._levels.held(current_task(), self.name)
        return hold is not None and hold.safe_for() > 0

    async def locked(self) -> bool:
        """Whether anyone has it."""
        return await self._lock.locked()

    async def __aenter__(self) -> Held:
        task = current_task()
        hold = self._levels.held(task, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = await self._lock.acquire_or_raise()
            if self._lock._on_lost == "cancel":
                hold._enter_body(task)
        body = Body(hold).enter()
        self._levels.enter(task, self.name, hold, body)
        self._entered.enter(task, body)
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered = self._entered.last(current_task(), error)
        if entered is None:
            return
        task, body = entered
        self._entered.leave(task, body)
        is_last = self._levels.is_last(task, self.name, body)
        self._levels.leave(task, self.name, body)
        if is_last:
            await body.hold._leave(error)


class UntimedRLock(Untimed[Held], RLock[Held]):
    """A re-entrant lock that was made without a timeout."""

    __slots__ = ()
