"""Calendars: the time of day at each node, which is wrong, and set forwards and back while the nodes run.

Nothing may ever be decided by it. So whoever sets the clocks draws from numbers of its own and is no part of the
nemesis: a seed with and without it must have the same history, but for the times that people are shown.
"""

from collections.abc import Callable, Iterable
from random import Random

from tests.simulation.scheduler import SECOND, Scheduler

NOON = 1_767_268_800_000
"""When every run begins: 2026-01-01 12:00:00 UTC."""
SET_EVERY_S = 3.0
STEPS_MS = (-86_400_000, -3_600_000, -5_000, -900, 400, 1_500, 60_000, 7_200_000, 31_536_000_000)


class Calendars:
    """Tells each host its time of day."""

    def __init__(self, scheduler: Scheduler, random: Random, hosts: Iterable[str]) -> None:
        self._scheduler = scheduler
        self._random = random
        self._wrong_by_ms = {host: random.choice((0, 0, 700, -700, 3_600_000)) for host in hosts}

    def of(self, host: str) -> Callable[[], int]:
        """The calendar of a host, which goes on while nothing runs there."""
        return lambda: NOON + self._scheduler.now_ns * 1_000 // SECOND + self._wrong_by_ms[host]

    def begin_setting(self) -> None:
        """Set one after the other from now on."""
        self._scheduler.after(self._random.expovariate(1 / SET_EVERY_S), self._set_one)

    def _set_one(self) -> None:
        host = self._random.choice(list(self._wrong_by_ms))
        self._wrong_by_ms[host] += self._random.choice(STEPS_MS)
        self.begin_setting()
