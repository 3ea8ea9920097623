"""Runs: one seed from beginning to end, and many of them on several cores."""

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from itertools import count
from typing import NamedTuple

from tests.simulation.bugs import BUGS, planted
from tests.simulation.checking import Judged, judged
from tests.simulation.history import History
from tests.simulation.story import Violation
from tests.simulation.world import CHAOS_S, World, shards_of

GRANTS_MIN, FAULTS_MIN, LEADS_MIN = 10, 5, 2
"""With less, a run proves nothing."""


class Run(NamedTuple):
    """What came of a seed."""

    seed: int
    digest: str
    violations: tuple[Violation, ...]
    simulated_s: float
    cpu_s: float
    asks: int
    grants: int
    entries: int
    leads: int
    faults: int
    answers: int
    void: str
    """Why it proves nothing; empty if it does."""
    shards: int = 1
    moves: int = 0
    """Of slots."""
    struck: int = 0
    """Moves in the middle of which something failed."""
    joint: int = 0
    """Grants of names in several shards."""
    followed: int = 0
    """Times that a shard followed a policy of the first."""

    def __str__(self) -> str:
        moves = ""
        if self.shards > 1:
            moves = (
                f"{self.shards} shards, {self.moves} moves, {self.struck} with faults, {self.joint} joint grants, "
            )
            moves += f"{self.followed} policies followed, "
        return (
            f"seed {self.seed}: {self.simulated_s:.0f} s simulated, {self.faults} faults, {self.leads} epochs, "
            f"{self.asks} acquires, {self.grants} granted, {self.entries} entries, {self.answers} answers, "
            f"{moves}history {self.digest}, {self.cpu_s:.1f} s"
        )


def run(seed: int, bug: str = "", say: Callable[[str], None] | None = None, *, chaos_s: float = CHAOS_S) -> Run:
    """Run one seed, and check it."""
    began_s = time.process_time()
    with planted(next((each for each in BUGS if each.name == bug), None)):
        world = World(seed, say, chaos_s=chaos_s)
        try:
            history = world.run()
            found = judged(history)
        except Exception:
            # Of the simulation's own: it must not pass for a run that found nothing.
            history = world.history
            found = Judged([Violation("code", world.scheduler.now_ns, traceback.format_exc())], 0, 0)
        finally:
            # While the patches are in place: what is let go of may run code.
            gc.collect()
    return _told(history, found, world.scheduler.now_s, time.process_time() - began_s)


def _told(history: History, found: Judged, simulated_s: float, cpu_s: float) -> Run:
    grants = sum(ask.outcome == "granted" for ask in history.asks)
    faults, parts = len(history.faults), history.parts()
    void = ""
    if not found.violations and (grants < GRANTS_MIN or faults < FAULTS_MIN or len(history.leads) < LEADS_MIN):
        void = f"only {grants} grants, {faults} faults and {len(history.leads)} epochs"
    return Run(
        history.seed,
        history.digest(),
        tuple(found.violations),
        simulated_s,
        cpu_s,
        len(history.asks),
        grants,
        sum(len(part.stored) for part in parts),
        sum(len(part.leads) for part in parts),
        faults,
        sum(len(part.said) for part in parts),
        void,
        len(parts),
        found.moves,
        found.struck,
        sum(bool(held.fences) for held in history.holds),
        found.followed,
    )


def seeds_from(first: int, *, of_moves: bool = False) -> Iterator[int]:
    """All seeds from one on; or those in which slots move."""
    return (seed for seed in count(first) if not of_moves or shards_of(seed) > 1)


def run_many(seeds: Iterable[int], jobs: int, bug: str = "", chaos_s: float = CHAOS_S) -> Iterator[Run]:
    """Run seeds on several cores, in about their order. Stop drawing from it to stop."""
    if jobs <= 1:
        for seed in seeds:
            yield run(seed, bug, chaos_s=chaos_s)
        return
    # Forked before anything else runs here; each worker is replaced now and then, so that none grows.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=200) as pool:
        under_way: set[Future[Run]] = set()
        try:
            for seed in seeds:
                under_way.add(pool.submit(partial(run, chaos_s=chaos_s), seed, bug))
                if len(under_way) >= 2 * jobs:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from sorted((future.result() for future in done), key=lambda each: each.seed)
            while under_way:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from sorted((future.result() for future in done), key=lambda each: each.seed)
        finally:
            for future in under_way:
                future.cancel()
