"""Rates: counts of events and levels in each of the last seconds, kept for charts.

Bounded in seconds. What happened before the first sample is filled in from past events, by their times.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

SECONDS_MAX = 900
STEPS = 90
"""Points of a chart."""

COUNTED = {
    "acquired": "granted",
    "queued": "queued",
    "released": "released",
    "expired": "lost",
    "broken": "lost",
    "revoked": "lost",
    "timed_out": "refused",
    "denied": "refused",
    "turned_away": "refused",
    "refused": "refused",
    "deadlock": "refused",
}
"""The series in which an event counts."""
SERIES = ("granted", "queued", "released", "lost", "refused")
GAUGES = ("held", "waiting", "sessions")


class Rates:
    """Counts and levels of the last quarter of an hour."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[str, int]] = {}
        self._levels: deque[tuple[int, dict[str, int]]] = deque(maxlen=SECONDS_MAX)
        self._grants: tuple[int, int] | None = None
        self.grants_per_s = 0.0

    def count(self, kind: str, second: int, times: int = 1) -> None:
        """Something happened in a second of wall-clock time."""
        series = COUNTED.get(kind)
        if series is not None:
            self._bump(series, second, times)

    def level(self, second: int, levels: Mapping[str, int], fence: int) -> None:
        """The levels now, and the newest fence, which gives the number of grants."""
        self._levels.append((second, dict(levels)))
        before, self._grants = self._grants, (second, fence)
        if before is not None and second > before[0]:
            # Not below zero: after a restore, fences may begin elsewhere.
            self.grants_per_s = max(0, fence - before[1]) / (second - before[0])
        self._forget(second)

    def begin_grants(self) -> None:
        """Grants are counted from the next fence on: it is of more shards than the last one."""
        self._grants = None

    def sampled(self, second: int) -> None:
        """Events are not followed, as there are too many: grants are counted by their fences."""
        self._bump("granted", second, round(self.grants_per_s))

    def seed(self, other: "Rates") -> None:
        """Begin with what another has counted so far."""
        self._levels.extend(other._levels)
        for second, counts in other._counts.items():
            self._counts.setdefault(second, dict(counts))

    def chart(self, now: int, span_s: int) -> dict[str, Any]:
        """Each series in steps, the last one ending now: of counts the rate per second, of levels the last."""
        step = max(1, span_s // STEPS)
        end = now - now % step
        starts = range(end - step * STEPS, end, step)
        series: dict[str, list[float | None]] = {name: [] for name in SERIES}
        for start in starts:
            found = [self._counts.get(second, {}) for second in range(start, start + step)]
            for name in SERIES:
                series[name].append(round(sum(each.get(name, 0) for each in found) / step, 2))
        levels = self._levels_in(starts, step)
        return {"until": end, "step_s": step, "rates": series, "levels": levels}

    def _levels_in(self, starts: range, step: int) -> dict[str, list[int | None]]:
        by_step: dict[int, dict[str, int]] = {}
        for second, levels in self._levels:
            by_step[second - second % step] = levels
        told: dict[str, list[int | None]] = {}
        for name in GAUGES:
            told[name] = [by_step.get(start, {}).get(name) for start in starts]
        return told

    def _bump(self, series: str, second: int, times: int) -> None:
        if times:
            counts = self._counts.setdefault(second, {})
            counts[series] = counts.get(series, 0) + times

    def _forget(self, second: int) -> None:
        if len(self._counts) > 2 * SECONDS_MAX:
            self._counts = {at: counts for at, counts in self._counts.items() if at > second - SECONDS_MAX}
