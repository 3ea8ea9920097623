"""Failover: the leader is killed, stopped or paused under load, over and over, and each time another goes on.

``python -m tests.robustness.failover 30 --fault kill`` does it thirty times and says how long it took; the tests
do it a few times. After each round the node that had the fault must stand by again before the next one begins.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rig.nodes import FenceholdNode
from tests.robustness.checker import violations
from tests.robustness.history import Claim
from tests.robustness.load import Shape
from tests.robustness.stage import Stage, staged
from tests.robustness.woken import OldFriends

FAULTS = ("kill", "stop", "pause")
P50_S_MAX, WORST_S_MAX = 1.5, 3.0
PAUSE_S = 10.0


class Round(NamedTuple):
    """What one fault did. Seconds count from the signal."""

    fault: str
    node: str
    epoch: int
    """Of the next leader."""
    first_grant_s: float
    """Until the first client that asked after the fault was granted."""
    each_client_s: tuple[float, ...]
    """Until each of the clients was, in their order."""
    silence_s: float
    """The longest time without any grant around the fault."""


class Run(NamedTuple):
    """All rounds, and what was wrong."""

    rounds: list[Round]
    grants: int
    wrong: list[str]


def fail_over(
    folder: Path,
    fault: str,
    rounds: int,
    *,
    pause_s: float = PAUSE_S,
    shape: Shape | None = None,
    seed: int = 0,
    say: Callable[[Round], None] = lambda _: None,
) -> Run:
    """Make so many faults under load."""
    with staged(folder, shape=shape, seed=seed) as stage:
        done: list[Round] = []
        wrong: list[str] = []
        for number in range(rounds):
            stage.nodes.await_settled()
            stage.await_traffic()
            round_, found = _round(stage, fault, number, pause_s)
            done.append(round_)
            wrong += found
            say(round_)
        stage.load.halt()
        stage.load.read_all()
        wrong += violations(stage.load.history)
        return Run(done, sum(1 for _ in stage.load.history.granted()), wrong)


def _round(stage: Stage, fault: str, number: int, pause_s: float) -> tuple[Round, list[str]]:
    node = stage.nodes.leader()
    epoch = node.facts()["epoch"]
    friends = OldFriends(node, str(number)) if fault == "pause" else None
    fault_at = time.monotonic()
    _strike(node, fault)
    if friends is not None:
        friends.speak()
    claims = stage.load.ask(f"{fault}:{number}")
    stage.load.read_all()
    next_leader = stage.nodes.leader()
    wrong = _told_wrong(node, friends, fault_at + pause_s - time.monotonic()) if friends is not None else []
    wrong += _ended_wrong(node, fault)
    silence_s = stage.load.history.grants.longest_gap(fault_at, time.monotonic()).seconds
    next_epoch = next_leader.facts()["epoch"]
    if next_epoch <= epoch:
        wrong.append(f"round {number}: {next_leader.name} leads in epoch {next_epoch}, after epoch {epoch}")
    _mend(node, fault)
    return Round(fault, node.name, next_epoch, *_times(claims, fault_at), silence_s), wrong


def _strike(node: FenceholdNode, fault: str) -> None:
    if fault == "kill":
        node.kill()
    elif fault == "pause":
        node.pause()
    else:
        # Not waited for: what is asked while it stops must not fail either.
        os.kill(node.process.pid, signal.SIGTERM)


def _told_wrong(node: FenceholdNode, friends: OldFriends, left_s: float) -> list[str]:
    """What a paused leader said after it woke up, and should not have."""
    time.sleep(max(0.0, left_s))
    node.resume()
    return [f"{node.name} woke up and said {message!r}" for message in friends.heard()]


def _ended_wrong(node: FenceholdNode, fault: str) -> list[str]:
    if fault != "stop":
        return []
    # Not told twice: a second SIGTERM may find a process that has stopped, and only has to end.
    status = node.process.wait()
    return [f"{node.name} was told to stop and ended with {status}: {node.log[-500:]}"] if status else []


def _mend(node: FenceholdNode, fault: str) -> None:
    if fault != "pause":
        node.start()


def _times(claims: list[Claim], fault_at: float) -> tuple[float, tuple[float, ...]]:
    taken = tuple(claim.granted_at - fault_at for claim in claims if claim.granted_at is not None)
    return min(taken, default=float("inf")), taken


def figures(rounds: list[Round]) -> dict[str, float]:
    """What is said of many rounds, in seconds."""
    first = [round_.first_grant_s for round_ in rounds]
    each = [taken for round_ in rounds for taken in round_.each_client_s]
    silences = [round_.silence_s for round_ in rounds]
    return {
        "first_grant_p50_s": statistics.median(first),
        "first_grant_worst_s": max(first),
        "each_client_p50_s": statistics.median(each),
        "each_client_worst_s": max(each),
        "silence_p50_s": statistics.median(silences),
        "silence_worst_s": max(silences),
    }


def missed(fault: str, found: dict[str, float]) -> list[str]:
    """Bars that were not reached. A leader that stops answers until the next one does: there is no bar for it."""
    if fault == "stop":
        return []
    bars = {"first_grant_p50_s": P50_S_MAX, "first_grant_worst_s": WORST_S_MAX}
    return [f"{name} is {found[name]:.2f}, more than {bar}" for name, bar in bars.items() if found[name] > bar]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.failover", description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=30)
    parser.add_argument("--fault", choices=FAULTS, default="kill")
    parser.add_argument("--pause", type=float, default=PAUSE_S, metavar="SECONDS", help="how long a pause lasts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args(arguments)

    def say(round_: Round) -> None:
        sys.stderr.write(
            f"{round_.fault} {round_.node}: first new grant after {round_.first_grant_s:.3f} s, for every client "
            f"after {max(round_.each_client_s):.3f} s; none for {round_.silence_s:.3f} s\n"
        )

    # On the disk of the working tree: what is in memory would not be synced.
    with tempfile.TemporaryDirectory(prefix=".robustness-", dir=Path.cwd()) as folder:
        run = fail_over(Path(folder), given.fault, given.rounds, pause_s=given.pause, seed=given.seed, say=say)
    found = figures(run.rounds)
    wrong = run.wrong + missed(given.fault, found)
    report = {"fault": given.fault, "rounds": len(run.rounds), "grants": run.grants, **found, "wrong": wrong}
    for name, value in found.items():
        sys.stdout.write(f"{name:<24}{value:8.3f}\n")
    sys.stdout.write(f"{len(run.rounds)} × {given.fault}, {run.grants} grants; {len(wrong)} things wrong\n")
    sys.stdout.writelines(f"  {line}\n" for line in wrong[:20])
    if given.json is not None:
        each = [round_._asdict() for round_ in run.rounds]
        given.json.write_text(json.dumps(report | {"each": each}, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
