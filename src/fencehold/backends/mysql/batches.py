"""Batches of asks: those that have to wait are sent together, in one transaction with one sync.

1. An ask is sent at once if not too many are in flight. Else those that come are gathered.
2. An ask that could not be sent within its bound never is: certainly nothing happened.
3. What was sent is answered, whether or not its caller waits for it.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any, NamedTuple

from fencehold.backends.mysql import statements
from fencehold.backends.mysql.statements import WantedLease
from fencehold.drivers.mysql.pool import MysqlAnswer, MysqlPool
from fencehold.errors import Unavailable

_TOGETHER_MAX = 32
_AT_ONCE_MAX = 2
"""Transactions: more would wait for one another at the counters."""


class AskOutcome(NamedTuple):
    """The outcome of an ask."""

    fence: int
    """0 if it was not granted."""
    ahead: int
    other_limit: int
    """Of other holders or waiters of permits, if it differs from the ask's."""


class _Unsent(NamedTuple):
    wanted: WantedLease
    answered: "asyncio.Future[AskOutcome]"
    until: float


class AskBatches:
    """All asks of one client."""

    def __init__(self, pool: MysqlPool, bound_s: float) -> None:
        self._pool = pool
        self._free = _AT_ONCE_MAX
        self._bound_s = bound_s
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Unsent] = deque()

    def ask(self, wanted: WantedLease) -> "asyncio.Future[AskOutcome]":
        """Have an ask sent; await it behind a shield.

        It raises:
            Unavailable, PermissionDenied, UsageError: nothing happened.
            OutcomeUnknown: it may have, or may yet.
        """
        answered: asyncio.Future[AskOutcome] = self._loop.create_future()
        # Retrieved here: without a waiting caller, asyncio must not complain about an unretrieved exception.
        answered.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._waiting.append(_Unsent(wanted, answered, self._loop.time() + self._bound_s))
        self._send()
        return answered

    def _send(self) -> None:
        while self._free and (some := self._gathered()):
            self._free -= 1
            task = self._pool.begin(statements.take([each.wanted for each in some]))
            task.add_done_callback(partial(self._on_done, some))

    def _gathered(self) -> list[_Unsent]:
        some: list[_Unsent] = []
        now = self._loop.time()
        while self._waiting and len(some) < _TOGETHER_MAX:
            each = self._waiting.popleft()
            if each.until > now:
                some.append(each)
            else:
                each.answered.set_exception(Unavailable(f"it could not be sent in {self._bound_s:g} s"))
        # Counters are locked in one order by all: no two transactions wait for one another.
        return sorted(some, key=lambda each: statements.counter(each.wanted.name))

    def _on_done(self, some: list[_Unsent], task: "asyncio.Task[list[MysqlAnswer]]") -> None:
        self._free += 1
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        answers = [] if error is not None else [row for answer in task.result() for row in answer.rows]
        for place, each in enumerate(some):
            if task.cancelled():
                each.answered.cancel()
            elif error is not None:
                each.answered.set_exception(error)
            else:
                each.answered.set_result(_outcome(answers[place]))
        if not task.cancelled():
            self._send()


def _outcome(row: tuple[Any, ...]) -> AskOutcome:
    text = row[0] if isinstance(row[0], str) else row[0].decode()
    return AskOutcome(*map(int, text.split(",")))
