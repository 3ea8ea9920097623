"""The lock machine by itself: commands applied per second, what half a million holds cost, and long queues.

Commands are decoded from the bytes a journal keeps, as on a node, before the clock starts: what is measured is
`Machine.apply`. Every acquire asks for memory of its answer, names its owner
and is acknowledged by the next request, as the SDK does.
"""

import gc
import itertools
import os
import random
import statistics
from collections.abc import Iterator
from time import perf_counter, thread_time

from bench.contest import Benchmark, Call, Contest, Contestant
from bench.musts import at_least, at_most, median
from bench.samples import Figures
from fencehold.core.commands import Acquire, Cancel, Command, Entry, OpenSession, Release
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.journal.codec import decode, encode

FEW, MANY = 1_000, 500_000
SESSIONS = 500
BATCH = 256
"""Commands of one entry: what group commit gathers under load."""
TURN = 20
"""Entries applied before the other has its turn."""
CHURN = 250_000
"""Names that come and go, so that a single table of all of them would have been rebuilt."""
SHORT, LONG = 10, 10_000
"""Waiters in a queue."""


class Load:
    """A machine, and the entries that its clients would make next."""

    def __init__(self, held: int, *, scattered: bool = False) -> None:
        """`scattered`: sessions are drawn, so some have more holds than others; else all have as many."""
        self.machine = Machine()
        self._drawn = random.Random(held) if scattered else None
        self.longest_s = 0.0
        """What an entry took at the most, in processor time: others use the machine, too."""
        self._requests = [0] * (SESSIONS + 1)
        self._names = itertools.count()
        self._apply(Entry(1, tuple(OpenSession(30_000, 1_000, meta="{}") for _ in range(SESSIONS))))
        for start in range(0, held, BATCH):
            asks = (self._acquire(f"held:{i:08}", i) for i in range(start, min(start + BATCH, held)))
            self._apply(Entry(1, tuple(asks)))

    def _apply(self, entry: Entry) -> None:
        read = decode(encode(entry))
        started = thread_time()
        self.machine.apply(self.machine.position + 1, read)
        self.longest_s = max(self.longest_s, thread_time() - started)

    def churn(self, commands: int) -> None:
        """Let names come and go beside those that stay: tables are rebuilt now and then."""
        for data in self.batches(commands):
            self._apply(decode(data))

    def _next_request(self, session: int) -> int:
        self._requests[session] += 1
        return self._requests[session]

    def _acquire(self, name: str, turn: int) -> Acquire:
        session = (turn if self._drawn is None else self._drawn.randrange(SESSIONS)) % SESSIONS + 1
        request = self._next_request(session)
        return Acquire(session, (name,), request, request - 1, f"task-{turn % 16}")

    def _pair(self, fence: int) -> tuple[Command, Command]:
        turn = next(self._names)
        acquire = self._acquire(f"wallet:user_{turn:08}", turn)
        request = self._next_request(acquire.session)
        return acquire, Release(acquire.session, acquire.names, fence, request, request - 1)

    def batches(self, commands: int) -> Iterator[bytes]:
        """Entries of acquires and releases, each name once, as a journal keeps them."""
        fences = itertools.count(self.machine.fence + 1)
        for _ in range(commands // BATCH):
            pairs = (self._pair(next(fences)) for _ in range(BATCH // 2))
            yield encode(Entry(1, tuple(itertools.chain.from_iterable(pairs))))


class Throughput(Contestant):
    """Applies acquires and releases beside few names that stay held, and beside many, by turns of milliseconds.

    What else the machine does comes and goes within a round, so the two are compared turn by turn.
    """

    def __init__(self, turns: int) -> None:
        super().__init__("acquire + release")
        self._turns = turns

    def setup(self) -> None:
        self._few, self._many = Load(FEW), Load(MANY)

    def round(self) -> Figures:
        few: list[float] = []
        many: list[float] = []
        for _ in range(self._turns):
            few.append(_turn(self._few))
            many.append(_turn(self._many))
        return {
            "commands_per_s_at_1,000": statistics.median(few),
            "commands_per_s_at_500,000": statistics.median(many),
            "ratio": statistics.median(b / a for a, b in zip(few, many, strict=True)),
        }


def _turn(load: Load) -> float:
    """Commands applied per second, over a turn of them."""
    entries = [decode(data) for data in load.batches(BATCH * TURN)]
    machine = load.machine
    started = perf_counter()
    for entry in entries:
        machine.apply(machine.position + 1, entry)
    return BATCH * TURN / (perf_counter() - started)


class Line:
    """A queue of owners that wait for the same names, and one that holds a name others wait for and joins it."""

    def __init__(self, waiters: int, names: int = 1) -> None:
        limits = Limits(waiters_per_name_max=waiters + BATCH, holds_per_session_max=names * (waiters + BATCH))
        self._machine = Machine(limits)
        self._names = tuple(f"name:{i}" for i in range(names))
        self._request = 0
        self._apply(*[OpenSession(30_000)] * 3)
        self._apply(Acquire(1, self._names, owner="holder"))
        self._apply(*(Acquire(2, self._names, owner=f"task-{i}") for i in range(waiters)))
        for session, owner in ((3, "asker"), (1, "other"), (1, "third")):
            self._apply(Acquire(session, ("mine",), owner=owner))

    def _apply(self, *commands: Command) -> None:
        self._machine.apply(self._machine.position + 1, Entry(0, commands))

    def ask(self) -> float:
        """Seconds that a request takes which queues; it is withdrawn after that."""
        self._request += 1
        started = perf_counter()
        self._apply(Acquire(3, self._names[:1], self._request, self._request - 1, owner="asker"))
        took_s = perf_counter() - started
        self._apply(Cancel(3, self._request))
        return took_s


class Asks(Contestant):
    """Asks behind few waiters, behind many, and behind many that wait for 64 names each, by turns."""

    def __init__(self, turns: int) -> None:
        super().__init__("an ask behind others")
        self._turns = turns

    def setup(self) -> None:
        self._lines = Line(SHORT), Line(LONG), Line(1_000, 64)

    def round(self) -> Figures:
        asks = [[line.ask() for line in self._lines] for _ in range(self._turns)]
        short, long, wide = (statistics.median(took) * 1e6 for took in zip(*asks, strict=True))
        return {
            "behind_10_us": short,
            "behind_10,000_us": long,
            "behind_1,000_with_64_names_us": wide,
            "ratio": max(long, wide) / short,
        }


def memory() -> Figures:
    """What `MANY` holds cost a fresh process: memory, a full collection, the longest step of a snapshot."""
    gc.collect()
    before = _resident_bytes()
    load = Load(MANY, scattered=True)
    gc.collect()
    grown = _resident_bytes() - before
    started = perf_counter()
    gc.collect()
    collected_s = perf_counter() - started
    steps = _snapshot_steps(load)
    load.churn(2 * CHURN)
    return {
        "resident_mb": grown / 1e6,
        "bytes_per_hold": grown / MANY,
        "collection_ms": collected_s * 1e3,
        "snapshot_step_ms": max(steps) * 1e3,
        "snapshot_steps": len(steps),
        "snapshot_s": sum(steps),
        "longest_entry_ms": load.longest_s * 1e3,
    }


def _snapshot_steps(load: Load) -> list[float]:
    """How long each step of a snapshot took, with entries applied between the steps."""
    entries = [decode(data) for data in load.batches(BATCH * 64)]
    steps: list[float] = []
    started = perf_counter()
    snapshot = load.machine.snapshot()
    for _ in snapshot:
        steps.append(perf_counter() - started)
        if entries:
            load.machine.apply(load.machine.position + 1, entries.pop(0))
        started = perf_counter()
    return steps


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def build(quick: bool) -> Contest:
    """The contest."""
    both = Throughput(60 if quick else 200)
    asks = Asks(300 if quick else 2_000)
    holds = Call(f"{MANY:,} holds, a fresh process", memory, isolated=True)
    return Contest(
        contestants=[both, asks, holds],
        rounds=3 if quick else 7,
        warmups=0 if quick else 1,
        musts=[
            at_least(
                "applied at 1,000 names", median(both.name, "commands_per_s_at_1,000"), 100_000, "commands/s"
            ),
            at_least("applied at 500,000 names, times that", median(both.name, "ratio"), 0.8, "×"),
            at_most(
                "an ask behind 10,000, or 1,000 × 64 names, times one behind 10",
                median(asks.name, "ratio"),
                2,
                "×",
            ),
            at_most("resident growth for 500,000 holds", median(holds.name, "resident_mb"), 186, "MB"),
            at_most("a full garbage collection there", median(holds.name, "collection_ms"), 10, "ms"),
            at_most(
                "the longest entry while they come, and others come and go",
                median(holds.name, "longest_entry_ms"),
                5,
                "ms",
            ),
            at_most("the longest step of a snapshot of it", median(holds.name, "snapshot_step_ms"), 10, "ms"),
        ],
    )


BENCHMARK = Benchmark("machine", "the lock machine: commands per second, memory, snapshots", build)
