"""A world: nodes, clients, a store and a network, made from one seed; and one run of it from beginning to end."""

import gc
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from fencehold.node.suspicion import Patience
from tests.simulation.administrator import Administrator
from tests.simulation.calendars import Calendars
from tests.simulation.clients import Habits, Notes, Program
from tests.simulation.history import Fault, History, Replicated
from tests.simulation.movers import Mover
from tests.simulation.nemesis import KINDS, Nemesis, Taste
from tests.simulation.network import Network, Way, Weather
from tests.simulation.nodes import PORT, Making, NodeProcess
from tests.simulation.process import Drift, Process
from tests.simulation.scheduler import SECOND, Scheduler
from tests.simulation.store import HOST as STORE
from tests.simulation.store import Condition, Store
from tests.simulation.wild import Babbler, Flooder
from tests.simulation.wire import Said, Tap

CHAOS_S = 300.0
QUIET_TTLS = 3
"""Every request must have ended so many ttls after the last fault."""
CALM_AFTER_S = 10.0
"""How long after the last fault, and two ttls more, nothing is left of it; and then two ttls are watched."""
TICK_S = 0.2
"""Between the ticks of a leader beside wild clients."""
WILD_SHARE = 0.4
"""Of the runs that have a wild client."""
POLICY_SHARE = 0.35
"""Of the runs that have a policy, and somebody who changes it."""
ADMINISTRATOR = "a"
SHARDED_SHARE = 0.25
"""Of the runs whose service has several shards, and somebody who moves slots."""
MOVER = "m"
SETTLE_S = 5.0
"""How long what was given up may take to be withdrawn at the server."""
LOOK_EVERY_S = 0.25
RATE_MAX = 0.009
"""How much faster or slower than true time a clock may go: two of them less than the client's margin apart."""


class Plan(NamedTuple):
    """What a run is like."""

    nodes: int
    clients: int
    weather: Weather
    habits: Habits
    taste: Taste
    tick_s: float
    patience: Patience
    commands_per_snapshot: int
    append_s: float


def plan(random: Random) -> Plan:
    """Draw what a run is like. Extremes are wanted: a run of averages finds little."""
    ttl_s = random.choice((2.0, 3.0, 6.0))
    return Plan(
        nodes=random.choice((1, 2, 3, 3, 3)),
        clients=random.randint(4, 8),
        weather=Weather(
            latency_ms=random.choice((0.1, 0.5, 2.0, 10.0)),
            spike_share=random.choice((0.0, 0.01, 0.05)),
            spike_ms=random.choice((20.0, 150.0)),
            split_share=random.choice((0.0, 0.05, 0.3)),
        ),
        habits=_habits(random, ttl_s),
        taste=Taste(
            every_s=random.choice((1.5, 3.0, 6.0)),
            weights=(*(random.choice((0, 0, 1, 1, 2, 5)) for _ in KINDS[1:]), 2),
        ),
        tick_s=random.choice((0.2, 0.4)),
        patience=Patience(leader_timeout_s=1.0),
        commands_per_snapshot=random.choice((50, 150, 500)),
        append_s=random.choice((0.5, 1.0, 2.0)),
    )


def _habits(random: Random, ttl_s: float) -> Habits:
    return Habits(
        workers_max=random.choice((1, 2, 3)),
        hot=random.choice((1, 2, 4)),
        cold=20,
        think_s=random.choice((0.02, 0.2)),
        hold_s=random.choice((0.01, 0.1, 0.6, ttl_s)),
        idle_s=random.choice((3.0, 10.0)),
        burst=random.choice((2, 8)),
        ttls_s=(ttl_s, 1.5 * ttl_s),
        graces=random.choice(((1.0,), (0.25, 1.0), (0.0, 0.25))),
        connect_s=random.choice((1.5, 4.0)),
        cancelled=random.choice((0.0, 0.1, 0.4)),
        own_ttl=random.choice((0.0, 0.2, 0.5)),
        with_body=random.choice((0.0, 0.5)),
        shared=random.choice((0.0, 0.3)),
        semaphore=random.choice((0.0, 0.2)),
        several=random.choice((0.0, 0.2)),
        nested=random.choice((0.0, 0.05)),
        broken=random.choice((0.0, 0.02)),
        asked=random.choice((0.0, 0.1, 0.3)),
        reopened=random.choice((0.0, 0.1)),
        slammed=random.choice((0.0, 0.0, 0.3)),
    )


def _crowded(random: Random, habits: Habits) -> Habits:
    """Where slots move: names of a few slots, and a line for most of them; now and then of several at once."""
    groups = random.choice((1, 1, 2, 4))
    return habits._replace(
        groups=groups,
        hot=random.choice((1, 2)),
        idle_s=random.choice((0.5, 2.0)),
        workers_max=random.choice((2, 3)),
        semaphore=random.choice((0.0, 0.1)),
        across=random.choice((0.0, 0.15, 0.4)) if groups > 1 else 0.0,
    )


def wild(random: Random) -> tuple[str, ...]:
    """Draw which wild clients a run has: `w` floods, `x` babbles."""
    return random.choice((("w",), ("x",), ("w", "x"))) if random.random() < WILD_SHARE else ()


def shards_of(seed: int) -> int:
    """Draw how many shards the service has."""
    random = Random(f"{seed} number of shards")
    return random.choice((2, 3, 3)) if random.random() < SHARDED_SHARE else 1


class World:
    """Everything there is in one run."""

    def __init__(
        self,
        seed: int,
        say: Callable[[str], None] | None = None,
        *,
        chaos_s: float = CHAOS_S,
        sets_calendars: bool = True,
    ) -> None:
        self.seed = seed
        self._chaos_s = chaos_s
        self.plan = plan(self._random("plan"))
        self.shards = shards_of(seed)
        self.wild = wild(self._random("wild"))
        if self.shards > 1:
            self.plan = self.plan._replace(habits=_crowded(self._random("groups"), self.plan.habits))
        if self.wild:
            # A keep-alive waits for the next tick: a client of little patience takes a longer one for silence.
            self.plan = self.plan._replace(tick_s=TICK_S)
        self.has_policy = self._random("policy").random() < POLICY_SHARE
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, self._random("network"), self.plan.weather, self._tap)
        self.condition = Condition()
        self.notes = Notes(lambda: self.scheduler.now_ns)
        self.stores = [self._store(shard) for shard in range(self.shards)]
        self.history = History(seed)
        self.history.beside = [History(seed) for _ in range(1, self.shards)]
        self.nodes = [f"n{number + 1}" for number in range(self.plan.nodes)]
        self.clients = [f"c{number + 1}" for number in range(self.plan.clients)]
        self.nemesis = Nemesis(self, self._random("nemesis"), self.plan.taste)
        self._say = say
        self._sets_calendars = sets_calendars
        self._calendars = Calendars(self.scheduler, self._random("calendars"), self.nodes)
        self._making = Making(
            self.stores,
            self._calendars,
            self.plan.tick_s,
            self.plan.patience,
            self.plan.commands_per_snapshot,
            self.plan.append_s,
            self.has_policy,
        )
        self._administrator: Administrator | None = None
        self._mover: Mover | None = None
        self._drifts = self._drawn_drifts(self._random("clocks"))
        self._servers: dict[str, NodeProcess] = {}
        self._programs: dict[str, Program] = {}
        self._rogues: list[Flooder | Babbler] = []
        self._dead: list[NodeProcess | Program] = []
        self._lives: dict[str, int] = {}
        self._is_over = False

    def _random(self, part: str) -> Random:
        return Random(f"{self.seed} {part}")

    def _store(self, shard: int) -> Store:
        store = Store(self.network, self._random(f"store {shard}" if shard else "store"), self.condition)
        store.before_stored = self.notes.look
        return store

    def _drawn_drifts(self, random: Random) -> dict[str, Drift]:
        operators = (*((ADMINISTRATOR,) if self.has_policy else ()), *((MOVER,) if self.shards > 1 else ()))
        return {
            host: Drift(random.uniform(1_000, 100_000), 1 + random.uniform(-RATE_MAX, RATE_MAX))
            for host in (*self.nodes, *self.clients, *self.wild, *operators)
        }

    # One run.

    def run(self) -> History:
        """From the first start to the last close."""
        collecting = gc.isenabled()
        # What is collected when is no part of a history, and costs more than it gives here.
        gc.disable()
        try:
            self._run()
            return self._told()
        finally:
            self._bury()
            if collecting:
                gc.enable()

    def _run(self) -> None:
        for node in self.nodes:
            self.scheduler.after(self._random(node).random() * 0.5, self.start_node, node)
        for client in self.clients:
            self.scheduler.after(1 + self._random(client).random() * 3, self.start_client, client)
        for host in self.wild:
            self.scheduler.after(2 + self._random(host).random() * 3, self._start_wild, host)
        if self.has_policy:
            self.scheduler.after(2, self._start_administrator)
        if self.shards > 1:
            self.scheduler.after(4, self._start_mover)
        self.scheduler.after(3, self.nemesis.begin)
        if self._sets_calendars:
            self._calendars.begin_setting()
        self._look()
        self._go_on(self._chaos_s)
        self._heal()
        ttl_s = max(self.plan.habits.ttls_s)
        self._go_on_until(
            QUIET_TTLS * ttl_s + 2 * self.plan.habits.connect_s, lambda: self._all(lambda p: p.is_idle)
        )
        self.history.busy = tuple(p.name for p in self._programs.values() if not p.is_idle)
        if not self.history.busy:
            self.history.idle_ns = self.scheduler.now_ns
        self._go_on(SETTLE_S)
        self.history.resting_ns = self.scheduler.now_ns
        self.history.living = tuple(program.name for program in self._programs.values())
        self._close()

    def _look(self) -> None:
        """See now and then who trusts what, also when nothing is stored."""
        self.notes.look()
        self.scheduler.after(LOOK_EVERY_S, self._look)

    def _heal(self) -> None:
        self.nemesis.end()
        if self._administrator is not None:
            self._administrator.process.do(self._administrator.stop)
        if self._mover is not None:
            self._mover.process.do(self._mover.stop)
        if self.wild:
            self._stay_calm()
        self.history.healed_ns = self.scheduler.now_ns
        self.say("world", "all faults are over")
        for program in self._programs.values():
            program.process.do(program.stop)

    def _stay_calm(self) -> None:
        """Let everybody go on without faults, beside the wild clients; then those are gone."""
        # A client that an answer takes too long to reach goes elsewhere, and rightly so.
        self.network.weather = self.plan.weather._replace(spike_share=0.0)
        ttl_s = max(self.plan.habits.ttls_s)
        self._go_on(CALM_AFTER_S + 2 * ttl_s)
        self.history.calm_ns = self.scheduler.now_ns
        self._go_on(2 * ttl_s)
        self.history.calm_until_ns = self.scheduler.now_ns
        self.network.weather = self.plan.weather
        for rogue in self._rogues:
            rogue.process.kill()
            self.network.on_killed(rogue.process, silently=False)

    def _close(self) -> None:
        for program in self._programs.values():
            program.process.do(program.close)
        self._go_on_until(3 * self.plan.habits.connect_s, lambda: self._all(lambda p: p.is_closed))
        if self._all(lambda p: p.is_closed):
            self.history.closed_ns = self.scheduler.now_ns
        # Sessions of those that were killed run out by themselves.
        self._go_on(2 * max(self.plan.habits.ttls_s) + 2)

    def _all(self, what: Callable[[Program], bool]) -> bool:
        return all(what(program) for program in self._programs.values())

    def _go_on(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now_ns + int(seconds * SECOND))

    def _go_on_until(self, seconds_max: float, what: Callable[[], bool]) -> None:
        until_ns = self.scheduler.now_ns + int(seconds_max * SECOND)
        while not what() and self.scheduler.now_ns < until_ns:
            self._go_on(0.1)

    def _told(self) -> History:
        history = self.history
        history.asks, history.holds = self.notes.asks, self.notes.holds
        history.rates = {node: self._drifts[node].rate for node in self.nodes}
        for shard, (part, store) in enumerate(zip((history, *history.beside), self.stores, strict=True)):
            part.stored, part.leads, part.snapshots = store.log, store.leads, store.snapshots
            for node, server in self._servers.items():
                machine = server.machine(shard)
                if machine is not None and server.process.alive:
                    part.replicas.append(Replicated(node, machine.position, machine.state_hash()))
        return history

    def _bury(self) -> None:
        self._is_over = True
        self.scheduler.leave()
        operators = [each for each in (self._administrator, self._mover) if each is not None]
        lives = [*self._dead, *self._servers.values(), *self._programs.values(), *self._rogues, *operators]
        for life in lives:
            life.process.kill()
        for hold in self.notes.joint:
            hold._grant.ending = hold._grant.ending or "the run is over"
        for life in lives:
            if isinstance(life, Program):
                for protocol in life.protocols():
                    protocol.unusable = "the run is over"
                    for grant in protocol.session.holds.values():
                        grant.ending = "the run is over"
            life.process.bury()

    # Processes.

    def _process(self, host: str) -> Process:
        process = Process(self.scheduler, host, self._drifts[host], self._complain)
        process.loop.network = self.network
        return process

    def start_node(self, node: str) -> None:
        server = self._servers.get(node)
        if server is not None and server.process.alive:
            if server.is_to_stop:
                # Stopped while it was paused, it has not come to it yet: it is started when it has.
                self.scheduler.after(1.0, self.start_node, node)
            return
        if server is not None:
            self._dead.append(server)
        process = self._process(node)
        server = self._servers[node] = NodeProcess(process, self._making, self._on_exit)
        self.say(node, "starts")
        process.do(self._spawn, process, server.run())

    def start_client(self, client: str) -> None:
        if client in self._programs:
            self._dead.append(self._programs[client])
        life = self._lives[client] = self._lives.get(client, 0) + 1
        process = self._process(client)
        name = f"{client}.{life}"
        url = f"fencehold://{','.join(f'{node}:{PORT}' for node in self.nodes)}"
        random = self._random(name)
        program = Program(
            name, process, url, self.plan.habits, random, self.notes, lambda text: self.say(name, text)
        )
        self._programs[client] = program
        self.say(name, f"starts with a ttl of {program.ttl_s} s and a grace of {program.grace_s} s")
        process.do(self._spawn, process, program.run())

    def _start_wild(self, host: str) -> None:
        process, random = self._process(host), self._random(f"wild {host}")

        def note(text: str) -> None:
            self.say(host, text)

        if host == "w":
            ttl_s, groups = min(self.plan.habits.ttls_s), self.plan.habits.groups
            rogue: Flooder | Babbler = Flooder(
                host, process, self.nodes, ttl_s, random, note, shards=self.shards, groups=groups
            )
        else:
            rogue = Babbler(process, self.nodes, random, note)
        self._rogues.append(rogue)
        self.history.wild += (host,)
        process.do(self._spawn, process, rogue.run())

    def _start_administrator(self) -> None:
        process, random = self._process(ADMINISTRATOR), self._random("administrator")

        def begin() -> None:
            administrator = Administrator(
                process,
                self.nodes,
                self.clients,
                random,
                lambda text: self.say(ADMINISTRATOR, text),
                others=self.wild,
                operators=(MOVER,) if self.shards > 1 else (),
                shards=self.shards,
                groups=self.plan.habits.groups,
            )
            self._administrator = administrator
            self._spawn(process, administrator.run())

        process.do(begin)

    def _start_mover(self) -> None:
        process, random = self._process(MOVER), self._random("mover")

        def begin() -> None:
            mover = self._mover = Mover(
                process,
                self.nodes,
                random,
                lambda text: self.say(MOVER, text),
                shards=self.shards,
                groups=self.plan.habits.groups,
                on_move=self._on_move,
            )
            self._spawn(process, mover.run())

        process.do(begin)

    def _on_move(self) -> None:
        """Slots begin to move: often something happens to a node in the middle of it."""
        self.nemesis.strike_soon()

    def _spawn(self, process: Process, coroutine: object) -> None:
        task = process.spawn(coroutine, "main")  # type: ignore[arg-type]

        def on_done(done: object) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                process.complain(f"ended with {error!r}")

        task.add_done_callback(on_done)

    def _on_exit(self, server: NodeProcess, why: str) -> None:
        """A node has ended by itself; whoever runs it starts it again, unless it was to stop."""
        if not server.process.alive:
            return
        node = server.process.host
        self.say(node, f"ends: {why}")
        if why != "stopped":
            self.history.complaints.append(f"{node}: a node ended with {why}")
        server.process.kill()
        self.network.on_killed(server.process, silently=False)
        if not server.stopping:
            self.scheduler.after(1.0, self.start_node, node)

    def _process_of(self, host: str) -> Process | None:
        life = self._servers.get(host) or self._programs.get(host)
        return None if life is None or not life.process.alive else life.process

    def leader(self, shard: int = 0) -> str:
        """Who takes itself for the leader of a shard; the one of the newest epoch, if several do."""
        leading = [server for server in self._servers.values() if server.leads(shard)]
        if not leading:
            return ""
        return max(leading, key=lambda server: server.node(shard).epoch).process.host  # type: ignore[union-attr]

    # What the nemesis does.

    def kill(self, host: str, *, silently: bool) -> bool:
        process = self._process_of(host)
        if process is None:
            return False
        self.tell_fault("kill", f"{host}{' silently' if silently else ''}{self._as_leader(host)}")
        process.kill()
        self.network.on_killed(process, silently=silently)
        if host in self._programs:
            self.notes.forget(self._programs[host].name)
        return True

    def pause(self, host: str) -> bool:
        process = self._process_of(host)
        if process is None or process.stopped:
            return False
        self.tell_fault("pause", f"{host}{self._as_leader(host)}")
        process.stop()
        return True

    def go_on(self, host: str) -> None:
        process = self._process_of(host)
        if process is not None and process.stopped:
            self.say(host, "goes on")
            process.go_on(self._random(f"waking {self.scheduler.now_ns}"))

    def ask_to_stop(self, node: str) -> bool:
        process = self._process_of(node)
        if process is None or self._servers[node].stopping:
            return False
        self.tell_fault("stop", f"{node}{self._as_leader(node)}")
        self._servers[node].is_to_stop = True
        process.do(self._servers[node].stop)
        return True

    def bears_cuts(self, client: str) -> bool:
        program = self._programs.get(client)
        return program is not None and program.process.alive and program.grace_s >= program.ttl_s

    def cut(self, client: str) -> None:
        for node in self.nodes:
            for line in self.network.lines(client, node):
                self.tell_fault("cut", f"{client}-{node}")
                self.network.cut(line)

    def all_ways(self, host: str) -> list[Way]:
        others = [other for other in (*self.nodes, *self.clients, *self.wild, STORE) if other != host]
        return [(host, other) for other in others] + [(other, host) for other in others]

    # What is told.

    def tell_fault(self, kind: str, what: str) -> None:
        self.history.faults.append(Fault(self.scheduler.now_ns, kind, what))
        self.say("nemesis", f"{kind} {what}")

    def _as_leader(self, host: str) -> str:
        led = [shard for shard in range(self.shards) if host == self.leader(shard)]
        if self.shards == 1:
            return ", the leader" if led else ""
        return f", the leader of {' and '.join(map(str, led))}" if led else ""

    def _complain(self, what: str) -> None:
        if not self._is_over:
            self.history.complaints.append(f"at {self.scheduler.now_s:.6f} {what}")
            self.say("complaint", what)

    def say(self, who: str, text: str) -> None:
        if self._say is not None:
            self._say(f"{self.scheduler.now_s:12.6f} {who:10} {text}")

    def _tap(self, server: Process, client: Process) -> Tap | None:
        if client.host == "x":
            # What it says is nothing that could be overheard.
            return None
        return Tap(server.host, lambda: self.scheduler.now_ns, self._on_said)

    def _on_said(self, said: Said) -> None:
        part = self.history.beside[said.shard - 1] if said.shard else self.history
        part.said.append(said)
        if self._say is not None:
            words = b" ".join(said.words).decode(errors="replace") if said.words else "push"
            self.say(said.node, f"s{said.session} {words[:120]} -> {str(said.reply)[:160]}")
