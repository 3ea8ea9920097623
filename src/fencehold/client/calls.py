"""Calls that cannot be meant as they are: the error says what was probably meant.

An option that is misplaced or mistyped, `with` for `async with`: Python's own errors for these name our insides.
They are told when a call fails, so a call that is right costs no more.
"""

import difflib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fencehold.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

_USE_ASYNC = "use `async with`: this belongs to the async client (fencehold.connect() makes the blocking one)"
_USE_PLAIN = "use `with`: this belongs to the blocking client (fencehold.aio.connect() makes the async one)"


def by_name(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose options go by name: whoever calls it wrongly is told which there are."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except TypeError:
            wrong = _wrong(function, args, options)
            if wrong is None:
                raise
        raise UsageError(wrong)

    return call


def _wrong(function: Callable[..., object], args: tuple[object, ...], options: dict[str, object]) -> str | None:
    """What is wrong with the call itself; None if it is something else that failed."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        return _told(function.__name__, signature, options, error)
    return None


def _told(name: str, signature: inspect.Signature, options: dict[str, object], error: TypeError) -> str:
    known = [each.name for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY]
    for option in options:
        if option not in signature.parameters:
            near = difflib.get_close_matches(option, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            return f"{name}() has no option {option!r}: {meant}"
    if "too many positional" in str(error):
        both = {"ttl", "timeout"} <= set(known)
        more = "ttl= is the lease, timeout= how long to wait" if both else f"they are {', '.join(known)}"
        return f"{name}(): options go by name; {more}"
    return f"{name}(): {error}"


class AsyncOnly:
    """Something that is entered by `async with`."""

    __slots__ = ()

    # Not for type checkers, which refuse a plain `with` by themselves.
    if not TYPE_CHECKING:

        def __enter__(self):
            raise UsageError(_USE_ASYNC)

        def __exit__(self, *_):
            """Never reached; without it Python would not try to enter."""


class BlockingOnly:
    """Something that is entered by `with`."""

    __slots__ = ()

    if not TYPE_CHECKING:

        async def __aenter__(self):
            raise UsageError(_USE_PLAIN)

        async def __aexit__(self, *_):
            """Never reached; without it Python would not try to enter."""
