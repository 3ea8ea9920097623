"""Claims and holds of both clients: what each shows of itself, and under which one the running code runs.

A claim has names; a hold has a fence, too. Where a fence is needed, a claim will not do. Of the current hold:

1. It is set where a body begins, by `with`, `async with` or `once`, and never by `acquire`, which has no body.
2. It follows the context, as context variables do: tasks and `to_thread` calls begun in a body are inside it.
3. A body that is over is never current: not in tasks begun in it, nor where bodies are left out of order.
4. A body under a claim hides no hold around it: what callers look for here is a fence.
"""

import warnings
from contextvars import ContextVar
from typing import Any, Generic, Self, TypeVar

from fencehold.locks.clock import Clock, clock
from fencehold.locks.trust import Grant, State


class Claiming:
    """A grant as its holder sees it. Nothing here waits for anything."""

    __slots__ = ("__weakref__", "_clock", "_grant")

    def __init__(self, grant: Grant, clock: Clock = clock) -> None:
        self._grant = grant
        self._clock = clock

    @property
    def name(self) -> str:
        """The name held; the first of several."""
        return self._grant.terms.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All names held."""
        return self._grant.terms.names

    @property
    def state(self) -> State:
        """HELD, in JEOPARDY, LOST or RELEASED, at this moment."""
        return self._grant.state(self._clock())

    @property
    def is_protected(self) -> bool:
        """Whether a lock is behind it. False if the client went on without one, as its backend was unavailable."""
        return self._grant.is_protected

    def safe_for(self) -> float:
        """Seconds for which the hold can certainly be trusted. Bound what you call by it."""
        return self._grant.safe_for(self._clock())

    def check(self) -> None:
        """Raise if the hold cannot be trusted any more. Call it before each step that must not be done twice.

        Raises:
            HoldLost: stop; another owner may have the names.
            NotOwner: it was released.
        """
        if self._grant.safe_for(self._clock()) <= 0:
            raise self._grant.why()

    def _alive(self) -> None:
        if self._grant.ending:
            raise self._grant.why()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shown()} {self.state.value}>"

    def _shown(self) -> str:
        shown = repr(self.name if len(self.names) == 1 else self.names)
        return shown if self.is_protected else f"{shown} unprotected"

    def __del__(self) -> None:
        # Not released here: code that lost track of it may still be working under it.
        # An interrupt may have come before it had one.
        grant = getattr(self, "_grant", None)
        if grant is not None and not grant.ending and grant.is_protected:
            warnings.warn(f"{self!r} was never released; it lives as long as its session", ResourceWarning, 2)


class Holding(Claiming):
    """A grant with a fence."""

    __slots__ = ()

    @property
    def fence(self) -> int:
        """Greater than that of every earlier hold on these names.

        Raises:
            UsageError: they are of several shards, and each has a fence of its own: see `fences`.
        """
        return self._grant.fence or self._grant.only_fence()

    @property
    def fences(self) -> dict[str, int]:
        """The fence of each name. They are all the same, unless the names are of several shards."""
        return self._grant.fences()

    def _shown(self) -> str:
        fences = dict.fromkeys(self.fences.values())
        return f"{super()._shown()} fence={','.join(map(str, fences))}"


Held = TypeVar("Held", bound=Claiming)


class Body(Generic[Held]):
    """One of several nested bodies."""

    __slots__ = ("hold", "is_over", "outer")

    def __init__(self, hold: Held) -> None:
        self.hold = hold
        self.is_over = False
        self.outer: Body[Any] | None = None
        """The body around this one."""

    def enter(self) -> Self:
        """It begins."""
        self.outer = _around()
        _innermost.set(self)
        return self

    def leave(self) -> None:
        """It is over, or never began."""
        self.is_over = True
        # Another, if bodies are left out of order or by another task: `_around` skips this one, as it is over.
        if _innermost.get() is self:
            _innermost.set(self.outer)


_innermost: ContextVar[Body[Any] | None] = ContextVar("fencehold", default=None)


def current_hold() -> Holding | None:
    """The hold of the innermost `with`, `async with` or `once` body that this runs in; None outside of any."""
    body = _around()
    while body is not None and not isinstance(body.hold, Holding):
        body = body.outer
    return None if body is None else body.hold


def _around() -> Body[Any] | None:
    """The innermost body that is not over."""
    body = _innermost.get()
    while body is not None and body.is_over:
        body = body.outer
    return body
