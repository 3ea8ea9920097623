"""A storm: one fault after the other, drawn by lot, on nodes and on members of etcd, under load.

``python -m tests.robustness.storm 50 --seed 7`` makes fifty. A fault strikes at once or lasts a while, and is
mended before the next. It hits one process (``--faults single``), or now and then a node and a member together, or
so many that the service has to wait for them. No session and no hold may be lost; a request may end with "not
reached" or "don't know" where a fault lasts longer than it waits.

The time between grants is watched from the first to the last. Of each gap over the bar, and of each session or
hold that is lost, a report is written with what nodes, members, clients and the machine were like meanwhile: see
`recorder`. On a busy machine gaps are longer, and the report says for how long nobody was let run.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from fencehold.errors import FenceholdError
from rig.nodes import FenceholdNode
from tests.robustness.checker import violations
from tests.robustness.grants import Gap, distribution
from tests.robustness.history import Loss
from tests.robustness.load import Shape
from tests.robustness.members import UNREACHED
from tests.robustness.recorder import Recorder, load_of_machine
from tests.robustness.reports import sources_of, write_report
from tests.robustness.stage import Stage, staged

SHAPES = {
    "lasting": Shape(ttl_s=60.0, grace_s=30.0),
    "ordinary": Shape(ttl_s=30.0, grace_s=1.0, connect_timeout_s=5.0),
}
"""Sessions that outlive everything, and such as the SDK opens unless told otherwise."""
PAUSE_S = (0.2, 6.0)
"""How long a pause lasts, at least and at most."""
GAP_S_MAX = 5.0


class Kind(NamedTuple):
    """A fault that may happen. To strike is told how it is mended."""

    name: str
    strike: Callable[[ExitStack], None]
    is_single: bool = True
    """It hits one process."""
    is_outage: bool = False
    """There is no service before it is mended."""


class Fault(NamedTuple):
    """What was done, and what came of it."""

    what: str
    struck_at: float
    mended_at: float
    gap: Gap
    """The longest since the fault before."""
    excess_s: float
    """How much of it cannot be helped less: all, or what came after an outage was over."""
    late_s: float
    """The longest time in it in which the machine let nobody run."""
    failed: int
    """Requests that ended with an error meanwhile."""
    losses: tuple[Loss, ...]


class Storm:
    """Faults on one stage."""

    def __init__(self, stage: Stage, lots: random.Random, recorder: Recorder, *, single: bool = False) -> None:
        self._stage = stage
        self._lots = lots
        self._recorder = recorder
        self._kinds = [kind for kind in self.kinds() if kind.is_single or not single]
        self._watched_until = time.monotonic()
        self._failures = self._losses = 0

    def strike(self) -> Fault:
        """One fault, from a settled service to a settled service."""
        stage, note = self._stage, self._recorder.note
        stage.nodes.await_settled()
        stage.await_traffic()
        kind = self._lots.choice(self._kinds)
        struck_at = time.monotonic()
        note("storm", kind.name)
        with ExitStack() as mending:
            kind.strike(mending)
            time.sleep(self._lots.random() * 2)
        stage.etcd.restore()
        mended_at = time.monotonic()
        note("storm", "mended")
        stage.nodes.await_settled()
        stage.load.ask(f"after:{struck_at}")
        self._read_all()
        return self._told(kind, struck_at, mended_at)

    def _read_all(self) -> None:
        try:
            self._stage.load.read_all()
        except FenceholdError as error:
            # Of a service that has settled: it is for the checker that some readings are missing, too.
            self._recorder.note("storm", f"a reading failed: {error!r}")
            self._stage.load.history.failures += 1

    def _told(self, kind: Kind, struck_at: float, mended_at: float) -> Fault:
        history, since, now = self._stage.load.history, self._watched_until, time.monotonic()
        gap = history.grants.longest_gap(since, now)
        excess_s = gap.until - max(gap.since, mended_at) if kind.is_outage else gap.seconds
        failed, losses = history.failures - self._failures, tuple(history.losses[self._losses :])
        self._watched_until, self._failures, self._losses = now, history.failures, len(history.losses)
        late_s = self._recorder.late_s(gap.since, gap.until)
        return Fault(kind.name, struck_at, mended_at, gap, max(0.0, excess_s), late_s, failed, losses)

    def kinds(self) -> list[Kind]:
        """All that may happen."""
        etcd, leader = self._stage.etcd, self._stage.nodes.leader
        return [
            Kind("kill the leader", lambda mending: self._kill(leader(), mending)),
            Kind("kill a standby", lambda mending: self._kill(self._standby(), mending)),
            Kind("stop the leader", lambda mending: self._stop(leader(), mending)),
            Kind("pause the leader", lambda _: self._pause(leader())),
            Kind("pause a standby", lambda _: self._pause(self._standby())),
            Kind("kill a member", lambda _: etcd.kill(self._lots.randrange(3))),
            Kind("kill the leading member", lambda _: etcd.kill(etcd.leader())),
            Kind("pause a member", lambda _: self._pause_member(self._lots.randrange(3))),
            Kind("pause the leading member", lambda _: self._pause_member(etcd.leader())),
            Kind("kill the leader, and the next", self._kill_two, is_single=False),
            Kind("kill the leader and the leading member", self._kill_both, is_single=False),
            Kind("kill all nodes", self._kill_all, is_single=False, is_outage=True),
            Kind("kill two members", self._kill_majority, is_single=False, is_outage=True),
        ]

    def _standby(self) -> FenceholdNode:
        return self._lots.choice(self._stage.nodes.standbys())

    def _kill(self, node: FenceholdNode, mending: ExitStack) -> None:
        node.kill()
        mending.callback(node.start)

    def _kill_two(self, mending: ExitStack) -> None:
        for _ in range(2):
            self._kill(self._stage.nodes.leader(), mending)

    def _kill_all(self, mending: ExitStack) -> None:
        for node in self._stage.nodes.nodes:
            self._kill(node, mending)

    def _stop(self, node: FenceholdNode, mending: ExitStack) -> None:
        status = node.stop()
        assert status == 0, f"{node.name} was told to stop and ended with {status}: {node.log[-500:]}"
        mending.callback(node.start)

    def _pause(self, node: FenceholdNode) -> None:
        node.pause()
        time.sleep(self._lots.uniform(*PAUSE_S))
        node.resume()

    def _pause_member(self, index: int) -> None:
        self._stage.etcd.pause(index)
        time.sleep(self._lots.uniform(*PAUSE_S))
        self._stage.etcd.resume(index)

    def _kill_both(self, mending: ExitStack) -> None:
        self._stage.etcd.kill(self._stage.etcd.leader())
        self._kill(self._stage.nodes.leader(), mending)

    def _kill_majority(self, _: ExitStack) -> None:
        for index in self._lots.sample(range(3), 2):
            self._stage.etcd.kill(index)
        time.sleep(self._lots.uniform(*PAUSE_S))


def storm(
    folder: Path,
    faults: int,
    seed: int,
    *,
    shape: Shape = SHAPES["lasting"],
    single: bool = False,
    gap_s_max: float = GAP_S_MAX,
    reports: Path | None = None,
    say: Callable[[Fault], None] = lambda _: None,
) -> tuple[list[Fault], list[str]]:
    """So many faults; says what was wrong with all that clients saw, too."""
    with staged(folder, shape=shape, seed=seed, etcd_flags=("--log-level", "info")) as stage:
        with Recorder(sources_of(stage)) as recorder:
            weather = Storm(stage, random.Random(seed), recorder, single=single)
            done: list[Fault] = []
            try:
                for number in range(faults):
                    done.append(weather.strike())
                    say(done[-1])
                    if reports is not None and wrong_with(done[-1], gap_s_max):
                        file = reports / f"{seed}-{number}.txt"
                        write_report(file, stage, recorder, str(done[-1]), done[-1].gap)
            except BaseException as error:
                if reports is not None:
                    now = time.monotonic()
                    write_report(reports / f"{seed}-end.txt", stage, recorder, repr(error), Gap(now - 60, now))
                raise
        stage.load.halt()
        stage.load.read_all()
        return done, violations(stage.load.history, UNREACHED)


def wrong_with(fault: Fault, gap_s_max: float) -> list[str]:
    """What must not have come of a fault."""
    wrong = [f"{loss.client} lost {loss.what}" for loss in fault.losses]
    if fault.excess_s > gap_s_max:
        wrong.append(f"{fault.what}: nothing was granted for {fault.gap.seconds:.1f} s")
    return wrong


def figures(faults: list[Fault]) -> dict[str, tuple[int, float, float]]:
    """By the name of the fault: how many there were, and the median and the longest gap."""
    gaps: defaultdict[str, list[float]] = defaultdict(list)
    for fault in faults:
        gaps[fault.what].append(fault.gap.seconds)
    return {what: (len(each), statistics.median(each), max(each)) for what, each in sorted(gaps.items())}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.storm", description=__doc__)
    parser.add_argument("faults", type=int, nargs="?", default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", choices=("all", "single"), default="all", dest="kinds", help="which (all)")
    parser.add_argument("--sessions", choices=tuple(SHAPES), default="lasting", help="of what shape (lasting)")
    parser.add_argument("--gap", type=float, default=GAP_S_MAX, metavar="SECONDS", help="the bar (%(default)s)")
    parser.add_argument("--reports", type=Path, help="write a report of each gap and loss into this folder")
    parser.add_argument("--json", type=Path, help="write all faults to this file")
    given = parser.parse_args(arguments)
    count = iter(range(1, given.faults + 1))

    def say(fault: Fault) -> None:
        late = f", of which the machine let nobody run for {fault.late_s:.1f} s" if fault.late_s > 0.5 else ""
        lost = f"; {len(fault.losses)} losses" if fault.losses else ""
        sys.stderr.write(
            f"{next(count)}/{given.faults} {fault.what}: no grant for {fault.gap.seconds:.2f} s{late}, "
            f"{fault.failed} requests failed{lost}; {load_of_machine()}\n"
        )

    with tempfile.TemporaryDirectory(prefix=".robustness-", dir=Path.cwd()) as folder:
        done, wrong = storm(
            Path(folder),
            given.faults,
            given.seed,
            shape=SHAPES[given.sessions],
            single=given.kinds == "single",
            gap_s_max=given.gap,
            reports=given.reports,
            say=say,
        )
    wrong = [line for fault in done for line in wrong_with(fault, given.gap)] + wrong
    if given.json is not None:
        given.json.write_text(json.dumps([fault._asdict() for fault in done], indent=1) + "\n")
    sys.stdout.write("\n".join(_summed(done, wrong)) + "\n")
    return 1 if wrong else 0


def _summed(done: list[Fault], wrong: list[str]) -> list[str]:
    """All of it in a few lines."""
    lines = [f"{len(done)} faults, {sum(len(fault.losses) for fault in done)} losses, {len(wrong)} things wrong"]
    lines += [f"  gap {length}: {number}" for length, number in distribution(f.gap.seconds for f in done).items()]
    lines += [
        f"  {what}: {number} times, median gap {middle:.2f} s, longest {longest:.2f} s"
        for what, (number, middle, longest) in figures(done).items()
    ]
    return lines + [f"  wrong: {line}" for line in wrong[:20]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
