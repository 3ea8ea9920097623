"""The options of locks, of jobs and of `connect`, and the errors for wrong ones.

1. The options of locks are declared here once, for both clients; what only one has is in its signatures.
2. For an option that is misplaced or mistyped, and for `with` instead of `async with`, Python's own errors name
   our internals. Ours say what was probably meant.
"""

import difflib
import inspect
import os
import ssl
from collections.abc import Callable, Mapping
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from fencehold.durations import LEAST_S, Duration, seconds_of
from fencehold.errors import UsageError
from fencehold.locks.terms import Meta
from fencehold.types import Tier

P = ParamSpec("P")
R = TypeVar("R")

Busy: TypeAlias = Literal["skip", "wait", "raise"]
"""What to do when another process runs the job: nothing, wait for it to end, or raise `LockTimeout`."""

OnUnavailable: TypeAlias = Literal["raise", "proceed"]
"""What happens to an acquire for EFFICIENCY whose source is unavailable: it fails, or proceeds without a lock."""

_USE_ASYNC = "use `async with`: this belongs to the async client (fencehold.connect() makes the blocking one)"
_USE_PLAIN = "use `with`: this belongs to the blocking client (fencehold.aio.connect() makes the async one)"


class Options(TypedDict, total=False):
    """The options of every lock, except for its timeout and its tier, which decide the type of the result."""

    ttl: Duration | None
    meta: Meta


class MultiOptions(Options, total=False):
    """The options of a lock on several names."""

    shared: bool


class SeveralOptions(MultiOptions, total=False):
    """The options of a lock on several names, with those that only it has."""

    across_shards: bool


class LockOptions(MultiOptions, total=False):
    """The options of a lock on one name."""

    delay: Duration


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`, except for `url` and `lazy`."""

    correctness: str | None
    efficiency: str | None
    rules: Mapping[str, Tier | str] | None
    on_unavailable: OnUnavailable | None
    ttl: Duration | None
    grace: Duration | None
    name: str | None
    meta: Mapping[str, object] | None
    connect_timeout: Duration | None
    long_wait: Duration | None
    tls: ssl.SSLContext | None
    config: str | os.PathLike[str] | None


class Runs(NamedTuple):
    """How long a run of a job may take, and keeps others from running, in seconds."""

    at_most: float
    at_least: float
    wait: float | None
    """How long to wait for the name; None: without limit."""

    @classmethod
    def checked(cls, at_most: Duration, at_least: Duration, busy: Busy) -> "Runs":
        """The options of a job, if they make sense.

        Raises:
            UsageError: they do not.
        """
        if busy not in ("skip", "wait", "raise"):
            raise UsageError(f"busy is 'skip', 'wait' or 'raise', not {busy!r}")
        most = seconds_of("at_most", at_most, least=LEAST_S)
        return cls(most, seconds_of("at_least", at_least, most=most), None if busy == "wait" else 0.0)


def by_name(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose options go by name: the error of a wrong call says which there are.

    Options that are declared by a `TypedDict` are part of its signature, and others are refused.
    """
    signature = _unpacked(inspect.signature(function))
    known = frozenset(signature.parameters)
    # Methods of a client are declared by `Verbs`, a class that callers do not know.
    called = f"Client.{function.__name__}" if "self" in known else function.__name__

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if options and not options.keys() <= known:
            raise UsageError(_told(called, signature, options))
        try:
            return function(*args, **options)
        except TypeError:
            wrong = _wrong(called, signature, args, options)
            if wrong is None:
                raise
        raise UsageError(wrong)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _unpacked(signature: inspect.Signature) -> inspect.Signature:
    """A signature with the options of its `**options: Unpack[…]` one by one."""
    parameters = []
    for each in signature.parameters.values():
        if each.kind is each.VAR_KEYWORD and get_origin(each.annotation) is Unpack:
            hints = get_type_hints(get_args(each.annotation)[0])
            parameters += [
                inspect.Parameter(name, each.KEYWORD_ONLY, default=_default(hint), annotation=hint)
                for name, hint in hints.items()
            ]
        else:
            parameters.append(each)
    return signature.replace(parameters=parameters)


def _default(hint: object) -> object:
    """The default of an option; an ellipsis: the default is its function's."""
    return None if type(None) in get_args(hint) else ...


def _wrong(
    name: str, signature: inspect.Signature, args: tuple[object, ...], options: dict[str, object]
) -> str | None:
    """What is wrong with the call itself; None if something else failed."""
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        return _told(name, signature, options, str(error))
    return None


def _told(name: str, signature: inspect.Signature, options: dict[str, object], error: str = "") -> str:
    known = [each.name for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY]
    for option in options:
        if option not in signature.parameters:
            near = difflib.get_close_matches(option, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            return f"{name}() has no option {option!r}: {meant}"
    if "too many positional" in error:
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
