"""What the locks of an async client decorate: coroutine functions, and what awaits one."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeAlias, TypeVar

from fencehold.client.decoration import check_async

Given = ParamSpec("Given")
Result = TypeVar("Result")
Job: TypeAlias = Callable[Given, Coroutine[Any, Any, Result]]
"""A coroutine function."""


class Decorator:
    """A lock that each call of a function runs under."""

    __slots__ = ()

    def __call__(self, function: Callable[Given, Awaitable[Result]]) -> Job[Given, Result]:
        """Decorate a coroutine function: each call runs under the lock.

        Raises:
            UsageError: it is not one, or an async generator, whose body would run without the lock.
        """
        check_async(function)
        return self._wrapped(function)

    def _wrapped(self, function: Callable[Given, Awaitable[Result]]) -> Job[Given, Result]:
        raise NotImplementedError


class SkippingDecorator:
    """A lock without which a call is skipped: it returns None."""

    __slots__ = ()

    def __call__(self, function: Callable[Given, Awaitable[Result]]) -> Job[Given, Result | None]:
        """Decorate a coroutine function: one call of it runs at a time, anywhere.

        Raises:
            UsageError: it is not one, or an async generator, whose body would run without the lock.
        """
        check_async(function)
        return self._wrapped(function)

    def _wrapped(self, function: Callable[Given, Awaitable[Result]]) -> Job[Given, Result | None]:
        raise NotImplementedError
