"""Holding: what every hold tells of itself, awaited or not."""

import warnings

from fencehold.client.clock import Clock, clock
from fencehold.client.trust import Grant, State


class Holding:
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
    def fence(self) -> int:
        """Greater than that of every earlier hold on these names."""
        return self._grant.fence

    @property
    def state(self) -> State:
        """HELD, in JEOPARDY, LOST or RELEASED, at this moment."""
        return self._grant.state(self._clock())

    def safe_for(self) -> float:
        """Seconds for which the hold can certainly be trusted. Bound what you call by it."""
        return self._grant.safe_for(self._clock())

    def check(self) -> None:
        """Raise if the hold cannot be trusted any more. Call it before each step that must not be done twice.

        Raises:
            HoldLost: stop; someone else may have the names.
            NotOwner: it was released.
        """
        if self._grant.safe_for(self._clock()) <= 0:
            raise self._grant.why()

    def _alive(self) -> None:
        if self._grant.ending:
            raise self._grant.why()

    def __repr__(self) -> str:
        names = self.name if len(self.names) == 1 else self.names
        return f"<{type(self).__name__} {names!r} fence={self.fence} {self.state.value}>"

    def __del__(self) -> None:
        # Not released here: whoever lost track of it may still be working under it.
        if not self._grant.ending:
            warnings.warn(f"{self!r} was never released; it lives as long as its session", ResourceWarning, 2)
