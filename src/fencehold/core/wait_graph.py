"""Who waits for whom across shards: what a shard shows of it, circles through several, and what makes one certain.

Inside a shard, the machine refuses the request that would close a circle (`deadlock`). A circle through several
shards no machine sees. It is found from readings of all of them, one after another, by these rules:

1. *One owner in several shards*: sessions of one client say so in what they say of themselves (`session_of`), and
   are of the same principal. What a client says falsely of itself concerns its own principal's requests, and those
   that wait for them; no other principal's owner is ever taken for one of its own.
2. *Only what is certain counts*, as inside a shard: a waiter waits for every hold that shuts it out and for
   everyone before it in its queues, permits do not count unless there is only one, an unnamed owner takes no part,
   and neither does one that waits for two things at once, in one shard or in two.
3. *Waits and holds are facts that do not come back.* A ticket and a fence are given once, so a wait, a hold, or a
   place in a queue that two readings of a shard show was there at every position between them. If the second
   reading of each shard in a circle was taken of a state later than all the first ones, and shows every link of it
   still, then all links were there at one instant: when the last of the first readings was taken. That is a
   deadlock, and stays one until a request of it is refused or withdrawn, or a hold in it runs out or is broken.
4. *A reading is of what is durable*, and shows no more than so many waits: what is left out is a link that is not
   seen, never one that is not there. The oldest are shown, and those in a circle grow old. The reading that
   confirms a circle shows all waits of its owners.
5. *One request is refused*: one that asked against the order of the shards, in which locks over several of them
   are taken; if there are more, that in the lowest shard, and there the one that came last. Every node that sees
   the same circle chooses the same, and a client that keeps to the order is refused only in a circle within one
   shard.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

import msgspec

from fencehold.core.commands import Mode, RefuseWait
from fencehold.core.deadlock import holds_of, sharing_mode, told
from fencehold.core.outcomes import DeadlockAcross, ShardLink
from fencehold.core.state import State

WAITS_MAX, HOLDS_MAX = 4_096, 16_384
"""Waits, and holds that are waited for, that one reading shows; the oldest first."""

Party: TypeAlias = tuple[str, str, str]
"""Principal, client, and the owner inside it. A client that does not name itself is one per session."""


class _Said(msgspec.Struct):
    session_of: str = ""


_said = msgspec.json.Decoder(_Said).decode


@lru_cache(maxsize=8_192)
def client_of(meta: str) -> str:
    """Of which client a session is, by the metadata it was opened with; empty: not given."""
    if "session_of" not in meta:
        return ""
    try:
        return _said(meta).session_of
    except msgspec.MsgspecError:
        return ""


class Wait(NamedTuple):
    """A request that waits: in which shard, with which ticket, for what."""

    shard: int
    ticket: int
    party: Party | None
    """None: no owner was named."""
    session: int
    owner: str
    names: tuple[str, ...]
    mode: Mode
    since_at: int


class Held(NamedTuple):
    """A hold on a name that has waiters."""

    party: Party | None
    fence: int
    since_at: int


class Awaited(NamedTuple):
    """A name that has waiters."""

    holds: tuple[Held, ...]
    sharing: Mode | None
    """A request in this mode waits for none of the holds."""
    queue: tuple[int, ...]
    """The tickets, in order."""


class Reading(NamedTuple):
    """What one shard showed of its waits, at one position."""

    shard: int
    now_at: int
    waits: Mapping[int, Wait]
    """By ticket."""
    names: Mapping[str, Awaited]


class Step(NamedTuple):
    """One link of a circle: who waits, and for what of whom."""

    wait: Wait
    name: str
    fence: int
    """Of the hold that is waited for; 0: its place in the queue is."""
    ticket: int
    """Of the place that is waited for, if no hold is."""
    since_at: int
    to: Party


Circle: TypeAlias = tuple[Step, ...]

_Node: TypeAlias = "Party | tuple[int, str, int]"
"""Of the graph: a party; a place in the queue of a name, by shard; or, at -1, the holds of that name."""


def read(state: State, shard: int, waits_max: int = WAITS_MAX, of: Container[Party] = ()) -> Reading:
    """What a shard shows: so many waits, the oldest first, and all of these parties.

    It must not be ahead of its journal.
    """
    waits: dict[int, Wait] = {}
    for number, waiter in enumerate(state.waiters.values()):
        ask = waiter.ask
        if number >= waits_max and not of:
            break
        party = _party(state, shard, ask.session, ask.owner)
        if number < waits_max or party in of:
            seen = (ask.session, ask.owner, ask.names, ask.mode, waiter.since_at)
            waits[waiter.ticket] = Wait(shard, waiter.ticket, party, *seen)
    names: dict[str, Awaited] = {}
    room = HOLDS_MAX
    for name in dict.fromkeys(chain.from_iterable(wait.names for wait in waits.values())):
        mode, shown = sharing_mode(state, name), tuple(ticket for ticket in state.queues[name] if ticket in waits)
        holds: tuple[Held, ...] = ()
        if any(waits[ticket].mode is not mode for ticket in shown):
            holds = tuple(
                Held(_party(state, shard, hold.session, hold.owner), hold.fence, hold.since_at)
                for hold in islice(holds_of(state, name), room)
            )
            room -= len(holds)
        names[name] = Awaited(holds, mode, shown)
    return Reading(shard, state.now_at, waits, names)


def _party(state: State, shard: int, session: int, owner: str) -> Party | None:
    if not owner:
        return None
    known = state.sessions[session]
    return known.principal, client_of(known.meta) or f"\0{shard}/{session}", owner


def may_cross(states: Sequence[State]) -> bool:
    """Whether there can be a circle through several of these shards at all. Mostly there cannot."""
    return sum(bool(state.waiting) for state in states) > 1


class WaitGraph:
    """The waits of several shards, as they were read."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = {reading.shard: reading for reading in readings}
        self._waits: dict[Party, Wait | None] = {}
        """What each party waits for; None: for more than one thing."""
        for reading in self._readings.values():
            for wait in reading.waits.values():
                if wait.party is not None:
                    self._waits[wait.party] = None if wait.party in self._waits else wait

    def wait_of(self, party: Party) -> Wait | None:
        """What a party waits for, if that is one thing."""
        return self._waits.get(party)

    def shows(self, step: Step) -> bool:
        """Whether a link that was seen before is still there."""
        wait, reading = step.wait, self._readings.get(step.wait.shard)
        if reading is None or wait.party is None or self._waits.get(wait.party) != wait:
            return False
        awaited = reading.names[step.name]
        if step.fence:
            held = (hold.fence == step.fence and hold.party == step.to for hold in awaited.holds)
            return wait.mode is not awaited.sharing and any(held)
        before = reading.waits.get(step.ticket)
        return before is not None and before.party == step.to

    def circles(self) -> Iterator[Circle]:
        """Circles to be ended, one after another: none has a request that is refused for one before it."""
        refused: set[Party] = set()
        for party in self._knotted():
            while party not in refused and (circle := self._shortest(party, refused)):
                victim = victim_of(circle)
                # It gets the shortest circle that it is in, unless another would be refused in that.
                shorter = self._shortest(_of(victim), refused)
                refused.add(_of(victim))
                yield shorter if victim_of(shorter) == victim else circle

    def _shortest(self, start: Party, without: set[Party]) -> Circle:
        """The shortest circle that a party is in; empty if it is in none."""
        came: dict[Party, Step | None] = {start: None}
        level, seen = deque([start]), _Seen()
        while level:
            party = level.popleft()
            for step in self._steps(party, seen):
                if step.to == start:
                    return _trace(came, step)
                if step.to not in came and step.to not in without:
                    came[step.to] = step
                    level.append(step.to)
        return ()

    def _steps(self, party: Party, seen: "_Seen") -> Iterator[Step]:
        """For whom a party waits, except what the same search has seen before."""
        wait = self._waits.get(party)
        if wait is None:
            return
        for name in wait.names:
            awaited = self._readings[wait.shard].names[name]
            place = (wait.shard, name)
            if wait.mode is not awaited.sharing and place not in seen.holds:
                seen.holds.add(place)
                for hold in awaited.holds:
                    if hold.party is not None:
                        yield Step(wait, name, hold.fence, 0, hold.since_at, hold.party)
            waits = self._readings[wait.shard].waits
            at = seen.places.get(place, 0)
            while at < len(awaited.queue) and awaited.queue[at] < wait.ticket:
                before = waits[awaited.queue[at]]
                at += 1
                seen.places[place] = at
                if before.party is not None:
                    yield Step(wait, name, 0, before.ticket, before.since_at, before.party)

    def _knotted(self) -> list[Party]:
        """Those that may be in a circle, in order; who waits between two circles is among them."""
        edges: dict[_Node, list[_Node]] = {}
        for party, wait in self._waits.items():
            if wait is None:
                continue
            waits, names = self._readings[wait.shard].waits, self._readings[wait.shard].names
            ways: list[_Node] = edges.setdefault(party, [])
            for name in wait.names:
                awaited = names[name]
                if wait.mode is not awaited.sharing:
                    holds = (wait.shard, name, -1)
                    ways.append(holds)
                    edges[holds] = [hold.party for hold in awaited.holds if hold.party is not None]
                ahead = bisect_left(awaited.queue, wait.ticket)
                if ahead:
                    ways.append((wait.shard, name, ahead - 1))
                    _enter_places(edges, wait.shard, name, ahead, awaited.queue, waits)
        return sorted(node for node in _trimmed(edges) if isinstance(node[0], str))


def _enter_places(
    edges: "dict[_Node, list[_Node]]",
    shard: int,
    name: str,
    ahead: int,
    queue: tuple[int, ...],
    waits: Mapping[int, Wait],
) -> None:
    """Enter the first places of a queue: each leads to its waiter, and to the place before it."""
    while ahead and (place := (shard, name, ahead - 1)) not in edges:
        ahead -= 1
        party = waits[queue[ahead]].party
        edges[place] = [(shard, name, ahead - 1)] if ahead else []
        if party is not None:
            edges[place].append(party)


def _trimmed(edges: "dict[_Node, list[_Node]]") -> "set[_Node]":
    """Without those that lead nowhere, then without those that nothing leads to, from the ends inward."""
    back: dict[_Node, list[_Node]] = {node: [] for node in edges}
    for node, ways in edges.items():
        for way in ways:
            if way in back:
                back[way].append(node)
    left = set(edges)
    for forward, backward in ((edges, back), (back, edges)):
        counts = {node: sum(way in left for way in forward[node]) for node in left}
        ends = [node for node, count in counts.items() if not count]
        while ends:
            end = ends.pop()
            left.discard(end)
            for node in backward[end]:
                if node in left:
                    counts[node] -= 1
                    if not counts[node]:
                        ends.append(node)
    return left


class _Seen:
    """What one search has seen: holds by shard and name, and how far into each queue."""

    __slots__ = ("holds", "places")

    def __init__(self) -> None:
        self.holds: set[tuple[int, str]] = set()
        self.places: dict[tuple[int, str], int] = {}


def victim_of(circle: Circle) -> Wait:
    """Whose request is refused (rule 5)."""
    waits = [step.wait for step in circle]
    against = [wait for before, wait in zip((waits[-1], *waits), waits, strict=False) if wait.shard < before.shard]
    return min(against or waits, key=lambda wait: (wait.shard, -wait.ticket))


def is_confirmed(circle: Circle, later: WaitGraph) -> bool:
    """Whether every link of a circle is there in later readings (rule 3)."""
    return all(later.shows(step) for step in circle)


def refusal_of(circle: Circle, readings: Mapping[int, Reading]) -> RefuseWait:
    """The command that ends a circle, with the answer to its request: the whole of it, beginning with itself."""
    victim = victim_of(circle)
    first = next(index for index, step in enumerate(circle) if step.wait == victim)
    now_at = readings[victim.shard].now_at
    links = []
    for step in (*circle[first:], *circle[:first]):
        wait = step.wait
        since_at = max(0, now_at - (readings[wait.shard].now_at - step.since_at))
        links.append(ShardLink(wait.session, wait.owner, step.name, step.fence, since_at, wait.shard))
    return RefuseWait(victim.ticket, DeadlockAcross(told(links)))


def _trace(came: Mapping[Party, Step | None], last: Step) -> Circle:
    steps = [last]
    while (before := came[_of(steps[-1].wait)]) is not None:
        steps.append(before)
    return tuple(reversed(steps))


def _of(wait: Wait) -> Party:
    if wait.party is None:
        raise TypeError("a wait without an owner is no link of a circle")
    return wait.party
