"""Decoration: what a lock can be put around, by either client.

A lock around a function is released when the call returns. So the call has to run the body: a function that only
makes something that runs later (a coroutine, a generator, a context manager) would silently run without the lock.
Each is refused where it is decorated, and by a type checker as far as types show it.

1. A blocking client decorates plain functions; an async one coroutine functions, and plain ones that wrap one.
2. `functools.partial`, methods and objects with a `__call__` count as what they call.
3. A plain function may still return a coroutine: that is known when it is called, and refused then.
"""

import contextlib
import inspect
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Generator
from enum import Enum
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Never, ParamSpec, TypeAlias, TypeVar

from fencehold.errors import UsageError

if sys.version_info >= (3, 12):
    _is_async = inspect.iscoroutinefunction
else:
    from asyncio import iscoroutinefunction as _is_async  # it knows functions that are marked, too

Given = ParamSpec("Given")
Result = TypeVar("Result")

Async: TypeAlias = Callable[Given, Awaitable[Any] | AsyncIterable[Any]]
"""What runs on an event loop, after the call."""
Lazy: TypeAlias = Callable[Given, Generator[Any, Any, Any]]
"""What runs when it is iterated over, after the call."""
Raising: TypeAlias = Callable[Given, Never]
"""What never returns: it is a subtype of every other, so its overload comes first."""


class UseFenceholdAio:
    """The type of an async function under a blocking lock: nothing that can be called."""


class TakeTheLockInside:
    """The type of a generator function under a lock: nothing that can be called."""


class Kind(Enum):
    """What a call does."""

    PLAIN = "runs its body"
    ASYNC = "makes a coroutine"
    GENERATOR = "makes a generator"
    ASYNC_GENERATOR = "makes an async generator"
    CONTEXT_MANAGER = "makes a context manager"


def check_blocking(function: object) -> None:
    """Refuse what a blocking lock cannot be put around.

    Raises:
        UsageError: its body would run without the lock.
    """
    kind = _checked(function)
    if kind is Kind.ASYNC:
        raise UsageError(
            f"`{_name(function)}` is async: use fencehold.aio. A blocking lock would not cover its body"
        )


def check_async(function: object) -> None:
    """Refuse what the lock of an async client cannot be put around.

    Raises:
        UsageError: it cannot be awaited, or its body would run without the lock.
    """
    if _checked(function) is Kind.PLAIN and not _wraps_async(function):
        name = _name(function)
        raise UsageError(
            f"`{name}` is not async: make it `async def`, or use the blocking client, fencehold.connect"
        )


def ran(function: object, result: Result) -> Result:
    """What a plain function returned under a blocking lock, unless that shows that its body has not run."""
    if isinstance(result, Coroutine):
        result.close()
        raise UsageError(
            f"`{_name(function)}` returned a coroutine, whose body would run without the lock: use fencehold.aio"
        )
    return result


def _checked(function: object) -> Kind:
    """What a call does, if it is one that a lock can be put around by some client."""
    name = _name(function)
    if isinstance(function, staticmethod | classmethod):
        raise UsageError(f"put the lock on `{name}` below @{type(function).__name__}")
    if isinstance(function, type):
        raise UsageError(f"`{name}` is a class: decorate those of its methods that need the lock")
    if not callable(function):
        raise UsageError(f"a lock decorates a function, not {function!r}")
    kind = _kind(function)
    if kind is Kind.GENERATOR or kind is Kind.ASYNC_GENERATOR:
        word, how = ("a generator", "with") if kind is Kind.GENERATOR else ("an async generator", "async with")
        raise UsageError(
            f"`{name}` is {word}: a lock around it is released before its body runs; take the lock inside it, "
            f"with `{how}`"
        )
    if kind is Kind.CONTEXT_MANAGER:
        raise UsageError(
            f"`{name}` is a context manager: a lock around it is released before its body runs; take the lock "
            "inside it, around the `yield`"
        )
    return kind


def _kind(function: Any) -> Kind:
    function = _called(function)
    if inspect.isasyncgenfunction(function):
        return Kind.ASYNC_GENERATOR
    if _is_async(function) or _flags(function) & inspect.CO_ITERABLE_COROUTINE:
        return Kind.ASYNC
    if inspect.isgeneratorfunction(function):
        return Kind.GENERATOR
    # The functions that `contextlib.contextmanager` and its async twin make are defined there.
    if isinstance(function, FunctionType) and function.__globals__ is vars(contextlib):
        return Kind.CONTEXT_MANAGER
    return Kind.PLAIN


def _called(function: Any) -> Any:
    """The function that runs when something is called."""
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    if inspect.isroutine(function) or _is_async(function):
        return function
    return type(function).__call__


def _flags(function: Any) -> int:
    flags: int = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return flags


def _wraps_async(function: Any) -> bool:
    """Whether a plain function wraps an async one (`__wrapped__`): then it may return an awaitable."""
    function = _called(function)
    while (function := getattr(function, "__wrapped__", None)) is not None:
        if _kind(function) is Kind.ASYNC:
            return True
    return False


def _name(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
    # The function it was defined in does not help the reader; its class does.
    return name.rpartition("<locals>.")[2]
