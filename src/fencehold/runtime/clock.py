"""The clock: the one door to time. Monotonic, for durations only; nothing here tells the time of day."""

from time import monotonic_ns
from typing import Protocol


class Clock(Protocol):
    """Something that advances and never goes back."""

    def now_ms(self) -> float:
        """Milliseconds since some fixed instant."""
        ...


class MonotonicClock:
    """The clock of the machine this runs on."""

    def now_ms(self) -> float:
        return monotonic_ns() / 1_000_000
