"""Interrupting a call at every point at which CPython may: nothing is left to chance.

The interpreter looks for signals at certain points only: when a function begins, after a call of C code, at a jump
back, and while it waits for a lock. So a `KeyboardInterrupt` is raised there, and never between the return of a
function and the store of its result. A profile function is called at just these points (but for jumps), and what
it raises is raised there. What is raised when an object is collected, by a `__del__` or to a weak reference,
CPython prints and drops: there is nothing to be tested.
"""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

_COLLECTING = ("__del__", "gc_callback")


class Point(NamedTuple):
    """Where an interrupt was raised."""

    function: str
    line: int
    event: str
    """What the interpreter had just done, or was about to do."""

    def __str__(self) -> str:
        return f"{self.function}:{self.line} {self.event}"


class Interruption:
    """One run of a call that is interrupted at the n-th point."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.point: Point | None = None
        """None: the call was over before."""

    def run(self, call: Callable[[], object]) -> BaseException | None:
        """Returns what the call raised."""
        try:
            sys.setprofile(self._on_event)
            call()
        except BaseException as error:
            return error
        finally:
            sys.setprofile(None)
        return None

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        if frame.f_code is Interruption.run.__code__ or not _is_point(frame, event, arg) or _is_collecting(frame):
            return
        self._left -= 1
        if self._left == 0:
            what = f"{event} {getattr(arg, '__name__', '')}".strip() if event.startswith("c_") else event
            self.point = Point(frame.f_code.co_qualname, frame.f_lineno, what)
            # Whatever a profile function raises ends the profile: it is one interrupt.
            raise KeyboardInterrupt


def _is_point(frame: FrameType, event: str, arg: Any) -> bool:
    if event == "return":
        # Of what was called by a class, which is C code, and no C function for the profile.
        return frame.f_code.co_name == "__init__"
    return event in ("call", "c_return") or (event == "c_call" and getattr(arg, "__name__", "") == "acquire")


def _is_collecting(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_name in _COLLECTING or code.co_qualname.endswith(("<locals>.remove", "<locals>._remove")):
            return True
        frame = frame.f_back
    return False


def interrupted_everywhere(call: Callable[[], object]) -> Iterator[tuple[Point, BaseException | None]]:
    """Run a call again and again, interrupted at one point after the other; gives each, and what was raised."""
    number = 0
    while True:
        number += 1
        interruption = Interruption(number)
        error = interruption.run(call)
        if interruption.point is None:
            assert error is None, f"it fails by itself: {error!r}"
            return
        yield interruption.point, error
