"""Long waits: logged after a while, with who holds the name, as far as that is known.

1. Waits for the same names are logged as one: the longest, and how many there are.
2. It is logged again each time it has taken twice as long.
3. The holder is looked up in a task of its own, for a short time: no acquire waits longer because of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from math import inf

from fencehold.errors import FenceholdError
from fencehold.locks.log import WAITS
from fencehold.locks.terms import Terms
from fencehold.locks.views import Explanation

_ASKING_S = 2.0


class LongWaits:
    """Of one carrier."""

    def __init__(self, explain: Callable[[str], Awaitable[Explanation]], after_s: float) -> None:
        self._explain = explain
        self.after_s = after_s
        self._next_s: dict[tuple[str, ...], float] = {}
        """How long the wait for names has to be, to be logged again."""
        self._telling: set[asyncio.Task[None]] = set()

    def look(self, waits: Iterable[tuple[Terms, float]], now: float) -> None:
        """Log the long ones of all these waits, given with when they began."""
        longest: dict[tuple[str, ...], tuple[float, Terms, int]] = {}
        for terms, since in waits:
            waited_s = now - since
            if waited_s >= self.after_s:
                most_s, _, count = longest.get(terms.names, (0.0, terms, 0))
                longest[terms.names] = (max(most_s, waited_s), terms, count + 1)
        self._next_s = {names: next_s for names, next_s in self._next_s.items() if names in longest}
        for names, (waited_s, terms, count) in longest.items():
            if waited_s >= self._next_s.get(names, 0.0):
                self._next_s[names] = 2 * waited_s
                self._tell(terms, waited_s, count)

    def stop(self) -> None:
        """Log nothing more: the client is being closed."""
        self.after_s = inf
        for task in self._telling:
            task.cancel()

    async def stopped(self) -> None:
        """Wait until no task is left."""
        await asyncio.gather(*self._telling, return_exceptions=True)

    def _tell(self, terms: Terms, waited_s: float, count: int) -> None:
        if WAITS.would_tell(logging.WARNING):
            task = asyncio.get_running_loop().create_task(self._told(terms, waited_s, count))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _told(self, terms: Terms, waited_s: float, count: int) -> None:
        seen: object = "who holds it is not known"
        with suppress(FenceholdError, TimeoutError):
            async with asyncio.timeout(_ASKING_S):
                seen = await self._explain(terms.names[0])
        many = f" ({count} requests)" if count > 1 else ""
        WAITS.tell(logging.WARNING, "waiting for %s for %.1f s%s: %s", terms.label, waited_s, many, seen)
