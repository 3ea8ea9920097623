# Made of src/fencehold/client/aio/lock.py by scripts/blocking: change that one.
"""Locks: terms under which names are acquired, any number of times, by any number of threads.

A lock object holds nothing: each acquire makes a `Hold`, or a `Claim` where no fence was requested. The lock
remembers whose holds it made, so that `release` and the end of a `with` find the right one.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from fencehold.client.blocking.decorator import Decorator, Given, Job, Result
from fencehold.client.blocking.hold import Claim
from fencehold.client.blocking.routes import Carrier, Route, Routed, release_soon, this_thread
from fencehold.client.blocking.tracing import traced
from fencehold.client.decoration import ran
from fencehold.client.options import BlockingOnly
from fencehold.client.ownership import Bodies, Holds
from fencehold.durations import Duration
from fencehold.errors import FenceholdError, LockTimeout, NotOwner
from fencehold.locks import meter as metering
from fencehold.locks import traces, views
from fencehold.locks.hold import Body
from fencehold.locks.terms import Forever, Terms, admit, wait_of
from fencehold.locks.trust import Grant

Held = TypeVar("Held", bound=Claim, covariant=True)  # noqa: PLC0105 - it is the hold, however it varies
"""What an acquire makes: a `Hold`, or a `Claim`."""
Made = TypeVar("Made", bound=Claim)


class Lock(BlockingOnly, Routed, Decorator, Generic[Held]):
    """Names under certain terms. Use it with `with`, by `acquire`, or as a decorator."""

    __slots__ = (
        "_acquired",
        "_entered",
        "_held",
        "_terms",
    )

    def __init__(
        self,
        route: Route,
        terms: Terms,
        held: type[Held],
    ) -> None:
        admit(terms, route.guarantees)
        super().__init__(route)
        self._held = held
        self._terms = terms
        self._entered: Bodies[Held] = Bodies()
        self._acquired: Holds[Held] = Holds()

    @property
    def name(self) -> str:
        """The name of the lock; the first of several."""
        return self._terms.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the lock, in the one order that every client uses."""
        return self._terms.names

    @overload
    def acquire(self, *, blocking: Literal[True] = True, timeout: Forever) -> Held: ...

    @overload
    def acquire(self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> Held | None: ...

    def acquire(self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> Held | None:
        """Wait for the names; None if they were not acquired in time.

        However the wait ends, even by an interrupt or a cancellation, nothing stays behind.

        Args:
            blocking: False is the same as a timeout of 0.
            timeout: how long to wait, None or -1 for ever; what the lock was made with, if it is not given.

        Raises:
            Deadlock, QueueFull, LimitExceeded, PermissionDenied, SessionExpired: nothing is held.
            Unavailable: nothing was requested, as the service was not reached.
            Overloaded: it was busy all the time, or when this was tried; who holds the names is not known.
            OutcomeUnknown: the connection was lost; what may have been granted is withdrawn when it is back.
        """
        terms = self._terms
        if timeout is not ... or not blocking:
            terms = terms.waiting(wait_of(None if timeout is ... else timeout, blocking=blocking))
        thread, carrier = this_thread(), self._carrier
        grant: Grant | None = None
        try:
            grant = asked(carrier, terms, thread)
            if grant is None:
                return None
            hold = self._held(carrier, grant)
            self._acquired.add(thread, hold)
        except BaseException:
            if grant is not None:
                release_soon(carrier, grant)
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
            # Still entered: the end of its `with` will find it released, and do nothing.
            hold = next((hold for hold in reversed(self._entered.of(thread)) if not hold._grant.ending), None)
        if hold is None:
            raise NotOwner(f"this thread holds nothing by this lock on {self._terms.label}")
        try:
            hold.release()
        finally:
            # Not if an interrupt came first: then this thread still holds it.
            if hold._grant.ending:
                self._acquired.drop(thread, hold)

    def owned(self) -> bool:
        """Whether this thread holds the names by this lock, and can trust it."""
        thread = this_thread()
        holds = self._acquired.of(thread) + self._entered.of(thread)
        return any(hold.safe_for() > 0 for hold in holds)

    def locked(self) -> bool:
        """Whether any of the names is held, or kept by `once(at_least=…)`; true at the moment of the answer."""
        for name in self.names:
            if (self._carrier.explain(name, limit=views.A_FEW)).is_taken:
                return True
        return False

    def _acquire_unowned(self, owner: bytes | None = None) -> Held | None:
        """As `acquire`, but the lock remembers nothing: only the caller has the hold."""
        return acquire_as(self._carrier, self._held, self._terms, owner)

    def acquire_or_raise(self, owner: bytes | None = None) -> Held:
        """As `_acquire_unowned`, but raise `LockTimeout`, which says who holds it."""
        hold = self._acquire_unowned(owner)
        if hold is None:
            raise self._timeout()
        return hold

    def _stranger(self) -> bytes:
        """A new owner, which holds nothing and waits for nothing."""
        return self._carrier.owners.anew(this_thread())

    def __enter__(self) -> Held:
        """Acquire, or raise `LockTimeout`, which says who holds it."""
        thread, carrier = this_thread(), self._carrier
        grant: Grant | None = None
        body: Body[Held] | None = None
        try:
            grant = asked(carrier, self._terms, thread)
            if grant is None:
                raise self._timeout()
            hold = self._held(carrier, grant)
            body = Body(hold)
            self._entered.enter(thread, body.enter())
        except BaseException:
            if body is not None:
                self._entered.leave(thread, body)
            if grant is not None:
                release_soon(carrier, grant)
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
                self._entered.leave(*left)
                left[1].hold._leave(error)
        except FenceholdError:
            raise
        except BaseException:
            # Interrupted: do what that may have prevented.
            left = left or self._entered.last(this_thread(), error)
            if left is not None:
                self._entered.leave(*left)
                left[1].hold._on_interrupted()
            raise

    def _wrapped(self, function: Callable[Given, Result]) -> Job[Given, Result]:
        @wraps(function)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            with self:
                return ran(function, function(*args, **kwargs))

        return run

    def _timeout(self) -> LockTimeout:
        seen: views.Explanation | None = None
        # Saying who holds it is optional: the result is that it was not acquired.
        with suppress(FenceholdError):
            seen = self._carrier.explain(self.name, stale=True, limit=views.A_FEW)
        return views.not_acquired(self._terms, seen)


class Untimed(Generic[Held]):
    """Made without a timeout: `acquire()` waits until it has the names, and never returns None."""

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


def lock_on(
    route: Route,
    terms: Terms,
    held: type[Held],
) -> Lock[Held]:
    """The lock for these terms."""
    kind = UntimedLock if terms.timeout is None else Lock
    return kind(route, terms, held)


def asked(carrier: Carrier, terms: Terms, who: Any, owner: bytes | None = None) -> Grant | None:
    """Acquire names, and report the outcome to the meter. `who` is a thread, or a thread."""
    meter, is_plain = metering.meter, traces.tracer is None
    if meter is None:
        return carrier.acquire(terms, who, owner) if is_plain else traced(carrier, terms, who, owner)
    began_at = meter.now()
    grant: Grant | None = None
    try:
        grant = carrier.acquire(terms, who, owner) if is_plain else traced(carrier, terms, who, owner)
        meter.on_answered(terms, grant, began_at)
    except BaseException:
        if grant is not None:
            release_soon(carrier, grant)
        meter.on_failed(terms)
        raise
    return grant


def acquire_as(
    carrier: Carrier, kind: Callable[[Carrier, Grant], Made], terms: Terms, owner: bytes | None = None
) -> Made | None:
    """Acquire, and make a hold of the given kind of what is granted."""
    grant: Grant | None = None
    try:
        grant = asked(carrier, terms, this_thread(), owner)
        return None if grant is None else kind(carrier, grant)
    except BaseException:
        if grant is not None:
            release_soon(carrier, grant)
        raise
