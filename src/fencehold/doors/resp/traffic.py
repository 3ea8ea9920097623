"""Traffic: which client sends how much, for operators who ask why a server is busy.

It is sampled about once a second. A connection that had to wait for its turn since the last sample was
*throttled*; one that was throttled in several samples in a row *floods*, and is reported, at most once a minute
each. Nothing is decided by it: turns and lanes make sure that a flood only delays itself.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fencehold.doors.resp.connection import Connection

_BUSY_PER_S = 1_000
"""A client that sends less, and is not throttled, is not worth reporting."""

_LOOKS = 5
_TOLD_EVERY_S = 60.0


class Flood(NamedTuple):
    """A connection that sends much."""

    source: "Connection"
    commands_per_s: int
    is_throttled: bool


class _Seen:
    """What was seen of one connection."""

    __slots__ = ("commands", "looks", "told_at")

    def __init__(self) -> None:
        self.commands = 0
        self.looks = 0
        """In how many samples in a row it was throttled."""
        self.told_at = float("-inf")


class Traffic:
    """What came through one door lately."""

    def __init__(self) -> None:
        self._seen: dict[Connection, _Seen] = {}
        self._looked_at: float | None = None
        self.busiest: Flood | None = None
        self.throttled = 0
        """How many connections had to wait for their turn."""
        self.on_flood: Callable[[Flood], None] = _ignore
        """Called with each that floods, rate-limited."""

    def look(self, sources: "Iterable[Connection]", now: float) -> None:
        """Sample what has arrived since the last call."""
        elapsed_s = now - self._looked_at if self._looked_at is not None else 0.0
        self._looked_at = now
        before, self._seen = self._seen, {}
        found = []
        for source in sources:
            seen = before.get(source) or _Seen()
            # A connection that sent nothing since is dropped, and costs nothing.
            if source.commands != seen.commands or source.was_throttled:
                found.append(self._see(source, seen, elapsed_s, now))
            elif seen.commands:
                seen.looks = 0
                self._seen[source] = seen
        self.throttled = sum(flood.is_throttled for flood in found)
        self.busiest = max(found, key=lambda flood: flood.commands_per_s, default=None)
        if self.busiest and not self.busiest.is_throttled and self.busiest.commands_per_s < _BUSY_PER_S:
            self.busiest = None

    def _see(self, source: "Connection", seen: _Seen, elapsed_s: float, now: float) -> Flood:
        sent = source.commands - seen.commands
        flood = Flood(source, round(sent / elapsed_s) if elapsed_s > 0 else 0, source.was_throttled)
        seen.commands, source.was_throttled = source.commands, False
        seen.looks = seen.looks + 1 if flood.is_throttled else 0
        self._seen[source] = seen
        if seen.looks >= _LOOKS and now - seen.told_at >= _TOLD_EVERY_S:
            seen.told_at = now
            self.on_flood(flood)
        return flood


def _ignore(_: Flood) -> None:
    """No callback is set."""
