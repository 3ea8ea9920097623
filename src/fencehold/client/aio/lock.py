"""Locks: terms under which names are asked for, again and again, by any number of tasks.

A lock object holds nothing: each acquire makes a `Hold`, or a `Claim` where no fence was asked for. The lock
remembers whose holds it made, so that `release` and the end of an `async with` find the right one.
"""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import wraps
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

from fencehold.client.admission import admit
from fencehold.client.aio.hold import Claim
from fencehold.client.calls import AsyncOnly
from fencehold.client.decoration import check_async
from fencehold.client.ownership import Bodies, Holds
from fencehold.durations import Duration
from fencehold.errors import FenceholdError, LockTimeout, NotOwner, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks import views
from fencehold.locks.carrier import Carrier, current_task
from fencehold.locks.hold import Body
from fencehold.locks.terms import Forever, Terms, wait_of

OnLost: TypeAlias = Literal["cancel", "raise"]
"""What happens to the body of an `async with` whose hold is lost: cancelled at once, or told at its end."""

Held = TypeVar("Held", bound=Claim, covariant=True)  # noqa: PLC0105 - it is the hold, whichever way it varies
"""What an acquire makes: a `Hold`, or a `Claim`."""
Given = ParamSpec("Given")
Result = TypeVar("Result")
Job: TypeAlias = Callable[Given, Coroutine[Any, Any, Result]]
"""A coroutine function."""


class Lock(AsyncOnly, Generic[Held]):
    """Names under certain terms. Use it with `async with`, by `acquire`, or as a decorator."""

    __slots__ = ("_acquired", "_carrier", "_entered", "_held", "_on_lost", "_terms")

    def __init__(self, carrier: Carrier, terms: Terms, held: type[Held], on_lost: OnLost = "cancel") -> None:
        if on_lost not in ("cancel", "raise"):
            raise UsageError(f"on_lost is 'cancel' or 'raise', not {on_lost!r}")
        admit(terms, carrier.guarantees)
        self._carrier = carrier
        self._held = held
        self._terms = terms
        self._on_lost = on_lost
        self._entered: Bodies[Held] = Bodies()
        self._acquired: Holds[Held] = Holds()

    @property
    def name(self) -> str:
        """The name asked for; the first of several."""
        return self._terms.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All names asked for, in the order every client asks in."""
        return self._terms.names

    @property
    def guarantees(self) -> Guarantees:
        """What is guaranteed by where the names are asked for."""
        return self._carrier.guarantees

    @overload
    async def acquire(self, *, blocking: Literal[True] = True, timeout: Forever) -> Held: ...

    @overload
    async def acquire(
        self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...
    ) -> Held | None: ...

    async def acquire(
        self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...
    ) -> Held | None:
        """Wait for the names; None if they were not to be had in time. Cancelling it leaves nothing behind.

        Args:
            blocking: False is the same as a timeout of 0.
            timeout: how long to wait, None or -1 for ever; what the lock was made with, if it is not given.

        Raises:
            Deadlock, QueueFull, LimitExceeded, PermissionDenied, SessionExpired: nothing is held.
            Unavailable: nothing was asked, as the service was not reached.
            Overloaded: it was busy all the time, or when this was tried; who holds the names is not known.
            OutcomeUnknown: the service went away; what may have been granted is withdrawn when it is back.
        """
        terms = self._terms
        if timeout is not ... or not blocking:
            terms = terms.waiting(wait_of(None if timeout is ... else timeout, blocking=blocking))
        task = current_task()
        grant = await self._carrier.acquire(terms, task)
        if grant is None:
            return None
        hold = self._held(self._carrier, grant)
        self._acquired.add(task, hold)
        return hold

    async def release(self) -> None:
        """Release what this task holds by this lock; of several, what it acquired last.

        Raises:
            NotOwner: this task holds nothing by it. A hold made elsewhere is released by its own method.
            HoldLost: it was lost before.
        """
        task = current_task()
        hold = self._acquired.last(task)
        if hold is not None:
            self._acquired.drop(task, hold)
        else:
            # Still entered: the end of its `async with` finds it released, and does nothing.
            hold = next((hold for hold in reversed(self._entered.of(task)) if not hold._grant.ending), None)
        if hold is None:
            raise NotOwner(f"this task holds nothing by this lock on {self._terms.label}")
        await hold.release()

    def owned(self) -> bool:
        """Whether this task holds the names by this lock, and can trust it."""
        task = current_task()
        holds = self._acquired.of(task) + self._entered.of(task)
        return any(hold.safe_for() > 0 for hold in holds)

    async def locked(self) -> bool:
        """Whether any of the names is held, or kept by `once(at_least=…)`; true at the moment of the answer."""
        for name in self.names:
            if (await self._carrier.explain(name, limit=views.A_FEW)).is_taken:
                return True
        return False

    async def _acquire_unowned(self, owner: bytes | None = None) -> Held | None:
        """As `acquire`, but the lock remembers nothing: the hold is its caller's alone."""
        grant = await self._carrier.acquire(self._terms, current_task(), owner)
        return None if grant is None else self._held(self._carrier, grant)

    async def acquire_or_raise(self, owner: bytes | None = None) -> Held:
        """As `_acquire_unowned`, but raise `LockTimeout`, which says who holds it."""
        hold = await self._acquire_unowned(owner)
        if hold is None:
            raise await self._timeout()
        return hold

    def _stranger(self) -> bytes:
        """An owner that has nothing and waits for nothing."""
        return self._carrier.owners.anew(current_task())

    async def __aenter__(self) -> Held:
        """Acquire, or raise `LockTimeout`, which says who holds it."""
        task = current_task()
        grant = await self._carrier.acquire(self._terms, task)
        if grant is None:
            raise await self._timeout()
        hold = self._held(self._carrier, grant)
        if self._on_lost == "cancel":
            hold._enter_body(task)
        self._entered.enter(task, Body(hold).enter())
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release. Raises `HoldLost` if the hold was lost, but never hides the body's own exception."""
        left = self._entered.last(current_task(), error)
        if left is None:
            return
        self._entered.leave(*left)
        hold = left[1].hold
        released = hold._leave_held() if error is None else None
        if released is None:
            await hold._leave(error)
        else:
            await released

    def __call__(self, function: Callable[Given, Awaitable[Result]]) -> Job[Given, Result]:
        """Decorate a coroutine function: each call runs under the lock.

        Raises:
            UsageError: it is not one, or an async generator, whose body would run without the lock.
        """
        check_async(function)

        @wraps(function)
        async def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            async with self:
                return await function(*args, **kwargs)

        return run

    async def _timeout(self) -> LockTimeout:
        seen: views.Explanation | None = None
        # Saying who holds it is a courtesy: the answer is that it was not to be had.
        with suppress(FenceholdError):
            seen = await self._carrier.explain(self.name, stale=True, limit=views.A_FEW)
        return views.not_acquired(self._terms, seen)


class Untimed(Generic[Held]):
    """What was made without a timeout: `acquire()` waits until it has the names, and never returns None."""

    __slots__ = ()

    if TYPE_CHECKING:

        @overload
        async def acquire(self, *, blocking: Literal[True] = True, timeout: Forever = ...) -> Held: ...

        @overload
        async def acquire(
            self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...
        ) -> Held | None: ...

        async def acquire(
            self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...
        ) -> Held | None: ...


class UntimedLock(Untimed[Held], Lock[Held]):
    """A lock that was made without a timeout."""

    __slots__ = ()


def lock_on(carrier: Carrier, terms: Terms, held: type[Held], on_lost: OnLost) -> Lock[Held]:
    """The lock for these terms."""
    return (UntimedLock if terms.timeout is None else Lock)(carrier, terms, held, on_lost)
