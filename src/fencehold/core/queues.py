"""Queues: who waits for a name, in which order, and who is next.

The law of hand-over, in one place:

1. A waiter stands in the queue of each of its names, with one ticket. Tickets are ordered over all names, so
   two waiters stand in the same order wherever they meet, and no cycle can form between waiters (G8).
2. A waiter is granted when it is first in all its queues and all its names admit it: all at once (G4, G8).
3. What becomes free in one step is handed on in the order of the tickets, each hold to one successor. Readers at
   the head of a queue are granted together; one behind a writer waits for it.
4. Nothing that one request or one hand-over needs is looked for along a queue. What is known of a queue as a whole
   (which owner is in its way, under which limit permits are awaited, the places in it) is kept with it, follows
   from the holds and the waiters, and is no part of a snapshot.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from fencehold.core.commands import Acquire
from fencehold.core.grants import grant
from fencehold.core.outcomes import Cancelled, DeadlockAcross, Granted, Refused, TimedOut, WaitEnded
from fencehold.core.quotas import count_waiter
from fencehold.core.state import OwnerKey, Queue, Session, State, Waiter
from fencehold.placement.slots import slot_of


def ahead(state: State, names: Iterable[str]) -> int:
    """How many would be before a newcomer, in the longest of the queues."""
    return max(len(state.queues.get(name, ())) for name in names)


def place_of(state: State, waiter: Waiter) -> int:
    """How many are before the waiter now, in the longest of its queues."""
    return max(_place_in(state.queues[name], waiter.ticket) for name in waiter.ask.names)


def _place_in(queue: Queue, ticket: int) -> int:
    if queue.tickets is None:
        queue.tickets = list(queue)
    return bisect_left(queue.tickets, ticket)


def limit_awaited(state: State, name: str) -> int:
    """The limit under which permits of a name are awaited; 0 if none are. It is the same for all of them."""
    queue = state.queues.get(name)
    return queue.limit if queue is not None and queue.permits else 0


def join(state: State, session: Session, ask: Acquire) -> Waiter:
    """Join the end of the queue of each name."""
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
        queue = state.queues.get(name)
        if queue is None:
            queue = state.queues[name] = Queue()
            _note_holder(state, name, queue)
        _enter(queue, waiter)
    if ask.owner:
        state.waiting.setdefault((session.id, ask.owner), {})[ticket] = waiter
    if waiter.until_at:
        state.waiters_due.add(waiter.until_at, ticket)
    if state.usage is not None:
        count_waiter(state.usage, session.principal, waiter, 1)


def leave(state: State, session: Session, waiter: Waiter) -> None:
    """Take the waiter out of every table. The caller hands on: the waiter behind it may be next."""
    ticket, ask = waiter.ticket, waiter.ask
    del state.waiters[ticket], session.waiters[waiter.key]
    session.names_awaited -= len(ask.names)
    for name in ask.names:
        queue = state.queues[name]
        _withdraw(queue, waiter)
        if not queue:
            del state.queues[name]
            _enter_holder(state, name, queue, None)
    if ask.owner:
        waits = state.waiting[session.id, ask.owner]
        del waits[ticket]
        if not waits:
            del state.waiting[session.id, ask.owner]
    if waiter.until_at and waiter.until_at > state.now_at:
        state.waiters_due.drop(waiter.until_at, ticket)
    if state.usage is not None:
        count_waiter(state.usage, session.principal, waiter, -1)


def _enter(queue: Queue, waiter: Waiter) -> None:
    queue[waiter.ticket] = waiter
    if queue.tickets is not None:
        queue.tickets.append(waiter.ticket)
    if waiter.ask.limit:
        queue.limit = waiter.ask.limit
        queue.permits += 1


def _withdraw(queue: Queue, waiter: Waiter) -> None:
    del queue[waiter.ticket]
    if queue.tickets is not None:
        del queue.tickets[bisect_left(queue.tickets, waiter.ticket)]
    if waiter.ask.limit:
        queue.permits -= 1


def _note_holder(state: State, name: str, queue: Queue) -> None:
    """Enter the owner that holds the name exclusively now, if it is known, as the one in the way of its queue."""
    hold = state.held.get(name)
    _enter_holder(state, name, queue, (hold.session, hold.owner) if hold is not None and hold.owner else None)


def _enter_holder(state: State, name: str, queue: Queue, holder: OwnerKey | None) -> None:
    if holder == queue.holder:
        return
    if queue.holder is not None:
        names = state.blocking[queue.holder]
        del names[bisect_left(names, name)]
        if not names:
            del state.blocking[queue.holder]
    if holder is not None:
        insort(state.blocking.setdefault(holder, []), name)
    queue.holder = holder


def end_wait(
    state: State, waiter: Waiter, answer: Granted | TimedOut | Cancelled | Refused | DeadlockAcross
) -> None:
    """Leave with a final answer, remembered until the client says that it has arrived."""
    session = state.sessions[waiter.ask.session]
    state.touch(session)
    leave(state, session, waiter)
    if waiter.ask.request:
        session.final_answers[waiter.ask.request] = answer
    ask = waiter.ask
    seen = (ask.names, ask.mode.value, state.now_at - waiter.since_at, ask.meta)
    state.tell(WaitEnded(waiter.ticket, session.id, ask.request, ask.owner, answer, *seen))


def hand_on(state: State, names: Iterable[str]) -> None:
    """Grant whatever can be granted now that these names, or places in their queues, became free."""
    if not state.queues:
        return
    heads: list[int] = []
    for name in dict.fromkeys(names):
        if queue := state.queues.get(name):
            _note_holder(state, name, queue)
            heads.append(next(iter(queue)))
    heapify(heads)
    looked_at = 0
    while heads:
        ticket = heappop(heads)
        if ticket == looked_at:
            # At the head of several queues at once: once is enough while nothing is granted.
            continue
        looked_at = ticket
        waiter = state.waiters.get(ticket)
        if waiter is None or not _is_next(state, waiter):
            continue
        session = state.sessions[waiter.ask.session]
        state.touch(session)
        end_wait(state, waiter, grant(state, session, waiter.ask))
        looked_at = 0
        for name in waiter.ask.names:
            if queue := state.queues.get(name):
                _note_holder(state, name, queue)
                heappush(heads, next(iter(queue)))


def _is_next(state: State, waiter: Waiter) -> bool:
    mode = waiter.ask.mode
    if state.arriving and any(slot_of(name) in state.arriving for name in waiter.ask.names):
        # No session holds it here, and one may elsewhere.
        return False
    return all(
        next(iter(state.queues[name])) == waiter.ticket and state.admits(name, mode) for name in waiter.ask.names
    )
