"""Deadlock: whether a request, if it waited, would close a circle of owners waiting for one another: a cycle in
the wait-for graph.

Only what is certain counts, so that there is never a false alarm:

1. A waiter waits for every hold that shuts it out, and for every waiter before it in a queue.
2. A semaphore's waiter is not shut out by any one permit: the first one released will do, and an owner may take
   permits for others that release them. So no edge leads to their holders, unless there is only one permit.
3. An unnamed owner takes no part, nor does one that waits for two things at once, for it is evidently not one
   task: nothing is certain about either.

Edges appear only when a request begins to wait, so searching then is enough; except for an owner that waited for
two things at once, and then for one: a circle that becomes certain by that is left to the timeouts.

What the search costs:

4. It alternates between two directions, a step each: *forward* over the owners the request would wait for, and
   those they wait for; *backward* over the waiters for what its owner holds, and the waiters for those. Where
   either direction ends there is no circle. So a request costs what the shorter direction costs: nothing behind
   any queue while what its owner holds has no waiters, and little where its name is held by an owner that does not
   wait.
5. Each direction is searched breadth-first, and visits each place in a queue and each hold at most twice. When the
   two meet, the first circle that is as short as any can still be is the answer.
6. A circle is reported with at most `LINKS_MAX` links. Of a longer one the middle is left out, and a link of no
   session says how many those were: a report is remembered, journaled and sent, and no person follows a thousand
   steps.
7. The order of the search follows from the state alone, so every replica reports the same circle: names as
   requested or sorted, holds by fence, waiters by ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from typing import Literal, TypeAlias, TypeVar

from fencehold.core.commands import Acquire, Mode
from fencehold.core.outcomes import Link
from fencehold.core.state import Hold, OwnerKey, State, Waiter

AnyLink = TypeVar("AnyLink", bound=Link)

_LAST = 1 << 62
"""A ticket behind every other: where the request would stand."""
LINKS_MAX = 16
"""How many links of a circle are reported."""
_KNOWN = 32
"""About so many waiters that were seen before are passed in one step."""

_Edge: TypeAlias = tuple[OwnerKey, OwnerKey, str, int, int]
"""The waiter, for whom it waits, the name, the fence of the hold (0: the other is before it in the queue), since
when."""
_Edges: TypeAlias = Generator[_Edge | None, None, None]
"""None is a step that led nowhere: it ends the turn all the same."""
_Reached: TypeAlias = dict[OwnerKey, tuple[int, _Edge | None]]
"""Owners by how many edges away they are, and the last edge on the way there."""


def find_circle(state: State, ask: Acquire) -> tuple[Link, ...]:
    """The shortest circle that the request would close; empty if none."""
    start = (ask.session, ask.owner)
    if not ask.owner or start in state.waiting or not _may_close_one(state, start, ask):
        return ()
    return _Search(state, start, ask).circle()


def _may_close_one(state: State, start: OwnerKey, ask: Acquire) -> bool:
    """Whether there is anything to search, backward and forward. Mostly there is not, and no search is set up."""
    holders = [(hold.session, hold.owner) for name in ask.names if (hold := state.held.get(name))]
    if start in holders:
        return True
    if start not in state.blocking and not state.sessions[ask.session].shares:
        return False
    return any(holder in state.waiting for holder in holders) or any(
        name in state.queues or name in state.crowds for name in ask.names
    )


class _Search:
    """One search, both ways, from the owner that asks back to itself."""

    __slots__ = ("_ahead", "_ask", "_behind", "_best", "_best_length", "_depth", "_start", "_state")

    def __init__(self, state: State, start: OwnerKey, ask: Acquire) -> None:
        self._state, self._start, self._ask = state, start, ask
        self._ahead: _Reached = {start: (0, None)}
        self._behind: _Reached = {start: (0, None)}
        self._depth = 0
        """Levels that are known whole, of both ways together: any circle of that many edges has been seen."""
        self._best: _Edge | None = None
        """Where the two ways met in the shortest circle so far, and its length."""
        self._best_length = 0

    def circle(self) -> tuple[Link, ...]:
        backward = self._walk(self._behind, self._ahead, 0, _Backward(self._state, self._start, self._ask).edges)
        forward = self._walk(self._ahead, self._behind, 1, _Forward(self._state, self._start, self._ask).edges)
        # The end of either direction ends the search. Backward goes first: mostly it ends at once.
        for _ in zip(backward, forward, strict=False):
            if self._best is not None and self._best_length <= self._depth + 1:
                break
        return () if self._best is None else self._trace(self._best)

    def _walk(
        self, mine: _Reached, others: _Reached, far_end: Literal[0, 1], edges_of: Callable[[OwnerKey], _Edges]
    ) -> Iterator[None]:
        """Reach all there are in one direction, level by level; each turn is one step."""
        level = [self._start]
        depth = 0
        while level:
            depth += 1
            found: list[OwnerKey] = []
            for owner in level:
                for edge in edges_of(owner):
                    if edge is not None:
                        other = edge[far_end]
                        if other in others:
                            self._meet(edge, depth + others[other][0])
                        if other not in mine:
                            mine[other] = depth, edge
                            found.append(other)
                    yield
                if depth > 1:
                    yield
            self._depth += 1
            # Mostly by ticket. Forward, the waiter furthest back sees most: the rest is then known.
            level = found[::-1] if far_end else found

    def _meet(self, edge: _Edge, length: int) -> None:
        if self._best is None or length < self._best_length:
            self._best, self._best_length = edge, length

    def _trace(self, edge: _Edge) -> tuple[Link, ...]:
        edges = [edge]
        while (before := self._ahead[edges[-1][0]][1]) is not None:
            edges.append(before)
        edges.reverse()
        while (after := self._behind[edges[-1][1]][1]) is not None:
            edges.append(after)
        return told([Link(*waiting, name, fence, since_at) for waiting, _, name, fence, since_at in edges])


def told(links: list[AnyLink]) -> tuple[AnyLink, ...]:
    """A circle as it is reported: its first links and its last."""
    left_out = len(links) - LINKS_MAX
    if left_out <= 0:
        return tuple(links)
    half = LINKS_MAX // 2
    return (*links[:half], type(links[0])(0, f"{left_out} more", "", 0, 0), *links[-half:])


class _Forward:
    """For whom an owner waits."""

    __slots__ = ("_ask", "_holds_seen", "_places", "_seen", "_start", "_state", "_waits_seen")

    def __init__(self, state: State, start: OwnerKey, ask: Acquire) -> None:
        self._state, self._start, self._ask = state, start, ask
        self._holds_seen: set[str] = set()
        self._seen: set[int] = set()
        """Tickets: a waiter in many queues is one step, not many."""
        self._waits_seen: dict[tuple[Mode, tuple[str, ...]], int] = {}
        """The last ticket of those that wait for the same: from further up, there is nothing else to see."""
        self._places: dict[str, _Places] = {}

    def edges(self, owner: OwnerKey) -> _Edges:
        if owner == self._start:
            return self._edges(owner, self._ask, _LAST)
        waiter = _only_wait(self._state, owner)
        if waiter is None or self._waits_seen.get(_wanted(waiter), 0) > waiter.ticket:
            return _nowhere()
        self._waits_seen[_wanted(waiter)] = waiter.ticket
        return self._edges(owner, waiter.ask, waiter.ticket)

    def _edges(self, owner: OwnerKey, wait: Acquire, ticket: int) -> _Edges:
        for name in wait.names:
            if name not in self._holds_seen and wait.mode is not sharing_mode(self._state, name):
                self._holds_seen.add(name)
                for hold in holds_of(self._state, name):
                    key = (hold.session, hold.owner)
                    yield (owner, key, name, hold.fence, hold.since_at) if key[1] else None
            places = self._places.get(name) or self._look_at_places(name)
            if (current := places.current) is not None and current.ticket < ticket:
                yield from self._edges_before(owner, name, ticket, places)

    def _look_at_places(self, name: str) -> _Places:
        places = self._places[name] = _Places(iter(self._state.queues.get(name, {}).values()))
        return places

    def _edges_before(self, owner: OwnerKey, name: str, ticket: int, places: _Places) -> _Edges:
        """Edges to the waiters before the ticket, from the first, except those that were seen before."""
        seen = self._seen
        while (other := places.current) is not None and other.ticket < ticket:
            if other.ticket not in seen:
                seen.add(other.ticket)
                key = (other.ask.session, other.ask.owner)
                yield (owner, key, name, 0, other.since_at) if key[1] else None
            elif not other.ticket % _KNOWN:
                yield None
            places.current = next(places.rest, None)


class _Backward:
    """Who waits for an owner: for what it holds, or behind it in a queue."""

    __slots__ = (
        "_ask",
        "_asked",
        "_held_free",
        "_holds_seen",
        "_places",
        "_seen",
        "_shared",
        "_start",
        "_state",
        "_waits_seen",
    )

    def __init__(self, state: State, start: OwnerKey, ask: Acquire) -> None:
        self._state, self._start, self._ask = state, start, ask
        self._asked = frozenset(ask.names)
        self._held_free: dict[OwnerKey, list[str]] = {}
        """Names asked for that have no waiters yet, by their exclusive holder."""
        for name in ask.names:
            if name in state.held and name not in state.queues:
                hold = state.held[name]
                self._held_free.setdefault((hold.session, hold.owner), []).append(name)
        self._shared: dict[int, dict[str, dict[str, Hold]]] = {}
        self._holds_seen: set[str] = set()
        self._seen: set[int] = set()
        self._waits_seen: dict[tuple[str, ...], int] = {}
        """The first ticket of those that wait for the same: from further back, there is nothing else to see."""
        self._places: dict[str, _Places] = {}

    def edges(self, owner: OwnerKey) -> _Edges:
        held = self._state.held
        for name in chain(self._state.blocking.get(owner, ()), self._held_free.get(owner, ())):
            yield from self._edges_to_hold(owner, held[name])
        session = self._state.sessions[owner[0]]
        if session.shares:
            if session.id not in self._shared:
                yield from self._look_at_shares(session.id)
            shares = self._shared[session.id].get(owner[1], {})
            for name in sorted(shares):
                yield from self._edges_to_hold(owner, shares[name])
        if owner != self._start and (waiter := _only_wait(self._state, owner)):
            yield from self._edges_to_place(owner, waiter)

    def _look_at_shares(self, session_id: int) -> _Edges:
        """Find, by owner and name, what the session has in crowds that have waiters, or would have."""
        queues, asked = self._state.queues, self._asked
        found: dict[str, dict[str, Hold]] = {}
        for hold in self._state.sessions[session_id].shares.values():
            if hold.owner and (hold.name in queues or hold.name in asked):
                first = found.setdefault(hold.owner, {}).setdefault(hold.name, hold)
                if hold.fence < first.fence:
                    found[hold.owner][hold.name] = hold
            yield None
        self._shared[session_id] = found

    def _edges_to_hold(self, owner: OwnerKey, hold: Hold) -> _Edges:
        name, seen = hold.name, self._seen
        if name in self._holds_seen:
            return
        # Of several that share a name, all are waited for by the same waiters.
        self._holds_seen.add(name)
        sharing = sharing_mode(self._state, name)
        if name in self._asked and self._ask.mode is not sharing:
            yield self._start, owner, name, hold.fence, hold.since_at
        for other in self._state.queues.get(name, {}).values():
            if other.ticket not in seen and other.ask.mode is not sharing:
                seen.add(other.ticket)
                yield self._edge(other, owner, name, hold.fence, hold.since_at)
            elif not other.ticket % _KNOWN:
                yield None
        if sharing is None:
            self._places[name] = _Places(iter(()))

    def _edges_to_place(self, owner: OwnerKey, waiter: Waiter) -> _Edges:
        names, ticket = waiter.ask.names, waiter.ticket
        if self._waits_seen.get(names, _LAST) < ticket:
            return
        self._waits_seen[names] = ticket
        for name in names:
            if name in self._asked:
                yield self._start, owner, name, 0, waiter.since_at
            places = self._places.get(name) or self._look_at_places(name)
            if (current := places.current) is not None and current.ticket > ticket:
                yield from self._edges_after(owner, name, waiter, places)

    def _look_at_places(self, name: str) -> _Places:
        places = self._places[name] = _Places(reversed(self._state.queues[name].values()))
        return places

    def _edges_after(self, owner: OwnerKey, name: str, waiter: Waiter, places: _Places) -> _Edges:
        """Edges from the waiters behind this one, the last first, except those that were seen before."""
        seen, ticket = self._seen, waiter.ticket
        while (other := places.current) is not None and other.ticket > ticket:
            if other.ticket not in seen:
                seen.add(other.ticket)
                yield self._edge(other, owner, name, 0, waiter.since_at)
            elif not other.ticket % _KNOWN:
                yield None
            places.current = next(places.rest, None)

    def _edge(self, other: Waiter, owner: OwnerKey, name: str, fence: int, since_at: int) -> _Edge | None:
        """The edge from a waiter, if its owner is named and waits for nothing else: then it is one task."""
        key = (other.ask.session, other.ask.owner)
        if not key[1] or len(self._state.waiting[key]) > 1:
            return None
        return key, owner, name, fence, since_at


class _Places:
    """The places of a queue, iterated from one end; a later step resumes where one stopped."""

    __slots__ = ("current", "rest")

    def __init__(self, waiters: Iterator[Waiter]) -> None:
        self.rest = waiters
        self.current = next(waiters, None)


def sharing_mode(state: State, name: str) -> Mode | None:
    """The mode in which a request may wait for the name and yet for none of its holders: they are of that mode,
    too."""
    crowd = state.crowds.get(name)
    return None if crowd is None or crowd.limit == 1 else crowd.mode


def holds_of(state: State, name: str) -> Iterable[Hold]:
    """The holds on the name, by fence."""
    hold = state.held.get(name)
    if hold is not None:
        return (hold,)
    crowd = state.crowds.get(name)
    return () if crowd is None else crowd.holds.values()


def _wanted(waiter: Waiter) -> tuple[Mode, tuple[str, ...]]:
    return waiter.ask.mode, waiter.ask.names


def _only_wait(state: State, owner: OwnerKey) -> Waiter | None:
    """What the owner waits for, if that is one thing."""
    waits = state.waiting.get(owner, {})
    return next(iter(waits.values())) if len(waits) == 1 else None


def _nowhere() -> _Edges:
    yield from ()
