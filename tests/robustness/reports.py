"""Reports: what is needed to explain why nothing was granted for a while, or why a client lost something."""

import contextlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rig.etcd import EtcdCluster
from rig.nodes import FenceholdNode
from tests.robustness.grants import Gap
from tests.robustness.recorder import Recorder
from tests.robustness.stage import Stage

BEFORE_S, AFTER_S = 5.0, 3.0
"""How much of what was before and after is told."""
LOG_LINES = 60


def sources_of(stage: Stage) -> dict[str, Callable[[], str]]:
    """What a recorder asks: every node, every member, and the clients."""
    sources: dict[str, Callable[[], str]] = {"clients": lambda: _clients(stage)}
    for node in stage.nodes.nodes:
        sources[f"node {node.name}"] = lambda node=node: _node(node)  # type: ignore[misc]
    for index in range(stage.etcd.size):
        sources[f"member {index}"] = lambda index=index: _member(stage.etcd, index)  # type: ignore[misc]
    return sources


def write_report(file: Path, stage: Stage, recorder: Recorder, what: str, gap: Gap) -> None:
    """Write down all that was around a gap. Seconds count from its beginning."""
    file.parent.mkdir(parents=True, exist_ok=True)
    began = datetime.fromtimestamp(time.time() - time.monotonic() + gap.since, UTC)
    lines = [what, "", f"0.000 is {began.isoformat(timespec='milliseconds')}", ""]
    for line in recorder.between(gap.since - BEFORE_S, gap.until + AFTER_S):
        lines.append(f"{line.at - gap.since:9.3f}  {line.who:9}  {line.what}")
    for name, text in _logs(stage).items():
        lines += ["", f"== {name}", *text.splitlines()[-LOG_LINES:]]
    file.write_text("\n".join(lines) + "\n")


def _clients(stage: Stage) -> str:
    return "; ".join(f"{label} {state}" for label, state in stage.load.states().items())


def _node(node: FenceholdNode) -> str:
    if not node.is_running:
        return "does not run"
    facts = node.facts()
    if not facts:
        return "says nothing"
    follows = ", ".join(standby["node"] for standby in facts["standbys"])
    told = f"{facts['role']}, epoch {facts['epoch']}, leader {facts['leader']}"
    return told + (f", followed by {follows}" if follows else "") + (f": {facts['note']}" if facts["note"] else "")


def _member(etcd: EtcdCluster, index: int) -> str:
    if not etcd.is_running(index):
        return "does not run"
    # A member that starts, or ends, may say half a sentence.
    with contextlib.suppress(OSError, json.JSONDecodeError, KeyError):
        status = etcd.status(index)
        leads = status.get("leader") == status["header"]["member_id"]
        return f"{'leads' if leads else 'follows' if status.get('leader') else 'alone'}, term {status['raftTerm']}"
    return "says nothing"


def _logs(stage: Stage) -> dict[str, str]:
    logs = {f"log of node {node.name}": node.log for node in stage.nodes.nodes}
    return logs | {f"log of member {index}": stage.etcd.log(index, 20_000) for index in range(stage.etcd.size)}
