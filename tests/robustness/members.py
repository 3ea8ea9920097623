"""Members of etcd are killed under load: with a majority left the service goes on; without one it refuses.

``python -m tests.robustness.members`` kills each of three in turn, then two of five at once, then two of three,
and says how long grants stayed away; the tests do the same.

Without a majority nothing is granted, and whoever asks is told so: by a node within `REFUSAL_S_MAX`, by the SDK
when its connect timeout is over. Who holds something keeps it until its own deadline. It comes back by itself.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rig.nodes import FenceholdNode
from tests.robustness.asking import REFUSAL_S_MAX, Told, ask_while
from tests.robustness.checker import Excused, violations
from tests.robustness.history import Claim
from tests.robustness.load import Shape
from tests.robustness.stage import Stage, staged

AFTER_S = 2.5
"""How long grants are watched after a member was killed."""
OUTAGE_S = 4.0
OUTAGE = Shape(ttl_s=30.0, connect_timeout_s=2.0)
"""Sessions outlive the outage, so none may end and no hold may be lost; requests do not."""
UNREACHED = Excused(frozenset({"Unavailable", "OutcomeUnknown"}))


class Loss(NamedTuple):
    """Members that were killed at once while a majority was left."""

    members: int
    killed: tuple[int, ...]
    had_leader: bool
    silence_s: float
    """The longest time without a grant."""
    each_client_s: tuple[float, ...]
    """From the kill until each client was granted what it asked for then."""


class Outage(NamedTuple):
    """A majority that was killed."""

    refused: int
    """Commands that nodes refused."""
    refusal_s_max: float
    sdk_failed: int
    """Requests through the SDK that were asked at the beginning and given up."""
    sdk_failed_s_max: float
    back_after_s: float
    """From when the members were started again to the first grant."""


class Found(NamedTuple):
    """What a run showed, and what of it is wrong."""

    losses: list[Loss]
    outages: list[Outage]
    wrong: list[str]


def lose_members(stage: Stage, *killed: int) -> Loss:
    """Kill members while the others are a majority; they are back at the end."""
    etcd, load = stage.etcd, stage.load
    stage.nodes.await_settled()
    stage.await_traffic()
    had_leader = etcd.leader() in killed
    killed_at = time.monotonic()
    for index in killed:
        etcd.kill(index)
    claims = load.ask(f"killed:{killed_at}")
    load.read_all()
    time.sleep(max(0.0, killed_at + AFTER_S - time.monotonic()))
    silence_s = load.history.grants.longest_gap(killed_at, time.monotonic()).seconds
    etcd.restore()
    taken = tuple(claim.granted_at - killed_at for claim in claims if claim.granted_at is not None)
    return Loss(etcd.size, killed, had_leader, silence_s, taken)


def lose_majority(stage: Stage) -> tuple[Outage, list[str]]:
    """Kill two of three, see everybody refuse, and bring the two back. Says what was wrong, too."""
    stage.nodes.await_settled()
    stage.await_traffic()
    with ThreadPoolExecutor() as threads:
        for index in (0, 1):
            stage.etcd.kill(index)
        killed_at = time.monotonic()
        asking = [threads.submit(_ask_until, node, killed_at + OUTAGE_S) for node in stage.nodes.nodes]
        claims = stage.load.ask("outage")
        told = [each for answers in asking for each in answers.result()]
    wrong = [f"a node without a majority said {each.message}" for each in told if not each.is_refusal]
    wrong += _granted_since(stage, killed_at)
    restored_at = time.monotonic()
    stage.etcd.restore()
    stage.nodes.await_settled()
    stage.await_traffic()
    stage.load.read_all()
    outage = Outage(
        refused=len(told),
        refusal_s_max=max(each.seconds for each in told),
        sdk_failed=sum(claim.failed_at is not None for claim in claims),
        sdk_failed_s_max=max(_failed_after_s(claim) for claim in claims),
        back_after_s=stage.load.history.grants.since(restored_at)[0] - restored_at,
    )
    return outage, wrong


def _ask_until(node: FenceholdNode, until: float) -> list[Told]:
    return ask_while(node.host, node.port, f"nobody's:{node.name}", lambda: time.monotonic() < until)


def _granted_since(stage: Stage, killed_at: float) -> Iterator[str]:
    """Grants of what was asked since: what had been asked before may have been granted before, too."""
    for claim in stage.load.history.granted():
        if claim.asked_at > killed_at:
            yield f"granted without a majority: {claim}"


def _failed_after_s(claim: Claim) -> float:
    return 0.0 if claim.failed_at is None else claim.failed_at - claim.asked_at


def one_of_three(folder: Path, shape: Shape | None = None) -> Found:
    """Kill each of three once: the one that leads, one that follows, and the one that is left."""
    with staged(folder, shape=shape) as stage:
        leader = stage.etcd.leader()
        losses = [lose_members(stage, leader)]
        follower = next(index for index in range(3) if index not in (leader, stage.etcd.leader()))
        losses.append(lose_members(stage, follower))
        losses.append(lose_members(stage, 3 - leader - follower))
        return Found(losses, [], _checked(stage))


def two_of_five(folder: Path, shape: Shape | None = None) -> Found:
    """Kill two at once: the one that leads and another, then two that follow."""
    with staged(folder, members=5, shape=shape) as stage:
        leader = stage.etcd.leader()
        losses = [lose_members(stage, leader, (leader + 1) % 5)]
        one, other, *_ = (index for index in range(5) if index != stage.etcd.leader())
        losses.append(lose_members(stage, one, other))
        return Found(losses, [], _checked(stage))


def two_of_three(folder: Path) -> Found:
    """Kill a majority, and bring it back."""
    with staged(folder, shape=OUTAGE) as stage:
        outage, wrong = lose_majority(stage)
        return Found([], [outage], wrong + _checked(stage, UNREACHED))


def _checked(stage: Stage, excused: Excused = Excused()) -> list[str]:  # noqa: B008 - a value, never changed
    stage.load.halt()
    stage.load.read_all()
    return violations(stage.load.history, excused)


def _slow(outage: Outage) -> list[str]:
    if outage.refusal_s_max <= REFUSAL_S_MAX:
        return []
    return [f"a node took {outage.refusal_s_max:.2f} s to refuse, more than {REFUSAL_S_MAX:g} s"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.members", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args(arguments)
    # On the disk of the working tree: what is in memory would not be synced.
    with tempfile.TemporaryDirectory(prefix=".robustness-", dir=Path.cwd()) as name:
        runs = [run(Path(name, run.__name__)) for run in (one_of_three, two_of_five, two_of_three)]
    found = [loss._asdict() for run in runs for loss in run.losses]
    found += [outage._asdict() for run in runs for outage in run.outages]
    wrong = [
        line for run in runs for line in run.wrong + [line for outage in run.outages for line in _slow(outage)]
    ]
    for figures in found:
        sys.stdout.write(", ".join(f"{name} {value}" for name, value in figures.items()) + "\n")
    sys.stdout.write(f"{len(wrong)} things wrong\n")
    sys.stdout.writelines(f"  {line}\n" for line in wrong[:20])
    if given.json is not None:
        given.json.write_text(json.dumps({"found": found, "wrong": wrong}, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
