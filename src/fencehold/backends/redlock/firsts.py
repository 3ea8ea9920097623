"""Who asks for a name on behalf of all that wait for it in one client: the first of them.

1. There is one for each name; it is the first until it leaves, or was not heard of for a while.
2. Of one that never asked it is known: nothing has to be taken back for it.
"""

from typing import NamedTuple

from fencehold.backends.port import Ask
from fencehold.locks.clock import Clock, clock


class _First(NamedTuple):
    token: str
    asked_at: float


class Firsts:
    """Those of one client."""

    def __init__(self, alive_s: float, clock: Clock = clock) -> None:
        self._alive_s = alive_s
        self._clock = clock
        self._firsts: dict[str, _First] = {}
        self._asked: set[str] = set()
        self._silent: set[str] = set()
        """The tokens of those who wait: who has asked, and who never has."""

    def may_ask(self, ask: Ask) -> bool:
        """Whether an ask is the first for its name, or becomes it."""
        now = self._clock()
        first = self._firsts.get(ask.name)
        if first is not None and first.token != ask.token and now - first.asked_at < self._alive_s:
            if ask.token not in self._asked:
                self._silent.add(ask.token)
            return False
        self._firsts[ask.name] = _First(ask.token, now)
        self._silent.discard(ask.token)
        return True

    def asks(self, ask: Ask) -> bool:
        """An ask that waits asks now; says whether it does so for the first time."""
        is_new = ask.token not in self._asked
        self._asked.add(ask.token)
        return is_new

    def leave(self, ask: Ask) -> bool:
        """An ask waits no more; says whether it may have asked."""
        first = self._firsts.get(ask.name)
        if first is not None and first.token == ask.token:
            del self._firsts[ask.name]
        was_silent = ask.token in self._silent
        self._silent.discard(ask.token)
        self._asked.discard(ask.token)
        return not was_silent
