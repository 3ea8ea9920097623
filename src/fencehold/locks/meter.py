"""The meter: what is told of acquires, holds and losses to those who count them, if anybody does.

There is at most one in a process, and none unless an application asks for it (`fencehold.observe.client_metrics`):
without it, each place that would tell looks at one name.
"""

from typing import Protocol

from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant


class Meter(Protocol):
    """Counts. It is called on the path of every acquire, by any thread, and must neither wait nor raise."""

    def now(self) -> float:
        """Seconds, to be measured by."""

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
"""Looked up each time: it may be set when clients are there already."""


def set_meter(new: Meter | None) -> None:
    """Have everything told to this one from here on; None: to nobody."""
    global meter  # noqa: PLW0603 - one for the whole process, like the log
    meter = new
