"""Deadlock: whether a request, if it waited, would close a circle of owners waiting for one another.

Only what is certain counts, so that there is never a false alarm:

1. A waiter waits for every hold that shuts it out, and for everyone who stands before it in a queue.
2. A semaphore's waiter is not shut out by any one permit: whichever comes back first will do, and an owner may
   take permits for others who give them back. So no edge leads to their holders, but for the only one there is.
3. An owner that nobody named takes no part, and an owner that waits for two things at once is evidently not one
   task: nothing is certain about either.

Edges come into being only when somebody begins to wait, so looking then is enough; but for an owner that waited
for two things at once, and then for one: a circle that becomes certain by that is left to the timeouts.
"""

from collections import deque
from collections.abc import Iterator

from fencehold.core.commands import Acquire, Mode
from fencehold.core.outcomes import Link
from fencehold.core.state import Hold, OwnerKey, State, Waiter

_LAST = 1 << 62
"""A ticket behind every other: where the request would stand."""


def find_circle(state: State, ask: Acquire) -> tuple[Link, ...]:
    """The shortest circle that the request would close; empty if none."""
    start = (ask.session, ask.owner)
    if not ask.owner or start in state.waiting:
        return ()
    steps: dict[OwnerKey, tuple[OwnerKey, Link]] = {}
    scanned: dict[tuple[str, Mode], int] = {}
    frontier: deque[tuple[OwnerKey, Acquire, int]] = deque([(start, ask, _LAST)])
    while frontier:
        owner, wait, ticket = frontier.popleft()
        for blocker, link in _blockers(state, owner, wait, ticket, scanned):
            if blocker == start:
                return _trace(steps, start, owner, link)
            if blocker in steps or not blocker[1]:
                continue
            steps[blocker] = (owner, link)
            if (waits := state.waiting.get(blocker)) and len(waits) == 1:
                waiter = next(iter(waits.values()))
                frontier.append((blocker, waiter.ask, waiter.ticket))
    return ()


def _blockers(
    state: State, owner: OwnerKey, wait: Acquire, ticket: int, scanned: dict[tuple[str, Mode], int]
) -> Iterator[tuple[OwnerKey, Link]]:
    """For whom the owner waits, and why. What was looked at from further back need not be looked at again."""
    for name in wait.names:
        if scanned.get((name, wait.mode), -1) >= ticket:
            continue
        scanned[name, wait.mode] = ticket
        for hold in _certain(state, name, wait.mode):
            yield (hold.session, hold.owner), Link(*owner, name, hold.fence, hold.since_at)
        for waiter in _before(state, name, ticket):
            yield (waiter.ask.session, waiter.ask.owner), Link(*owner, name, 0, waiter.since_at)


def _certain(state: State, name: str, mode: Mode) -> list[Hold]:
    """The holds whose owners are all waited for by whoever cannot have the name in this mode."""
    crowd = state.crowds.get(name)
    if crowd is None or crowd.mode is not mode or crowd.limit == 1:
        return state.holders(name)
    return []


def _before(state: State, name: str, ticket: int) -> Iterator[Waiter]:
    for waiter in state.queues.get(name, {}).values():
        if waiter.ticket >= ticket:
            return
        yield waiter


def _trace(
    steps: dict[OwnerKey, tuple[OwnerKey, Link]], start: OwnerKey, owner: OwnerKey, last: Link
) -> tuple[Link, ...]:
    links = [last]
    while owner != start:
        owner, link = steps[owner]
        links.append(link)
    return tuple(reversed(links))
