"""Cells on virtual time: machines, leases, clients and an operator, with delays, partitions and sleep by lot.

What is real: the machine, the lease (`node.homes_lease`), the procedures of the operator
(`placement.home_procedures`). What is played: three cells whose clocks differ in rate, a leader each (one entry at
a time, lapsing before it and looking at the lease after it, as `node.leader` does), a keeper each (as
`node.cell_keeper`), clients that trust a hold from the sending of their last answered keep-alive, and an operator
whose messages come late, twice or never.

Broken is: a fence that is not greater than every one its name had, and a name that two clients trust at once. A
run is a seed: `python -m tests.simulation.cells --seeds 2000`.
"""

import argparse
import heapq
import sys
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from fencehold.core import commands as c
from fencehold.core import outcomes as o
from fencehold.core.cells import newer_records
from fencehold.core.machine import Machine
from fencehold.errors import FenceholdError, Refused, Unavailable
from fencehold.node.homes_lease import HomesLease
from fencehold.placement import home_procedures as p
from fencehold.placement.cells import Cell, CellMap, PrefixHome, Reach, in_order

CELLS = ("ap", "eu", "us")
NAMES = ("a", "pay.1", "pay.2", "us.1")
PREFIXES = ("", "pay.", "us.")
LEASE_MS = 2_000
TTL_MS = 3_000
SPAN_MS = 60_000
PLACED = CellMap(
    1,
    tuple(Cell(name, (f"{name}:1",)) for name in CELLS),
    in_order(
        (
            PrefixHome("", "eu", Reach.REGION),
            PrefixHome("pay.", "eu", Reach.REGION),
            PrefixHome("us.", "us", Reach.REGION),
        )
    ),
    LEASE_MS,
    LEASE_MS,
)


class Broken(Exception):
    """What must never happen has happened."""


class World:
    """Time, the network, and what is watched over."""

    def __init__(self, seed: int) -> None:
        self.lot = Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()
        self.cut: set[str] = set()
        """Cells that hear nothing of other cells, nor of the operator; their own clients reach them."""
        self.fences: dict[str, int] = {}
        self.trusted: dict[str, tuple[Client, float]] = {}
        self.done: dict[str, int] = {
            "found": 0,
            "grants": 0,
            "moves": 0,
            "promotions": 0,
            "lapses": 0,
            "unsaid": 0,
        }
        self.hosts = {name: self.made_host(name) for name in CELLS}
        self.clients = [Client(self, each % len(CELLS), each) for each in range(6)]
        self.operator = self.made_operator()

    def made_host(self, name: str) -> "Host":
        return Host(self, name)

    def made_operator(self) -> "Operator":
        return Operator(self)

    def at(self, delay_ms: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay_ms, next(self._count), call))

    def send(self, source: str, to: str, call: Callable[[], None]) -> None:
        """A message: late as it may be, lost if one of the ends is cut off when it is sent or comes."""
        if self.lot.random() < 0.02 or {source, to} & self.cut:
            return
        self.at(self.lot.uniform(1, 90), lambda: call() if not {source, to} & self.cut else None)

    def run(self) -> None:
        self.at(3_000, self.trouble)
        while self._events and self._events[0][0] < SPAN_MS:
            self.now, _, call = heapq.heappop(self._events)
            call()

    def trouble(self) -> None:
        """A cell is cut off, or its leader sleeps, or another takes over; and that ends."""
        name = self.lot.choice(CELLS)
        what = self.lot.choice(("cut", "cut", "sleep", "failover"))
        lasts_ms = self.lot.uniform(500, 15_000)
        if what == "cut" and not self.cut:
            self.cut.add(name)
            self.at(lasts_ms, lambda: self.cut.discard(name))
        elif what == "sleep":
            self.hosts[name].sleeps_until = self.now + lasts_ms
        elif what == "failover":
            self.hosts[name].fail_over()
        self.at(self.lot.uniform(1_000, 9_000), self.trouble)

    def on_fence(self, cell: str, granted: o.Granted) -> None:
        self.done["grants"] += 1
        for name in granted.names:
            if granted.fence <= self.fences.get(name, 0):
                raise Broken(f"{name}: fence {granted.fence} of {cell} is not above {self.fences[name]}")
            self.fences[name] = granted.fence

    def on_trusted(self, client: "Client", name: str, until: float) -> None:
        other, other_until = self.trusted.get(name, (client, 0.0))
        if other is not client and other_until > self.now:
            raise Broken(f"{name} is trusted by clients {other.number} and {client.number} at once")
        self.trusted[name] = (client, until)


class Host:
    """A cell: a machine, its leader and its keeper."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.rate = world.lot.uniform(0.99, 1.01)
        self.machine = Machine()
        self.lease = self.made_lease()
        self.sleeps_until = 0.0
        self.queue: list[tuple[c.Command | None, Callable[[Any], None], Callable[[], Any] | None]] = []
        self.is_busy = False
        self.listeners: dict[int, Client] = {}
        self.told_ms = 0.0
        self.term = 0
        self.lapsed_at: dict[str, float] = {}
        world.at(world.lot.uniform(0, 300), self.tick)
        world.at(world.lot.uniform(0, 300), self.keep)

    def made_lease(self) -> HomesLease:
        return HomesLease(lambda: self.world.now * self.rate)

    def awake(self, call: Callable[[], None]) -> None:
        """Do something, when it does not sleep."""
        left_ms = self.sleeps_until - self.world.now
        if left_ms > 0:
            self.world.at(left_ms + self.world.lot.uniform(0, 5), lambda: self.awake(call))
        else:
            call()

    def submit(
        self, command: c.Command | None, answer: Callable[[Any], None], question: Callable[[], Any] | None = None
    ) -> None:
        self.awake(lambda: self._take(command, answer, question))

    def _take(self, command: Any, answer: Callable[[Any], None], question: Callable[[], Any] | None) -> None:
        self.queue.append((command, answer, question))
        self.commit()

    def commit(self) -> None:
        if self.is_busy or not self.queue:
            return
        self.is_busy = True
        taken, self.queue, term = self.queue, [], self.term
        machine, now_ms = self.machine, self.world.now * self.rate
        commands = [command for command, _, _ in taken if command is not None]
        cells = machine.state.cells
        lapsing = () if cells is None else self.lease.uncovered(cells)
        if lapsing:
            self.world.done["lapses"] += 1
            commands.insert(0, c.LapseHomes(lapsing))
        elapsed_ms, self.told_ms = int(now_ms - self.told_ms), now_ms
        applied = machine.apply(machine.position + 1, c.Entry(elapsed_ms, tuple(commands)))
        outcomes = applied.outcomes[1:] if lapsing else applied.outcomes
        for each in applied.outcomes:
            if isinstance(each, o.Granted):
                self.world.on_fence(self.name, each)
        for _, notice in applied.notices:
            if isinstance(notice, o.WaitEnded) and isinstance(notice.answer, o.Granted):
                self.world.on_fence(self.name, notice.answer)
        found = [question() if question is not None else None for _, _, question in taken]
        durable = lambda: self.awake(lambda: self.on_durable(term, taken, outcomes, found, applied))  # noqa: E731
        self.world.at(self.world.lot.uniform(1, 8), durable)

    def on_durable(self, term: int, taken: Any, outcomes: list[Any], found: list[Any], applied: o.Applied) -> None:
        if term != self.term:
            return
        self.is_busy = False
        cells = self.machine.state.cells
        if cells is not None and self.lease.has_run_out(cells):
            # As `LeaseLapsed`: nobody is told anything, and all connections end.
            self.world.done["unsaid"] += 1
            self.fail_over(keeps_lease=True)
            return
        left = iter(outcomes)
        for (command, answer, _), thing in zip(taken, found, strict=True):
            answer(thing if command is None else next(left))
        for _, notice in applied.notices:
            client = self.listeners.get(getattr(notice, "session", 0))
            if client is not None:
                client.on_notice(self, notice)
        self.commit()

    def fail_over(self, *, keeps_lease: bool = False) -> None:
        """Another leader: what was not answered never is."""
        self.term += 1
        self.is_busy, self.queue = False, []
        self.machine = Machine.restore(b"".join(self.machine.snapshot()))
        if not keeps_lease:
            self.lease.forget()
        self.told_ms = self.world.now * self.rate

    def tick(self) -> None:
        self.submit(None, lambda _: None)
        self.world.at(200, self.tick)

    # The keeper.

    def keep(self) -> None:
        self.awake(self._keep)
        self.world.at(LEASE_MS / 4, self.keep)

    def _keep(self) -> None:
        cells = self.machine.state.cells
        if cells is None:
            return
        homes = {prefix: each.version for prefix, each in cells.records.items() if cells.is_open(prefix)}
        sent_ms, version = self.world.now * self.rate, cells.map.version
        for cell in cells.map.cells:
            if cell.name != self.name and not cell.out:
                self._ask(self.world.hosts[cell.name], homes, sent_ms, version)
        lapsed = cells.lapsed & cells.open_leased()
        self.lapsed_at = {each: self.lapsed_at.get(each, sent_ms) for each in lapsed}
        if over := tuple(sorted(e for e, since in self.lapsed_at.items() if sent_ms - since > LEASE_MS)):
            self.submit(c.LapseHomes(over), lambda _: None)

    def _ask(self, other: "Host", homes: dict[str, int], sent_ms: float, version: int) -> None:
        def asked() -> None:
            other.submit(None, answered, lambda: other.confirmation(homes, version))

        def answered(told: Any) -> None:
            if told is not None:
                self.world.send(
                    other.name, self.name, lambda: self.awake(lambda: self.on_told(told, homes, sent_ms))
                )

        self.world.send(self.name, other.name, asked)

    def confirmation(self, homes: dict[str, int], version: int) -> Any:
        cells = self.machine.state.cells
        if cells is None:
            return None
        newer = newer_records(cells, sorted(homes.items()))
        return [(each.prefix, each.to, each.version) for each in newer], (
            cells.map if cells.map.version > version else None
        )

    def on_told(self, told: Any, homes: dict[str, int], sent_ms: float) -> None:
        newer, placed = told
        if placed is not None:
            self.submit(c.ApplyCells(placed, self.name), lambda _: None)
        for prefix, to, version in newer:
            self.submit(c.CloseHome(prefix, to, version), lambda _: None)
        if not newer:
            self.lease.confirm(homes, sent_ms, LEASE_MS)
            cells = self.machine.state.cells
            if cells is not None and (lapsed := sorted(cells.lapsed & homes.keys())):
                self.submit(c.ResumeHomes(tuple((each, homes[each]) for each in lapsed)), lambda _: None)


class Client:
    """Asks where it believes a name to be, keeps its sessions alive, and trusts no longer than it may."""

    def __init__(self, world: World, near: int, number: int) -> None:
        self.world, self.number, self.near = world, number, CELLS[near]
        self.sessions: dict[str, int] = {}
        self.sent: dict[str, float] = {}
        """When the last answered keep-alive was sent, by cell."""
        self.held: tuple[str, str, int] | None = None
        self.homes = {prefix: PLACED.by_prefix[prefix].cell for prefix in PREFIXES}
        for name in CELLS:
            world.at(world.lot.uniform(1_000, 1_500), lambda name=name: self.open(name))  # type: ignore[misc]
        world.at(world.lot.uniform(1_500, 2_000), self.work)

    def call(self, cell: str, command: c.Command, answer: Callable[[Any], None]) -> None:
        """A client of a cell that is cut off reaches it if it is near."""
        host, lot = self.world.hosts[cell], self.world.lot
        if (cell in self.world.cut and cell != self.near) or lot.random() < 0.02:
            return
        back = lambda told: self.world.at(lot.uniform(0, 40), lambda: answer(told))  # noqa: E731
        self.world.at(lot.uniform(0, 40), lambda: host.submit(command, back))

    def open(self, cell: str) -> None:
        sent = self.world.now

        def opened(told: Any) -> None:
            if isinstance(told, o.Opened):
                self.sessions[cell], self.sent[cell] = told.session, sent
                self.world.hosts[cell].listeners[told.session] = self

        if cell not in self.sessions:
            self.call(cell, c.OpenSession(TTL_MS), opened)
            self.world.at(2_000, lambda: self.open(cell))
        else:
            self.world.at(TTL_MS / 3, lambda: self.renew(cell))

    def renew(self, cell: str) -> None:
        session, sent = self.sessions.get(cell, 0), self.world.now

        def renewed(told: Any) -> None:
            if isinstance(told, o.Renewed) and session not in told.ended:
                self.sent[cell] = max(self.sent[cell], sent)
                if self.held is not None and self.held[0] == cell:
                    self.trust()
            elif isinstance(told, o.Renewed):
                self.on_ended(cell, session)

        if session:
            self.call(cell, c.Renew((session,)), renewed)
            self.world.at(TTL_MS / 3, lambda: self.renew(cell))
        else:
            self.open(cell)

    def trust(self) -> None:
        if self.held is not None:
            cell, name, _ = self.held
            self.world.on_trusted(self, name, self.sent[cell] + TTL_MS * 0.95)

    def lose(self, cell: str) -> None:
        if self.held is not None and self.held[0] == cell:
            self.forget()

    def forget(self) -> None:
        if self.held is not None:
            name = self.held[1]
            if self.world.trusted.get(name, (None, 0))[0] is self:
                del self.world.trusted[name]
            self.held = None

    def on_notice(self, host: Host, notice: Any) -> None:
        if isinstance(notice, o.SessionEnded) and self.world.lot.random() < 0.5:
            # It hears of it a little later, if at all; if not, by its next keep-alive.
            self.world.at(self.world.lot.uniform(0, 40), lambda: self.on_ended(host.name, notice.session))

    def on_ended(self, cell: str, session: int) -> None:
        if self.sessions.get(cell) == session:
            del self.sessions[cell]
            self.lose(cell)

    def work(self) -> None:
        self.world.at(self.world.lot.uniform(100, 900), self.work)
        if not self.world.done["found"]:
            # What is promised holds from when the first map was applied to the end.
            return
        if self.held is not None:
            cell, name, fence = self.held
            if self.world.lot.random() < 0.6 or self.sent.get(cell, 0) + TTL_MS * 0.95 < self.world.now:
                self.forget()
                self.call(cell, c.Release(self.sessions.get(cell, 0), (name,), fence), lambda _: None)
            return
        name = self.world.lot.choice(NAMES)
        prefix = next(each for each in sorted(PREFIXES, key=len, reverse=True) if name.startswith(each))
        cell = self.homes[prefix] if self.world.lot.random() < 0.8 else self.world.lot.choice(CELLS)
        session = self.sessions.get(cell, 0)

        def answered(told: Any) -> None:
            if isinstance(told, o.Refused) and told.code is o.Code.ELSEWHERE:
                self.homes[prefix] = told.detail.split()[0]
            if not isinstance(told, o.Granted) or self.sessions.get(cell) != session:
                return
            if self.held is not None or self.sent[cell] + TTL_MS * 0.95 <= self.world.now:
                self.call(cell, c.Release(session, (name,), told.fence), lambda _: None)
                return
            self.held = (cell, name, told.fence)
            self.trust()

        if session:
            self.call(cell, c.Acquire(session, (name,), wait_ms=0), answered)


class Operator:
    """Carries out procedures; gives them up anywhere; its messages come late, or again."""

    procedure: p.Procedure | None = None

    def __init__(self, world: World) -> None:
        self.world = world
        self.placed = PLACED
        self.late: list[tuple[str, c.Command]] = []
        self.goal = ""
        self.run = 0
        world.at(0, lambda: self.begin("found", p.reconcile(PLACED)))
        world.at(200, self.meddle)

    def begin(self, goal: str, procedure: p.Procedure) -> None:
        self.goal, self.procedure = goal, procedure
        self.run += 1
        self.go_on(None)

    def next(self) -> None:
        """Begin something, if nothing is under way."""
        lot = self.world.lot
        if self.procedure is not None:
            return
        if not self.world.done["found"]:
            self.begin("found", p.reconcile(PLACED))
            return
        prefix, to = lot.choice(PREFIXES), lot.choice(CELLS)
        if self.world.cut and lot.random() < 0.7:
            # What is cut off looks like what is lost.
            self.begin(
                "promotions",
                p.promote(self.placed, prefix, to, p.Loss(int(self.world.now) * 1_000, TTL_MS / 1_000)),
            )
        else:
            self.begin("moves", p.move(self.placed, prefix, to, p.Choice(force=lot.random() < 0.2)))

    def meddle(self) -> None:
        """Begin, give up, or let something arrive that was sent long ago."""
        lot = self.world.lot
        self.world.at(lot.uniform(300, 2_000), self.meddle)
        if self.procedure is not None and lot.random() < 0.1:
            self.procedure = None
        elif self.late and lot.random() < 0.4:
            cell, command = lot.choice(self.late)
            self.world.send("operator", cell, lambda: self.world.hosts[cell].submit(command, lambda _: None))
        self.next()

    def go_on(self, reply: Any) -> None:
        procedure = self.procedure
        if procedure is None:
            return
        try:
            step = procedure.throw(reply) if isinstance(reply, BaseException) else procedure.send(reply)
        except StopIteration as end:
            self.world.done[self.goal] += 1
            self.placed, self.procedure = end.value, None
            return
        except FenceholdError:
            self.procedure = None
            return
        self.take(step)

    def take(self, step: p.Step) -> None:
        if isinstance(step.ask, p.Wait):
            self.wait(step.ask)
            return
        host, run, told = self.world.hosts[step.cell], self.run, False

        def answered(reply: Any) -> None:
            nonlocal told
            if run == self.run and not told:
                told = True
                self.go_on(reply)

        def back(reply: Any) -> None:
            self.world.send(step.cell, "operator", lambda: answered(reply))

        command = None if isinstance(step.ask, p.Look) else command_of(step)
        if command is not None:
            self.late.append((step.cell, command))

        def ask() -> None:
            if command is None:
                host.submit(None, back, lambda: status_of(host.machine))
            else:
                host.submit(command, lambda outcome: back(reply_of(outcome)))

        self.world.send("operator", step.cell, ask)
        self.world.at(1_500, lambda: answered(Unavailable("no answer")))

    def wait(self, wait: p.Wait) -> None:
        run = self.run
        self.world.at(wait.seconds * 1_000, lambda: self.go_on(None) if run == self.run else None)


def command_of(step: p.Step) -> c.Command:
    match step.ask:
        case p.Apply(placed):
            return c.ApplyCells(placed, step.cell)
        case p.Close():
            return c.CloseHome(*step.ask)
        case p.Seal():
            return c.SealHome(*step.ask)
        case p.Open():
            return c.OpenHome(*step.ask)
    raise AssertionError(step)


def reply_of(outcome: Any) -> Any:
    match outcome:
        case o.HomeClosing():
            return p.HomeStatus(p.CLOSING, outcome.version, outcome.to, 0, outcome.names)
        case o.HomeClosed():
            return p.HomeStatus(p.CLOSED, outcome.version, outcome.to, outcome.fence, 0, outcome.map_version)
        case o.HomeOpened():
            return p.HomeStatus(p.OPEN, outcome.version, "", outcome.fence)
        case o.Refused():
            return Refused(outcome.detail)
    return None


def status_of(machine: Machine) -> p.CellStatus:
    cells = machine.state.cells
    if cells is None:
        return p.CellStatus(None, {}, machine.fence)
    homes = {
        prefix: p.HomeStatus(each.stage.value, each.version, each.to, each.fence)
        for prefix, each in cells.records.items()
    }
    return p.CellStatus(cells.map, homes, machine.fence)


def played(seed: int, kind: Callable[[int], World] = World) -> World:
    """Play a seed to its end. Raises `Broken`."""
    world = kind(seed)
    world.run()
    return world


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    total: dict[str, int] = {}
    broken = 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            world = played(seed)
        except Broken as error:
            print(f"seed {seed}: {error}")  # noqa: T201
            broken += 1
        else:
            for what, many in world.done.items():
                total[what] = total.get(what, 0) + many
    counted = ", ".join(f"{what} {many}" for what, many in total.items())
    print(f"{options.seeds} seeds, broken: {broken}; {counted}")  # noqa: T201
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
