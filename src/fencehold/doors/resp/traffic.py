"""Traffic: who sends how much, for people who ask why a server is busy.

It is looked at about once a second. A connection that had to wait for its turn since the last look was
*throttled*; one that was throttled at several looks in a row *floods*, and somebody is told, not more often than
once a minute for each. Nothing is decided by it: turns and lanes see to it that a flood waits for itself.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fencehold.doors.resp.connection import Connection

_BUSY_PER_S = 1_000
"""Who sends less, and is not throttled, is not worth naming."""

_LOOKS = 5
_TOLD_EVERY_S = 60.0


class Flood(NamedTuple):
    """One that sends much."""

    source: "Connection"
    commands_per_s: int
    is_throttled: bool


class _Seen:
    """What was seen of one connection."""

    __slots__ = ("commands", "looks", "told_at")

    def __init__(self) -> None:
        self.commands = 0
        self.looks = 0
        """In how many looks in a row it was throttled."""
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
        """Called with each that floods, now and then."""

    def look(self, sources: "Iterable[Connection]", now: float) -> None:
        """See what has come since the last look."""
        elapsed_s = now - self._looked_at if self._looked_at is not None else 0.0
        self._looked_at = now
        before, self._seen = self._seen, {}
        found = []
        for source in sources:
            seen = before.get(source) or _Seen()
            # Who has sent nothing since is forgotten, and costs nothing.
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
    """Nobody is to be told."""
