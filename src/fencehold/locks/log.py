"""The log: what the client library writes to the logger `fencehold` and its children.

1. Shells log, never the sans-I/O modules: those return what happened, and know no logger.
2. Nothing is written unless the application configures logging.
3. Every kind has a rate limit for the whole process: after so many records in a minute, one says that more are
   left out, and the next minute's first says how many. A connection that flaps, or a thousand holds lost at once,
   fill no disk.
4. No secret is logged: nodes by host and port, holders as `explain` shows them.
"""

import logging
from math import inf
from typing import Any

from fencehold.durations import shown
from fencehold.errors import Overloaded
from fencehold.locks import meter as metering
from fencehold.locks.clock import Clock, clock
from fencehold.locks.loss_reasons import CLOSED
from fencehold.locks.trust import Grant

PER_MINUTE = 10
_WINDOW_S = 60.0

logging.getLogger("fencehold").addHandler(logging.NullHandler())


class Teller:
    """Logs one kind of event, rate limited."""

    def __init__(self, name: str, *, per_minute: int = PER_MINUTE, clock: Clock = clock) -> None:
        self._logger = logging.getLogger(name)
        self._per_minute = per_minute
        self._clock = clock
        self._began_at = -inf
        self._told = self._left_out = 0

    def tell(self, level: int, message: str, *args: object, facts: dict[str, Any] | None = None) -> None:
        """Write a record, unless there were too many in the last minute.

        `facts` go with it as `record.facts`, for structured logs.
        """
        # Without a lock, which a fork could leave locked for ever: two threads at once may log one more or fewer.
        if not self._logger.isEnabledFor(level):
            return
        now = self._clock()
        before = 0
        if now - self._began_at >= _WINDOW_S:
            before, self._left_out = self._left_out, 0
            self._began_at, self._told = now, 0
        self._told += 1
        if self._told <= self._per_minute:
            if facts is not None:
                told = {**facts, "left_out_before": before} if before else facts
                self._logger.log(level, message, *args, extra={"facts": told})
                return
            more = f" ({before} more such messages were left out)" if before else ""
            self._logger.log(level, message + more, *args)
            return
        self._left_out += 1
        if self._left_out == 1:
            left_s = self._began_at + _WINDOW_S - now
            self._logger.log(level, "more messages of this kind are left out for %.0f s", left_s)

    def would_tell(self, level: int) -> bool:
        """Whether a record would be written now; if not, what only the record needs is not looked up."""
        is_new = self._clock() - self._began_at >= _WINDOW_S
        return self._logger.isEnabledFor(level) and (is_new or self._told <= self._per_minute)

    def reset(self) -> None:
        """Forget what was logged. For tests."""
        self._began_at, self._told, self._left_out = -inf, 0, 0


HOLDS = Teller("fencehold.hold")
CONNECTIONS = Teller("fencehold.connection")
WAITS = Teller("fencehold.wait")
BREAKERS = Teller("fencehold.breaker")
ELECTIONS = Teller("fencehold.election")
OVERLOADS = Teller("fencehold.overload")
TELLERS = (HOLDS, CONNECTIONS, WAITS, BREAKERS, ELECTIONS, OVERLOADS)


def hold_lost(grant: Grant) -> None:
    """A hold, which protects state, is lost."""
    _count(grant)
    HOLDS.tell(_level(grant, logging.ERROR), "%s", grant.why())


def claim_lost(grant: Grant) -> None:
    """A claim, which avoids doing work twice, is lost."""
    _count(grant)
    HOLDS.tell(_level(grant, logging.WARNING), "%s", grant.why())


def campaign_failed(name: str, error: Exception) -> None:
    """One campaign failed; the candidate retries."""
    ELECTIONS.tell(logging.WARNING, "the campaign for %r failed, and is tried again: %s", name, error)


def overloaded(busy: Overloaded, patience_s: float) -> None:
    """The service is overloaded; the request is retried for this long."""
    if patience_s <= 0:
        # The caller gets the error.
        return
    lasting = f" for {shown(round(patience_s, 1))}" if patience_s < inf else ""
    OVERLOADS.tell(logging.WARNING, "%s; trying again%s", busy, lasting)


def _count(grant: Grant) -> None:
    if metering.meter is not None:
        metering.meter.on_lost(grant)


def _level(grant: Grant, level: int) -> int:
    # The application closed the client, and expects that its holds end.
    return logging.INFO if grant.ending == CLOSED else level
