"""Jobs that run once, for threads. See the async ones for their rules."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

from fencehold.client.blocking.hold import Claim
from fencehold.client.blocking.lock import Lock
from fencehold.client.decoration import (
    Async,
    Lazy,
    Raising,
    TakeTheLockInside,
    UseFenceholdAio,
    check_blocking,
    ran,
)
from fencehold.client.jobs import Busy
from fencehold.locks.hold import Body

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Once:
    """Decorates a function so that one call of it runs at a time, anywhere; None is a skipped one."""

    __slots__ = ("_busy", "_lock")

    def __init__(self, lock: Lock[Claim], busy: Busy) -> None:
        self._lock = lock
        self._busy = busy

    @overload
    def __call__(self, function: Raising[Given]) -> Callable[Given, None]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Async[Given]) -> UseFenceholdAio: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Lazy[Given]) -> TakeTheLockInside: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[Given, Result]) -> Callable[Given, Result | None]: ...

    def __call__(self, function: Callable[Given, Any]) -> Any:
        """Decorate it.

        Raises:
            UsageError: the body would run without the lock, as that of an `async def` or a generator would.
        """
        check_blocking(function)

        @wraps(function)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Any:
            hold = self._acquire()
            if hold is None:
                return None
            body: Body[Claim] | None = None
            failure: BaseException | None = None
            try:
                body = Body(hold)
                body.enter()
                return ran(function, function(*args, **kwargs))
            except BaseException as error:
                failure = error
                raise
            finally:
                try:
                    if body is not None:
                        body.leave()
                    hold._leave(failure)
                finally:
                    # After an interrupt, too, whatever that kept from being done.
                    if body is not None:
                        body.leave()
                    hold._abandon()

        return run

    def _acquire(self) -> Claim | None:
        lock = self._lock
        return lock._acquire_unowned(lock._terms) if self._busy == "skip" else lock.acquire_or_raise()
