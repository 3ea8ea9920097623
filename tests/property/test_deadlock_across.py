"""Owners that wait for one another through several shards, in schedules drawn by lot.

Clients ask, release, lose what they hold and time out, while a watch reads one shard after another, as far as it
has followed them, and confirms what it finds. No request is refused but in a circle that was there at one instant,
and none is left when nothing else happens any more. What is there is worked out without the search, from the
tables. A run is a seed; `LONG=1` runs more. Bugs that are planted on purpose are found.
"""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from fencehold.core import commands as c
from fencehold.core import outcomes as o
from fencehold.core.machine import Machine
from fencehold.core.state import State
from fencehold.core.wait_graph import (
    Circle,
    Reading,
    WaitGraph,
    client_of,
    is_confirmed,
    read,
    refusal_of,
    victim_of,
)
from tests.depth import deep

SHARDS, CLIENTS, NAMES = 3, 4, 3
STEPS = 160
SEEDS = int(deep("120", "3000"))
LOOKS_MAX = 12
"""So many looks at a service where nothing else happens end all circles."""

Edge = tuple[int, int, tuple[str, str], tuple[str, str]]
"""Shard, ticket of who waits, who waits, for whom."""


class FalseAlarm(Exception):
    """A request was refused that was in no circle."""


class Missed(Exception):
    """A circle is there, and nobody was refused."""


class Watch:
    """How the watch of a node decides; a bug is another one."""

    def confirms(self, circle: Circle, later: dict[int, Reading]) -> bool:
        return is_confirmed(circle, WaitGraph(later.values()))

    def order(self, circle: Circle) -> list[int]:
        """Which shards it reads again: those of the circle last."""
        links = {step.wait.shard for step in circle}
        return sorted(range(SHARDS), key=lambda shard: shard in links)

    is_current = True
    """Whether it reads a shard to the end of its journal before it confirms."""


class Shards:
    """Machines, clients that do as drawn, and a watch that is under way while they do."""

    def __init__(self, seed: int, watch: Watch) -> None:
        self.lot, self.watch = Random(seed), watch
        self.machines = [Machine() for _ in range(SHARDS)]
        self.followed: list[list[Reading]] = [[] for _ in range(SHARDS)]
        """What a node that is behind may still see of each shard, oldest first."""
        self.instants: list[set[Edge]] = []
        """What was there after each step, since the watch began to look."""
        self.refused = self.looked = 0
        for shard in range(SHARDS):
            metas = [f'{{"session_of":"{client}"}}' for client in range(CLIENTS)]
            self.tell(shard, *(c.OpenSession(600_000, meta=meta) for meta in metas))
        self.looking = self.look()

    def tell(self, shard: int, *commands: c.Command, elapsed_ms: int = 0) -> list[o.Outcome]:
        machine = self.machines[shard]
        applied = machine.apply(machine.position + 1, c.Entry(elapsed_ms, commands))
        self.followed[shard].append(read(machine.state, shard))
        self.instants.append(set(self.edges()))
        return applied.outcomes

    # What is there, by the tables alone.

    def edges(self) -> Iterator[Edge]:
        """Who certainly waits for whom."""
        waits: dict[tuple[str, str], int] = {}
        for machine in self.machines:
            for waiter in machine.state.waiters.values():
                who = _who(machine.state, waiter.ask.session, waiter.ask.owner)
                waits[who] = waits.get(who, 0) + 1
        for shard, machine in enumerate(self.machines):
            for edge in _edges_of(shard, machine.state):
                if waits[edge[2]] == 1 and edge[2][1] and edge[3][1]:
                    yield edge

    def is_stuck(self) -> bool:
        """Whether anybody waits for itself, by way of others."""
        ways: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for _, _, who, whom in self.edges():
            ways.setdefault(who, set()).add(whom)
        for start in ways:
            reached, todo = set(), [start]
            while todo:
                for whom in ways.get(todo.pop(), ()):
                    if whom == start:
                        return True
                    if whom not in reached:
                        reached.add(whom)
                        todo.append(whom)
        return False

    # What happens, drawn by lot.

    def step(self) -> None:
        ways = (self.acquire, self.release, self.break_hold, self.tick, self.go_on)
        self.lot.choices(ways, (30, 16, 3, 3, 40))[0]()

    def acquire(self) -> None:
        """A task asks for something, mostly one that does not wait."""
        shard, client = self.lot.randrange(SHARDS), self.lot.randrange(CLIENTS)
        owner = self.lot.choice(("t", "t", "t", "u", ""))
        if owner and self.waits(client, owner) and self.lot.random() < 0.9:
            return
        mode = self.lot.choice((c.Mode.EXCLUSIVE, c.Mode.EXCLUSIVE, c.Mode.SHARED, c.Mode.PERMIT))
        names = [f"{mode.value if mode is c.Mode.PERMIT else 'n'}{self.lot.randrange(NAMES)}"]
        if mode is not c.Mode.PERMIT and self.lot.random() < 0.2:
            names.append("n9")
        limit = 1 + int(names[0][1:]) % 2 if mode is c.Mode.PERMIT else 0
        wait_ms = self.lot.choice((-1, -1, 5_000))
        terms = {"owner": owner, "mode": mode, "limit": limit, "wait_ms": wait_ms}
        self.tell(shard, c.Acquire(client + 1, tuple(names), **terms))  # type: ignore[arg-type]

    def waits(self, client: int, owner: str) -> bool:
        return any((client + 1, owner) in machine.state.waiting for machine in self.machines)

    def release(self) -> None:
        shard = self.lot.randrange(SHARDS)
        sessions = self.machines[shard].state.sessions.values()
        holds = [hold for session in sessions for hold in session.holds()]
        # Who waits does not release, but a client's other task may.
        free = [hold for hold in holds if not self.waits(hold.session - 1, hold.owner) or self.lot.random() < 0.1]
        if free:
            hold = self.lot.choice(free)
            self.tell(shard, c.Release(hold.session, (hold.name,), hold.fence))

    def break_hold(self) -> None:
        """An operator breaks something that one who waits holds."""
        shard = self.lot.randrange(SHARDS)
        waiters = list(self.machines[shard].state.waiters.values())
        if waiters:
            session = self.machines[shard].state.sessions[self.lot.choice(waiters).ask.session]
            self.tell(shard, *(c.Break(hold.name, hold.fence) for hold in session.holds()[:1]))

    def tick(self) -> None:
        self.tell(self.lot.randrange(SHARDS), elapsed_ms=self.lot.choice((100, 2_000)))

    # The watch, one reading at a time.

    def go_on(self) -> None:
        next(self.looking)

    def look(self) -> Iterator[None]:
        while True:
            self.looked += 1
            self.instants = self.instants[-1:]
            readings = []
            for shard in range(SHARDS):
                readings.append(self.followed_reading(shard))
                yield
            for circle in WaitGraph(readings).circles():
                later: dict[int, Reading] = {}
                for shard in self.watch.order(circle):
                    later[shard] = self.current_reading(shard)
                    yield
                if self.watch.confirms(circle, later):
                    self.refuse(circle, later)
                yield

    def followed_reading(self, shard: int) -> Reading:
        """What a node has followed: some of what there is, never less than before."""
        behind = self.followed[shard]
        del behind[: self.lot.randrange(len(behind))]
        return behind[0]

    def current_reading(self, shard: int) -> Reading:
        return self.followed[shard][-1] if self.watch.is_current else self.followed_reading(shard)

    def refuse(self, circle: Circle, later: dict[int, Reading]) -> None:
        victim = victim_of(circle)
        links = {_edge(step) for step in circle}
        (outcome,) = self.tell(victim.shard, refusal_of(circle, later))
        if isinstance(outcome, o.WaitRefused) and outcome.waited:
            self.refused += 1
            if not any(links <= there for there in self.instants):
                raise FalseAlarm(f"{victim.party} was refused, and was in no circle: {circle}")

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
        looks = self.looked + LOOKS_MAX
        while self.looked < looks:
            for behind in self.followed:
                del behind[:-1]
            self.go_on()
        if self.is_stuck():
            raise Missed("nothing happens any more, and somebody waits for itself")


def _edge(step: object) -> Edge:
    wait, to = step.wait, step.to  # type: ignore[attr-defined]
    return wait.shard, wait.ticket, wait.party[1:], to[1:]


def _edges_of(shard: int, state: State) -> Iterator[Edge]:
    for waiter in state.waiters.values():
        who = _who(state, waiter.ask.session, waiter.ask.owner)
        for name in waiter.ask.names:
            crowd = state.crowds.get(name)
            shares = crowd is not None and crowd.mode is waiter.ask.mode and crowd.limit != 1
            for hold in () if shares else state.holders(name):
                yield shard, waiter.ticket, who, _who(state, hold.session, hold.owner)
            for before in state.queues[name].values():
                if before.ticket < waiter.ticket:
                    yield shard, waiter.ticket, who, _who(state, before.ask.session, before.ask.owner)


def _who(state: State, session: int, owner: str) -> tuple[str, str]:
    return client_of(state.sessions[session].meta), owner


def test_no_request_is_refused_but_in_a_circle_and_none_is_left() -> None:
    """In every schedule; and in many of them somebody was refused."""
    refused = 0
    for seed in range(SEEDS):
        shards = Shards(seed, Watch())
        shards.run()
        refused += shards.refused
    assert refused > SEEDS / 4


class Unconfirmed(Watch):
    """Refuses what one round of readings shows."""

    def confirms(self, circle: Circle, later: dict[int, Reading]) -> bool:
        return True


class Behind(Watch):
    """Confirms by what it has followed, however far behind that is."""

    is_current = False


class Narrow(Watch):
    """Does not look whether somebody in the circle waits elsewhere, too."""

    def order(self, circle: Circle) -> list[int]:
        return sorted({step.wait.shard for step in circle})


class Ticketless(Watch):
    """Takes it that the same owners waiting in the same shards still wait for one another."""

    def confirms(self, circle: Circle, later: dict[int, Reading]) -> bool:
        graph = WaitGraph(later.values())
        waits = [graph.wait_of(step.wait.party) for step in circle if step.wait.party is not None]
        return all(wait is not None for wait in waits)


class Blind(Watch):
    """Never sure."""

    def confirms(self, circle: Circle, later: dict[int, Reading]) -> bool:
        return False


def _run(bug: Callable[[], Watch], seeds: int) -> None:
    for seed in range(seeds):
        Shards(seed, bug()).run()


@pytest.mark.parametrize("bug", [Unconfirmed, Behind, Narrow, Ticketless])
def test_false_alarms_are_found(bug: Callable[[], Watch]) -> None:
    with pytest.raises(FalseAlarm):
        _run(bug, 20 * SEEDS)


def test_circles_that_are_missed_are_found() -> None:
    with pytest.raises(Missed):
        _run(Blind, SEEDS)
