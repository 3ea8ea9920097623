"""The current hold: what the code that runs now runs under, so that a job can check it and pass its fence on.

1. It is set where a body begins, by `with`, `async with` or `once`, and never by `acquire`, which has no body.
2. It follows the context, as context variables do: tasks and `to_thread` calls begun in a body are inside it.
3. A body that is over is nobody's, also for those who were begun in it, or who left another body before it.
4. A body under a claim hides no hold around it: what is asked for here is a fence.
"""

from contextvars import ContextVar
from typing import Any, Generic, Self, TypeVar

from fencehold.client.holding import Claiming, Holding

Held = TypeVar("Held", bound=Claiming)


class Body(Generic[Held]):
    """One body, of those that are inside one another."""

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
        # Another, if bodies are not left in order, or not by whoever entered: who looks finds this one over.
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
