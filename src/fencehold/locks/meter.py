"""The meter: where acquires, holds and losses are reported for metrics, if an application wants them.

There is at most one in a process, and none unless an application asks for it (`fencehold.observe.client_metrics`):
without it, each place that would report checks one variable.
"""

from typing import Protocol

from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant


class Meter(Protocol):
    """Counts. It is called on the path of every acquire, by any thread, and must neither wait nor raise."""

    def now(self) -> float:
        """The clock that durations are measured by, in seconds."""

    def on_answered(self, terms: Terms, grant: Grant | None, began_at: float) -> None:
        """An acquire was granted, or not in time."""

    def on_failed(self, terms: Terms) -> None:
        """An acquire raised, or was cancelled."""

    def on_released(self, grant: Grant) -> None:
        """A hold is released by its holder."""

    def on_lost(self, grant: Grant) -> None:
        """A hold was lost."""

    def on_disconnected(self) -> None:
        """The connection to the service was lost."""


meter: Meter | None = None
"""Looked up each time: it may be set after clients were made."""


def set_meter(new: Meter | None) -> None:
    """Report everything to this one from now on; None: report nothing."""
    global meter  # noqa: PLW0603 - one for the whole process, like the log
    meter = new
