"""The clock: the one door to time. Monotonic, for durations only; nothing here tells the time of day."""

from time import monotonic_ns
from typing import Protocol


class Clock(Protocol):
    """Something that advances and never goes back."""

    goes_by_itself: bool
    """It is not moved by somebody: who looks at it late was kept waiting."""

    def now_ms(self) -> float:
        """Milliseconds since some fixed instant."""
        ...


class MonotonicClock:
    """The clock of the machine this runs on."""

    goes_by_itself = True

    def now_ms(self) -> float:
        return monotonic_ns() / 1_000_000
