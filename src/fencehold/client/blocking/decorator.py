"""What the locks of a blocking client decorate: plain functions, whose call runs their body."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

from fencehold.client.decoration import (
    Async,
    Lazy,
    Raising,
    TakeTheLockInside,
    UseFenceholdAio,
    check_blocking,
)

Given = ParamSpec("Given")
Result = TypeVar("Result")
Job: TypeAlias = Callable[Given, Result]
"""A function."""


class Decorator:
    """A lock that each call of a function runs under."""

    __slots__ = ()

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
        return self._wrapped(function)

    def _wrapped(self, function: Callable[Given, Result]) -> Job[Given, Result]:
        raise NotImplementedError


class SkippingDecorator:
    """A lock without which a call is skipped: it returns None."""

    __slots__ = ()

    @overload
    def __call__(self, function: Raising[Given]) -> Callable[Given, None]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Async[Given]) -> UseFenceholdAio: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Lazy[Given]) -> TakeTheLockInside: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[Given, Result]) -> Callable[Given, Result | None]: ...

    def __call__(self, function: Callable[Given, Any]) -> Any:
        """Decorate a function: one call of it runs at a time, anywhere.

        Raises:
            UsageError: the body would run without the lock, as that of an `async def` or a generator would.
        """
        check_blocking(function)
        return self._wrapped(function)

    def _wrapped(self, function: Callable[Given, Result]) -> Job[Given, Result | None]:
        raise NotImplementedError
