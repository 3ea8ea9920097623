"""What is to be said of a job that runs once, in either client."""

from typing import Literal, NamedTuple, TypeAlias

from fencehold.durations import LEAST_S, Duration, seconds_of
from fencehold.errors import UsageError

Busy: TypeAlias = Literal["skip", "wait", "raise"]
"""What to do when another runs the job: nothing, wait for it to end, or raise `LockTimeout`."""


class Runs(NamedTuple):
    """How long runs of a job may take, and are kept from the others, in seconds."""

    at_most: float
    at_least: float
    wait: float | None
    """How long to wait for the name; None: without limit."""

    @classmethod
    def checked(cls, at_most: Duration, at_least: Duration, busy: Busy) -> "Runs":
        """What was said of a job, if it makes sense.

        Raises:
            UsageError: it does not.
        """
        if busy not in ("skip", "wait", "raise"):
            raise UsageError(f"busy is 'skip', 'wait' or 'raise', not {busy!r}")
        most = seconds_of("at_most", at_most, least=LEAST_S)
        return cls(most, seconds_of("at_least", at_least, most=most), None if busy == "wait" else 0.0)
