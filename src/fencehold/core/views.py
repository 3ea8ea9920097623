"""Views: what can be asked of the state without changing it."""

from collections.abc import Collection
from heapq import nsmallest

from msgspec import Struct

from fencehold.core.state import Hold, Kept, State, Waiter


class NameView(Struct, frozen=True):
    """Who has a name, who waits for it, and since when."""

    name: str
    holds: list[Hold]
    """By fence."""
    waiters: list[Waiter]
    """In order: the first is next."""
    delayed_until_at: int
    """The end of a lock-delay; 0 if there is none."""
    kept: Kept | None
    """For whom it is kept for a least time, be it held or not."""


def view_name(state: State, name: str) -> NameView:
    """All there is to know of a name."""
    waiters = list(state.queues.get(name, {}).values())
    return NameView(name, state.holders(name), waiters, state.delays.get(name, 0), state.kept.get(name))


def names_in_use(state: State, prefix: str = "", *, after: str = "", count: int | None = None) -> list[str]:
    """The names that are held, awaited, delayed or kept and begin with the prefix, sorted; a page, if asked."""
    names: set[str] = set()
    tables: tuple[Collection[str], ...] = (state.held, state.crowds, state.queues, state.delays, state.kept)
    for table in tables:
        found = [name for name in table if name > after and name.startswith(prefix)]
        # Sorting half a million names to show a page of them would hold up everybody.
        names.update(found if count is None else nsmallest(count, found))
    return sorted(names)[:count]
