"""Runs: one seed from beginning to end, and many of them on several cores."""

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import NamedTuple

from tests.simulation.bugs import BUGS, planted
from tests.simulation.checking import check
from tests.simulation.history import History
from tests.simulation.story import Violation
from tests.simulation.world import CHAOS_S, World

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

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.simulated_s:.0f} s simulated, {self.faults} faults, {self.leads} epochs, "
            f"{self.asks} acquires, {self.grants} granted, {self.entries} entries, {self.answers} answers, "
            f"history {self.digest}, {self.cpu_s:.1f} s"
        )


def run(seed: int, bug: str = "", say: Callable[[str], None] | None = None, *, chaos_s: float = CHAOS_S) -> Run:
    """Run one seed, and check it."""
    began_s = time.process_time()
    with planted(next((each for each in BUGS if each.name == bug), None)):
        world = World(seed, say, chaos_s=chaos_s)
        try:
            history = world.run()
            violations = check(history)
        except Exception:
            # Of the simulation's own: it must not pass for a run that found nothing.
            history = world.history
            violations = [Violation("code", world.scheduler.now_ns, traceback.format_exc())]
        finally:
            # While the patches are in place: what is let go of may run code.
            gc.collect()
    return _told(history, violations, world.scheduler.now_s, time.process_time() - began_s)


def _told(history: History, violations: list[Violation], simulated_s: float, cpu_s: float) -> Run:
    grants = sum(ask.outcome == "granted" for ask in history.asks)
    faults = len(history.faults)
    void = ""
    if not violations and (grants < GRANTS_MIN or faults < FAULTS_MIN or len(history.leads) < LEADS_MIN):
        void = f"only {grants} grants, {faults} faults and {len(history.leads)} epochs"
    return Run(
        history.seed,
        history.digest(),
        tuple(violations),
        simulated_s,
        cpu_s,
        len(history.asks),
        grants,
        len(history.stored),
        len(history.leads),
        faults,
        len(history.said),
        void,
    )


def run_many(seeds: Iterable[int], jobs: int, bug: str = "") -> Iterator[Run]:
    """Run seeds on several cores, in about their order. Stop drawing from it to stop."""
    if jobs <= 1:
        for seed in seeds:
            yield run(seed, bug)
        return
    # Forked before anything else runs here; each worker is replaced now and then, so that none grows.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=200) as pool:
        under_way: set[Future[Run]] = set()
        try:
            for seed in seeds:
                under_way.add(pool.submit(run, seed, bug))
                if len(under_way) >= 2 * jobs:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from sorted((future.result() for future in done), key=lambda each: each.seed)
            while under_way:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from sorted((future.result() for future in done), key=lambda each: each.seed)
        finally:
            for future in under_way:
                future.cancel()
