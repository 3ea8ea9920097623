"""What is to be said of a job that runs once, in either client."""

from typing import Literal, TypeAlias

from fencehold.errors import UsageError

Busy: TypeAlias = Literal["skip", "wait", "raise"]
"""What to do when another runs the job: nothing, wait for it to end, or raise `LockTimeout`."""


def wait_when(busy: Busy, at_most: float, at_least: float) -> float | None:
    """How long to wait for the name, once what was said of the job makes sense."""
    if busy not in ("skip", "wait", "raise"):
        raise UsageError(f"busy is 'skip', 'wait' or 'raise', not {busy!r}")
    if at_most <= 0 or not 0 <= at_least <= at_most:
        raise UsageError(f"at_most is more than 0 seconds, and at_least 0 to at_most: {at_most}, {at_least}")
    return None if busy == "wait" else 0.0
