"""Views: what can be asked of the state without changing it.

What may be long comes in pages. Sessions, the holds of a name and its waiters are kept by numbers that only grow
(id, fence, ticket), each table in that order. So a page begins after a number, and what is there throughout is
returned exactly once. The first page costs what it returns; one from the middle also a copy of the table's keys.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar

from msgspec import Struct

from fencehold.core.holds import MASK
from fencehold.core.state import Hold, Kept, Session, State, Waiter

Item = TypeVar("Item")


class Page(Struct, Generic[Item], frozen=True):
    """Some of a table, in the order of its keys."""

    items: list[Item]
    ahead: int
    """How many come before them."""
    total: int
    """How many there are."""

    def has_more(self, told: int) -> bool:
        """Whether any come after the first `told` of the page; never after none, which says nothing."""
        return 0 < told < self.total - self.ahead


class HolderView(Struct, frozen=True, gc=False):
    """How many hold a name, with the oldest hold and the newest."""

    count: int
    oldest: Hold
    newest: Hold


class NameView(Struct, frozen=True):
    """Who holds a name, who waits for it, and since when."""

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
    """All there is to know of a name, however much that is."""
    waiters = list(state.queues.get(name, {}).values())
    return NameView(name, state.holders(name), waiters, state.delays.get(name, 0), state.kept.get(name))


def holding_of(state: State, name: str) -> HolderView | None:
    """Who holds a name, in short, however many that are; None: it is not held."""
    hold = state.held.get(name)
    if hold is not None:
        return HolderView(1, hold, hold)
    crowd = state.crowds.get(name)
    if crowd is None:
        return None
    holds = crowd.holds
    return HolderView(len(holds), next(iter(holds.values())), next(reversed(holds.values())))


def holds_after(state: State, name: str, fence: int, count: int) -> Page[Hold]:
    """Up to so many holds on a name with a greater fence."""
    hold = state.held.get(name)
    if hold is not None:
        return _after({hold.fence: hold}, fence, count)
    crowd = state.crowds.get(name)
    return _after(crowd.holds if crowd is not None else {}, fence, count)


def waiters_after(state: State, name: str, ticket: int, count: int) -> Page[Waiter]:
    """Up to so many waiters for a name with a greater ticket, in the order of the queue."""
    return _after(state.queues.get(name, {}), ticket, count)


def sessions_after(state: State, number: int, count: int) -> Page[Session]:
    """Up to so many sessions with a greater id."""
    return _after(state.sessions, number, count)


def _after(table: Mapping[int, Item], number: int, count: int) -> Page[Item]:
    """Up to so many of a table in the order of its keys, from behind one of them."""
    ahead = 0
    keys: Iterable[int] = islice(table, count)
    if number > 0:
        known = list(table)
        ahead = bisect_right(known, number)
        keys = known[ahead : ahead + count]
    return Page([table[key] for key in keys], ahead, len(table))


def in_use(state: State, name: str) -> bool:
    """Whether a name is held, awaited, delayed or kept."""
    return (
        name in state.held
        or name in state.queues
        or name in state.crowds
        or name in state.delays
        or name in state.kept
    )


def all_in_use(state: State, names: set[str]) -> set[str]:
    """Those of some names that are in use: quicker than one by one."""
    tables = (state.queues, state.crowds, state.delays, state.kept)
    parts = state.held.parts
    held = {name for name in names if name in parts[hash(name) & MASK]}
    return held.union(*(table.keys() & names for table in tables if table))


def in_use_count_max(state: State) -> int:
    """How many names are in use at the most: those in several tables are counted in each."""
    return len(state.held) + len(state.queues) + len(state.crowds) + len(state.delays) + len(state.kept)


def names_in_use(state: State, prefix: str = "") -> list[str]:
    """All names that are held, awaited, delayed or kept and begin with the prefix, sorted: a full scan."""
    return sorted({name for name in all_names(state) if name.startswith(prefix)})


def all_names(state: State) -> Iterator[str]:
    """The names in use, in no order; those in several tables come once from each."""
    for table in (state.held, state.queues, state.crowds, state.delays, state.kept):
        yield from table


def names_by_session(state: State, count_max: int) -> Iterator[list[str]]:
    """The names in use, in portions of up to so many, drawn while the state moves on.

    Each name that is in use from before the first portion to after the last is returned; some twice. What came
    into use meanwhile may be missing. A portion may be empty: it is for a session without names.
    """
    for number in list(state.sessions):
        session = state.sessions.get(number)
        if session is None:
            # What it held is free, delayed or kept by now, or went to a waiter.
            continue
        awaited = (name for waiter in session.waiters.values() for name in waiter.ask.names)
        # By keys: reading the names from thousands of holds would take ten times as long, in one go.
        names = [*session.settled, *session.fresh, *(name for _, name in session.shares), *awaited]
        yield from _portions(names, count_max)
    # Last: what a session had that ended before its turn came is here, if anywhere.
    yield from _portions([*state.delays, *state.kept], count_max)


def _portions(names: list[str], count_max: int) -> Iterator[list[str]]:
    for start in range(0, max(1, len(names)), count_max):
        yield names[start : start + count_max]
