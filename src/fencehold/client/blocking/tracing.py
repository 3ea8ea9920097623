"""An acquire within a span, in a thread: while it waits, another thread looks up the holders.

That thread is shared by all acquires, and ends when there is nothing left to look up.
"""

import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from fencehold.client.blocking.routes import Carrier, release_soon
from fencehold.errors import FenceholdError
from fencehold.locks.identity import Who
from fencehold.locks.terms import Terms
from fencehold.locks.traces import LINKS_MAX, LOOK_S, AcquireSpan
from fencehold.locks.trust import Grant


def traced(carrier: Carrier, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
    """As `Carrier.acquire`."""
    span = AcquireSpan(terms)
    cancel = _LOOKS.later(lambda: _look(carrier, span))
    grant: Grant | None = None
    try:
        try:
            grant = carrier.acquire(span.terms, who, owner)
        finally:
            cancel()
        span.on_answer(grant)
    except BaseException as error:
        if grant is not None:
            release_soon(carrier, grant)
        span.on_error(error)
        raise
    return grant


def _look(carrier: Carrier, span: AcquireSpan) -> None:
    # A link is optional: without it, the span still says how long it took.
    with suppress(FenceholdError):
        span.on_seen(carrier.explain(span.terms.names[0], stale=True, limit=LINKS_MAX))


class _Looks:
    """Lookups to be done a moment later, unless they are cancelled before."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, list[Callable[[], None]]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def later(self, look: Callable[[], None]) -> Callable[[], None]:
        """Returns a function that cancels it."""
        # Emptied by the first of two: the thread that does the lookup, or the one that cancels it.
        asked = [look]
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="fencehold-traces", daemon=True)
                self._thread.start()
            heapq.heappush(self._due, (time.monotonic() + LOOK_S, next(self._numbers), asked))
            if self._due[0][2] is asked:
                self._changed.notify()
        return asked.clear

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._due and (left_s := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(left_s)
                if not self._due:
                    self._thread = None
                    return
                _, _, asked = heapq.heappop(self._due)
            # An error, as of a client that was closed meanwhile, must not end the lookups of others.
            with suppress(IndexError, Exception):
                asked.pop()()


_LOOKS = _Looks()


def _anew() -> None:
    """A process that was forked has none of the threads of the one it comes from."""
    global _LOOKS  # noqa: PLW0603 - one for the process
    _LOOKS = _Looks()


os.register_at_fork(after_in_child=_anew)
