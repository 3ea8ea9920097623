"""Locks, for threads: terms under which names are asked for, again and again, by any number of threads."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload

from fencehold.client.admission import admit
from fencehold.client.blocking.hold import Claim
from fencehold.client.blocking.lines import Line
from fencehold.client.calls import BlockingOnly
from fencehold.client.decoration import (
    Async,
    Lazy,
    Raising,
    TakeTheLockInside,
    UseFenceholdAio,
    check_blocking,
    ran,
)
from fencehold.client.ownership import Bodies, Holds
from fencehold.durations import Duration
from fencehold.errors import FenceholdError, LockTimeout, NotOwner
from fencehold.guarantees import Guarantees
from fencehold.locks import views
from fencehold.locks.hold import Body
from fencehold.locks.identity import this_thread
from fencehold.locks.terms import Forever, Terms, wait_of

Held = TypeVar("Held", bound=Claim, covariant=True)  # noqa: PLC0105 - it is the hold, whichever way it varies
"""What an acquire makes: a `Hold`, or a `Claim`."""
Given = ParamSpec("Given")
Result = TypeVar("Result")


class Lock(BlockingOnly, Generic[Held]):
    """Names under certain terms. Use it with `with`, by `acquire`, or as a decorator."""

    __slots__ = ("_acquired", "_entered", "_held", "_line", "_terms")

    def __init__(self, line: Line, terms: Terms, held: type[Held]) -> None:
        admit(terms, line.guarantees)
        self._line = line
        self._held = held
        self._terms = terms
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
        return self._line.guarantees

    @overload
    def acquire(self, *, blocking: Literal[True] = True, timeout: Forever) -> Held: ...

    @overload
    def acquire(self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> Held | None: ...

    def acquire(self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> Held | None:
        """Wait for the names; None if they were not to be had in time. An interrupt leaves nothing behind.

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
        hold = self._acquire_unowned(terms)
        if hold is not None:
            try:
                self._acquired.add(this_thread(), hold)
            except BaseException:
                hold._abandon()
                raise
        return hold

    def release(self) -> None:
        """Release what this thread holds by this lock; of several, what it acquired last.

        Raises:
            NotOwner: this thread holds nothing by it. A hold made elsewhere is released by its own method.
            HoldLost: it was lost before.
        """
        thread = this_thread()
        hold = self._acquired.last(thread)
        if hold is None:
            # Still entered: the end of its `with` finds it released, and does nothing.
            hold = next((hold for hold in reversed(self._entered.of(thread)) if not hold._grant.ending), None)
        if hold is None:
            raise NotOwner(f"this thread holds nothing by this lock on {self._terms.label}")
        try:
            hold.release()
        finally:
            # Not if an interrupt came first: then it is this thread's still.
            if hold._grant.ending:
                self._acquired.drop(thread, hold)

    def owned(self) -> bool:
        """Whether this thread holds the names by this lock, and can trust it."""
        thread = this_thread()
        holds = self._acquired.of(thread) + self._entered.of(thread)
        return any(hold.safe_for() > 0 for hold in holds)

    def locked(self) -> bool:
        """Whether any of the names is held, or kept by `once(at_least=…)`; true at the moment of the answer."""
        portal = self._line.portal()
        return any(portal.explain(name, limit=views.A_FEW).is_taken for name in self.names)

    def _acquire_unowned(self, terms: Terms, owner: bytes | None = None) -> Held | None:
        """As `acquire`, but the lock remembers nothing: the hold is its caller's alone."""
        portal = self._line.portal()
        return portal.acquire(self._held, terms, owner)

    def acquire_or_raise(self, owner: bytes | None = None) -> Held:
        """As `_acquire_unowned`, but raise `LockTimeout`, which says who holds it."""
        hold = self._acquire_unowned(self._terms, owner)
        if hold is None:
            raise self._timeout()
        return hold

    def _stranger(self) -> bytes:
        """An owner that has nothing and waits for nothing."""
        return self._line.portal().owners.anew(this_thread())

    def __enter__(self) -> Held:
        """Acquire, or raise `LockTimeout`, which says who holds it."""
        thread = this_thread()
        hold = self.acquire_or_raise()
        body: Body[Held] | None = None
        try:
            body = Body(hold)
            self._entered.enter(thread, body.enter())
        except BaseException:
            if body is not None:
                self._entered.leave(thread, body)
            hold._abandon()
            raise
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release. Raises `HoldLost` if the hold was lost, but never hides the body's own exception."""
        left: tuple[Any, Body[Held]] | None = None
        try:
            left = self._entered.last(this_thread(), error)
            if left is not None:
                left[1].leave()
                left[1].hold._leave(error)
        finally:
            # After an interrupt, too, whatever that kept from being done.
            left = left or self._entered.last(this_thread(), error)
            if left is not None:
                self._entered.leave(*left)
                left[1].hold._abandon()

    @overload
    def __call__(self, function: Raising[Given]) -> Raising[Given]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Async[Given]) -> UseFenceholdAio: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Lazy[Given]) -> TakeTheLockInside: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[Given, Result]) -> Callable[Given, Result]: ...

    def __call__(self, function: Callable[Given, Any]) -> Any:
        """Decorate a function: each call runs under the lock.

        Raises:
            UsageError: the body would run without the lock, as that of an `async def` or a generator would.
        """
        check_blocking(function)

        @wraps(function)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Any:
            with self:
                return ran(function, function(*args, **kwargs))

        return run

    def _timeout(self) -> LockTimeout:
        seen: views.Explanation | None = None
        # Saying who holds it is a courtesy: the answer is that it was not to be had.
        with suppress(FenceholdError):
            seen = self._line.portal().explain(self.name, stale=True, limit=views.A_FEW)
        return views.not_acquired(self._terms, seen)


class Untimed(Generic[Held]):
    """What was made without a timeout: `acquire()` waits until it has the names, and never returns None."""

    __slots__ = ()

    if TYPE_CHECKING:

        @overload
        def acquire(self, *, blocking: Literal[True] = True, timeout: Forever = ...) -> Held: ...

        @overload
        def acquire(
            self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...
        ) -> Held | None: ...

        def acquire(
            self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...
        ) -> Held | None: ...


class UntimedLock(Untimed[Held], Lock[Held]):
    """A lock that was made without a timeout."""

    __slots__ = ()


def lock_on(line: Line, terms: Terms, held: type[Held]) -> Lock[Held]:
    """The lock for these terms."""
    return (UntimedLock if terms.timeout is None else Lock)(line, terms, held)
