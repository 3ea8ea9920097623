"""A storm: one fault after the other, drawn by lot, on nodes and on members of etcd, under load.

``python -m tests.robustness.storm 50 --seed 7`` makes fifty. A fault strikes at once or lasts a while, hits one
process or a node and a member together, and is mended before the next. Sessions outlive all of them, so no session
and no hold may be lost; a request may end with "not reached" or "don't know" where a fault lasts longer than it
waits.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rig.nodes import FenceholdNode
from tests.robustness.checker import violations
from tests.robustness.load import Shape
from tests.robustness.members import UNREACHED
from tests.robustness.stage import Stage, staged

SHAPE = Shape(ttl_s=60.0, grace_s=30.0)
PAUSE_S = (0.2, 6.0)
"""How long a pause lasts, at least and at most."""


class Fault(NamedTuple):
    """What was done, and how long grants stayed away then."""

    what: str
    silence_s: float
    failed: int
    """Requests that ended with an error meanwhile."""


class Storm:
    """Faults on one stage. Each returns what mends it."""

    def __init__(self, stage: Stage, lots: random.Random) -> None:
        self._stage = stage
        self._lots = lots

    def strike(self) -> Fault:
        """One fault, from a settled service to a settled service."""
        stage = self._stage
        stage.nodes.await_settled()
        stage.await_traffic()
        name, fault = self._lots.choice(self.faults())
        failures = _failures(stage)
        struck_at = time.monotonic()
        with ExitStack() as mending:
            fault(mending)
            time.sleep(self._lots.random() * 2)
        stage.etcd.restore()
        stage.nodes.await_settled()
        stage.load.ask(f"after:{struck_at}")
        stage.load.read_all()
        silence_s = stage.load.history.silence(struck_at, time.monotonic())
        return Fault(name, silence_s, _failures(stage) - failures)

    def faults(self) -> list[tuple[str, Callable[[ExitStack], None]]]:
        """All that may happen, by name."""
        return [
            ("kill the leader", lambda mending: self._kill(self._stage.nodes.leader(), mending)),
            ("kill a standby", lambda mending: self._kill(self._standby(), mending)),
            ("kill the leader, and the next", self._kill_two),
            ("kill all nodes", self._kill_all),
            ("stop the leader", lambda mending: self._stop(self._stage.nodes.leader(), mending)),
            ("pause the leader", lambda _: self._pause(self._stage.nodes.leader())),
            ("pause a standby", lambda _: self._pause(self._standby())),
            ("kill a member", lambda _: self._stage.etcd.kill(self._lots.randrange(3))),
            ("kill the leading member", lambda _: self._stage.etcd.kill(self._stage.etcd.leader())),
            ("pause the leading member", lambda _: self._pause_member()),
            ("kill the leader and the leading member", self._kill_both),
            ("kill two members", self._kill_majority),
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

    def _pause_member(self) -> None:
        index = self._stage.etcd.leader()
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


def _failures(stage: Stage) -> int:
    return sum(bool(claim.failure) for claim in stage.load.history.claims)


def storm(
    folder: Path, faults: int, seed: int, say: Callable[[Fault], None] = lambda _: None
) -> tuple[list[Fault], list[str]]:
    """So many faults; says what was wrong with all that clients saw, too."""
    with staged(folder, shape=SHAPE, seed=seed) as stage:
        weather = Storm(stage, random.Random(seed))
        done: list[Fault] = []
        for _ in range(faults):
            done.append(weather.strike())
            say(done[-1])
        stage.load.halt()
        stage.load.read_all()
        return done, violations(stage.load.history, UNREACHED)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.storm", description=__doc__)
    parser.add_argument("faults", type=int, nargs="?", default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)

    def say(fault: Fault) -> None:
        sys.stderr.write(f"{fault.what}: no grant for {fault.silence_s:.2f} s, {fault.failed} requests failed\n")

    with tempfile.TemporaryDirectory(prefix=".robustness-", dir=Path.cwd()) as folder:
        done, wrong = storm(Path(folder), given.faults, given.seed, say)
    sys.stdout.write(f"{len(done)} faults, {len(wrong)} things wrong\n")
    sys.stdout.writelines(f"  {line}\n" for line in wrong[:20])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
