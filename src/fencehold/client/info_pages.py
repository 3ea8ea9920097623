"""Pages of LOCK.INFO: the holders and waiters of a name, page by page up to a limit. Sans I/O.

1. A name may have thousands of holders and waiters, and a reply has a bound: each brings some, and a cursor.
2. It reads as many as there were when it began: clients that come meanwhile cannot keep it reading for ever.
"""

from collections.abc import Iterable
from typing import Any

from fencehold.drivers.resp.wire import command
from fencehold.errors import UsageError
from fencehold.locks.views import EXPLAIN_LIMIT, Explanation, explanation

_PAGE_MAX = 1_000
"""How many holders, and waiters, the service sends at a time."""

_LISTS = ((b"holds", b"hold_count", b"holds_cursor"), (b"waiters", b"waiter_count", b"waiters_cursor"))


class InfoPages:
    """One reading of a name: send `words()`, `take` the reply, until there are no more words."""

    def __init__(self, name: str, limit: int | None = EXPLAIN_LIMIT, *, stale: bool = False) -> None:
        """`limit`: of holders, and of waiters; None for all."""
        check_limit(limit)
        self._name = name
        self._limit = limit
        self._last = ("STALE",) if stale else ()
        self._view: dict[bytes, Any] | None = None
        """The first reply; its lists grow with the others."""

    def words(self) -> bytes | None:
        """The next command; None: all that was wanted is there."""
        if self._view is None:
            # Left out if it is the default: a server that knows of no pages sends all.
            count = () if self._limit == EXPLAIN_LIMIT else ("COUNT", self._page(0))
            return command("LOCK.INFO", self._name, *count, *self._last)
        wanted = [(items, cursor) for items, _, cursor in self._unread()]
        if not wanted:
            return None
        cursors: list[str | int] = []
        for items, cursor in wanted:
            cursors += items.decode().upper(), self._view[cursor]
        count = ("COUNT", self._page(min(len(self._view[items]) for items, _ in wanted)))
        return command("LOCK.INFO", self._name, *cursors, *count, *self._last)

    def take(self, reply: dict[bytes, Any]) -> None:
        """Take the reply to the last command."""
        if self._view is None:
            self._view = reply
            return
        for items, _, cursor in list(self._unread()):
            self._view[items] = [*self._view[items], *reply[items]]
            self._view[cursor] = reply[cursor]

    def explanation(self) -> Explanation:
        """What was read."""
        view = dict(self._view or {})
        for items, count, _ in _LISTS:
            # How many there were at first: those that came or went since are not counted.
            view[count] = max(view.get(count, 0), len(view[items]))
            view[items] = view[items][: self._limit]
        return explanation(view)

    def _unread(self) -> Iterable[tuple[bytes, bytes, bytes]]:
        """The lists of which more is wanted, and there."""
        view = self._view or {}
        for items, count, cursor in _LISTS:
            if view.get(cursor) and len(view[items]) < min(self._limit or view[count], view[count]):
                yield items, count, cursor

    def _page(self, known: int) -> int:
        return _PAGE_MAX if self._limit is None else min(self._limit - known, _PAGE_MAX)


def check_limit(limit: int | None) -> None:
    """Raise `UsageError` for what is no limit."""
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UsageError(f"limit must be a whole number of 1 or more, or None for all, not {limit!r}")
