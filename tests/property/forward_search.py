"""The search for deadlocks in one direction: everybody the request would wait for, and everybody they wait for.

It is what `core.deadlock` must agree with: as short as the rules are, and as long as a queue in what it costs.
"""

from collections import deque
from collections.abc import Iterator

from fencehold.core.commands import Acquire, Mode
from fencehold.core.outcomes import Link
from fencehold.core.state import Hold, OwnerKey, State, Waiter

_LAST = 1 << 62
"""A ticket behind every other: where the request would stand."""


def find_circle(state: State, ask: Acquire) -> tuple[Link, ...]:
    """A shortest circle that the request would close; empty if none."""
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


def edges_from(state: State, owner: OwnerKey, ask: Acquire) -> Iterator[tuple[OwnerKey, Link]]:
    """For whom an owner that would ask this waits, and why; for what it waits for already, if it does not ask."""
    if owner == (ask.session, ask.owner):
        return _blockers(state, owner, ask, _LAST, {})
    (waiter,) = state.waiting[owner].values()
    return _blockers(state, owner, waiter.ask, waiter.ticket, {})
