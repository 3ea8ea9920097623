"""Queues: who waits for a name, in which order, and who is next.

The law of hand-over, in one place:

1. A waiter stands in the queue of each of its names, with one ticket. Tickets are ordered over all names, so
   two waiters stand in the same order wherever they meet, and no circle can form between waiters (G8).
2. A waiter is granted when it is first in all its queues and all its names admit it: all at once (G4, G8).
3. What becomes free in one step is handed on in the order of the tickets, each hold to one successor. Readers at
   the head of a queue are granted together; one behind a writer waits for it.
"""

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from fencehold.core.commands import Acquire
from fencehold.core.granting import grant
from fencehold.core.outcomes import Cancelled, Granted, TimedOut, WaitEnded
from fencehold.core.state import Session, State, Waiter


def ahead(state: State, names: Iterable[str]) -> int:
    """How many would stand before a newcomer, in the longest of the queues."""
    return max(len(state.queues.get(name, ())) for name in names)


def place_of(state: State, waiter: Waiter) -> int:
    """How many stand before the waiter now, in the longest of its queues."""
    return max(list(state.queues[name]).index(waiter.ticket) for name in waiter.ask.names)


def join(state: State, session: Session, ask: Acquire) -> Waiter:
    """Stand at the end of the queue of each name."""
    state.ticket += 1
    until_at = state.now_at + ask.wait_ms if ask.wait_ms > 0 else 0
    waiter = Waiter(state.ticket, ask, state.now_at, until_at)
    take_place(state, session, waiter)
    return waiter


def take_place(state: State, session: Session, waiter: Waiter) -> None:
    """Enter the waiter in every table; restoring a snapshot does it again, in the order of the tickets."""
    ticket, ask = waiter.ticket, waiter.ask
    state.waiters[ticket] = session.waiters[waiter.key] = waiter
    session.names_awaited += len(ask.names)
    for name in ask.names:
        state.queues.setdefault(name, OrderedDict())[ticket] = waiter
    if ask.owner:
        state.waiting.setdefault((session.id, ask.owner), {})[ticket] = waiter
    if waiter.until_at:
        state.waiters_due.add(waiter.until_at, ticket)


def leave(state: State, session: Session, waiter: Waiter) -> None:
    """Take the waiter out of every table. The caller hands on: whoever stood behind may be next."""
    ticket, ask = waiter.ticket, waiter.ask
    del state.waiters[ticket], session.waiters[waiter.key]
    session.names_awaited -= len(ask.names)
    for name in ask.names:
        _leave_table(state.queues, name, ticket)
    if ask.owner:
        _leave_table(state.waiting, (session.id, ask.owner), ticket)
    if waiter.until_at and waiter.until_at > state.now_at:
        state.waiters_due.drop(waiter.until_at, ticket)


def _leave_table(table: dict, key: object, ticket: int) -> None:  # type: ignore[type-arg]
    del table[key][ticket]
    if not table[key]:
        del table[key]


def end_wait(state: State, waiter: Waiter, answer: Granted | TimedOut | Cancelled) -> None:
    """Leave with a final answer, remembered until the client says that it has arrived."""
    session = state.sessions[waiter.ask.session]
    state.touch(session)
    leave(state, session, waiter)
    if waiter.ask.request:
        session.final_answers[waiter.ask.request] = answer
    state.tell(WaitEnded(waiter.ticket, session.id, waiter.ask.request, waiter.ask.owner, answer))


def hand_on(state: State, names: Iterable[str]) -> None:
    """Grant whatever can be granted now that these names, or places in their queues, became free."""
    heads = [next(iter(queue)) for name in dict.fromkeys(names) if (queue := state.queues.get(name))]
    heapify(heads)
    while heads:
        waiter = state.waiters.get(heappop(heads))
        if waiter is None or not _is_next(state, waiter):
            continue
        session = state.sessions[waiter.ask.session]
        state.touch(session)
        end_wait(state, waiter, grant(state, session, waiter.ask))
        for name in waiter.ask.names:
            if queue := state.queues.get(name):
                heappush(heads, next(iter(queue)))


def _is_next(state: State, waiter: Waiter) -> bool:
    mode = waiter.ask.mode
    return all(
        next(iter(state.queues[name])) == waiter.ticket and state.admits(name, mode) for name in waiter.ask.names
    )
