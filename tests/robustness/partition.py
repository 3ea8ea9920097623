"""A partition: the machine of the leader is cut off from the others, and packets vanish without a word.

``python -m tests.robustness.partition 4`` does it four times, the first and the third with the leader of etcd on
the same machine; the tests do it once. Three machines have a member of etcd and a node each. One is cut off, with
clients on it; others are at work on the side of the majority.

1. The minority side grants nothing, and its node refuses within `REFUSAL_S_MAX`.
2. The majority side goes on: no request of its clients fails, and they get what clients on the other side had.
3. Afterwards one node leads, the others follow, and all have the state that the journal tells.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fencehold.core.views import names_in_use
from fencehold.engines.registry import journal_of
from fencehold.node.replica import Replica
from rig.nodes import FenceholdNode, NodeGroup
from rig.processes import Process, await_true
from tests.robustness import inside
from tests.robustness.asking import REFUSAL_S_MAX, Told
from tests.robustness.checker import Excused, violations
from tests.robustness.history import History
from tests.robustness.load import Load, Shape
from tests.robustness.network import Network, network
from tests.robustness.stage import GRANTS_PER_S_MIN
from tests.robustness.wire import Wire

MACHINES = ("a", "b", "c")
CUT_S = 5.0
"""Longer than the sessions of the clients that are cut off live."""
_BEHIND_S = 5.0
_ROOT = Path(__file__).parents[2]
CUT_OFF = Excused(frozenset({"Unavailable", "OutcomeUnknown", "HoldLost", "SessionExpired"}), losses=True)
"""What clients on the minority side may see."""


class Partition(NamedTuple):
    """What one partition did. Seconds count from the cut."""

    node: str
    had_etcd_leader: bool
    first_grant_s: float
    """On the majority side, of what was asked after the cut."""
    each_client_s: tuple[float, ...]
    grants_outside: int
    refused_inside: int
    refusal_s_max: float


class Members:
    """One member of etcd on each machine."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.hosts = [net.host(name) for name in MACHINES]
        peers = ",".join(f"{name}=http://{net.host(name)}:2380" for name in MACHINES)
        self.processes = [
            Process(f"etcd-{name}", [*net.prefix(name), *_etcd(name, net.host(name), peers, folder)], folder)
            for name in MACHINES
        ]

    @property
    def url(self) -> str:
        return f"etcd://{','.join(f'{host}:2379' for host in self.hosts)}/robustness"

    def start(self) -> None:
        for process in self.processes:
            process.start()
        for process, host in zip(self.processes, self.hosts, strict=True):
            process.await_ready(lambda host=host: _ask_etcd(host, "/health").get("health") == "true")  # type: ignore[misc]

    def leads(self, host: str) -> bool:
        status = self._status(host)
        return bool(status) and status.get("leader") == status["header"]["member_id"]

    def have_lead(self, host: str) -> None:
        """Let the member there lead, if another one does."""
        if not self.leads(host):
            leader = next(each for each in self.hosts if self.leads(each))
            target = json.dumps({"targetID": self._status(host)["header"]["member_id"]})
            _ask_etcd(leader, "/v3/maintenance/transfer-leadership", target.encode())
        await_true(lambda: self.leads(host), f"the member at {host} leads")

    def _status(self, host: str) -> dict[str, Any]:
        return _ask_etcd(host, "/v3/maintenance/status", b"{}")

    def stop(self) -> None:
        for process in self.processes:
            process.kill()


def _etcd(name: str, host: str, peers: str, folder: Path) -> list[str]:
    client, peer = f"http://{host}:2379", f"http://{host}:2380"
    command = ["etcd", "--name", name, "--data-dir", str(folder / name), "--initial-cluster", peers]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    # By default from etcd 3.5 on: a member that was cut off does not unseat the leader when it is back.
    command += ["--pre-vote"]
    return [*command, "--logger", "zap", "--log-level", "error", "--log-outputs", "stderr"]


def _ask_etcd(host: str, path: str, body: bytes | None = None) -> dict[str, Any]:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{host}:2379{path}", body, 2) as reply:
        return dict(json.loads(reply.read()))
    return {}


class Stage(NamedTuple):
    """What is running."""

    net: Network
    members: Members
    nodes: NodeGroup
    load: Load


@contextmanager
def staged(folder: Path, shape: Shape | None) -> Iterator[Stage]:
    """Three machines at work, and clients beside them; all gone at the end."""
    with ExitStack() as stack:
        net = stack.enter_context(network(*MACHINES))
        members = Members(net, folder)
        stack.callback(members.stop)
        members.start()
        nodes = NodeGroup(members.url, folder)
        nodes.nodes = [
            FenceholdNode(name, members.url, folder, host=net.host(name), port=7420, prefix=net.prefix(name))
            for name in MACHINES
        ]
        stack.enter_context(nodes)
        yield Stage(net, members, nodes, stack.enter_context(Load(nodes.url, shape)))


def cut_off_leader(stage: Stage, number: int, cut_s: float = CUT_S) -> tuple[Partition, History, list[str]]:
    """Cut the leader's machine off for a while; says what clients on it saw, and what was wrong."""
    stage.nodes.await_settled()
    node = stage.nodes.leader()
    # The first and every other time etcd must elect a leader, too; otherwise it has one on the other side.
    hosts = [host for host in stage.members.hosts if (host == node.host) == (number % 2 == 0)]
    stage.members.have_lead(hosts[0])
    with _inside(stage, node) as clients:
        await_true(lambda: stage.load.is_moving(GRANTS_PER_S_MIN), "there is traffic")
        had_etcd_leader = stage.members.leads(node.host)
        stage.net.cut(node.name)
        cut_at = time.monotonic()
        claims = stage.load.ask(f"cut:{number}")
        time.sleep(max(0.0, cut_at + cut_s - time.monotonic()))
        healed_at = time.monotonic()
        stage.net.heal(node.name)
        stage.nodes.await_settled()
        history, told = _told_by(clients)
    meanwhile = [each for each in told if cut_at < each.asked_at + each.seconds < healed_at]
    taken = tuple((claim.granted_at or float("inf")) - cut_at for claim in claims)
    partition = Partition(
        node.name,
        had_etcd_leader,
        min(taken),
        taken,
        sum(1 for at in stage.load.history.grants.since(cut_at) if at < healed_at),
        len(meanwhile),
        max((each.seconds for each in meanwhile), default=0.0),
    )
    return partition, history, _wrong_inside(history, meanwhile, cut_at, healed_at)


@contextmanager
def _inside(stage: Stage, node: FenceholdNode) -> "Iterator[subprocess.Popen[str]]":
    """Clients at work on the machine of a node."""
    command = [*stage.net.prefix(node.name), sys.executable, "-m", inside.__name__]
    command += [stage.nodes.url, node.host, str(node.port)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients:
        try:
            assert clients.stdout is not None
            assert clients.stdout.readline() == "at work\n"
            yield clients
        finally:
            clients.kill()


def _told_by(clients: "subprocess.Popen[str]") -> tuple[History, list[Told]]:
    assert clients.stdin is not None
    assert clients.stdout is not None
    clients.stdin.write("end\n")
    clients.stdin.flush()
    return inside.read(clients.stdout.readline())


def _wrong_inside(history: History, told: list[Told], cut_at: float, healed_at: float) -> list[str]:
    granted = [
        f"granted on the minority side: {claim}"
        for claim in history.granted()
        if claim.asked_at > cut_at and (claim.granted_at or 0) < healed_at
    ]
    said = [each.message for each in told if each.asked_at > cut_at and not each.is_refusal]
    wrong = [*granted, *(f"the node that was cut off said {message}" for message in said)]
    if not any(claim.granted_at for claim in history.claims if claim.name.startswith("healed:")):
        wrong.append("clients that were cut off were granted nothing afterwards")
    return wrong


def cut_off(folder: Path, rounds: int, shape: Shape | None = None) -> tuple[list[Partition], list[str]]:
    """So many partitions, one after the other."""
    with staged(folder, shape) as stage:
        found = [cut_off_leader(stage, number) for number in range(rounds)]
        wrong = [line for *_, lines in found for line in lines]
        stage.load.halt()
        stage.load.read_all()
        outside = stage.load.history
        # Readings show what others hold, too: they are for the whole.
        wrong += violations(History(outside.claims))
        claims = [*outside.claims, *(claim for _, history, _ in found for claim in history.claims)]
        wrong += violations(History(claims, outside.readings), CUT_OFF)
        wrong += _differences(stage)
        return [partition for partition, *_ in found], wrong


def _differences(stage: Stage) -> list[str]:
    """Nodes whose state is another than what the journal tells. Nobody is at work, so what is held stays so."""
    held = asyncio.run(_held_by_journal(stage.members.url))
    stage.nodes.await_settled()
    for node in stage.nodes.nodes:
        # A standby may be a moment behind: what it has read by then is what counts.
        with contextlib.suppress(TimeoutError):
            await_true(partial(_has, node, held), "a node is up to the journal", _BEHIND_S)
    return [
        f"{node.name} has {view}, the journal tells {held}"
        for node in stage.nodes.nodes
        if (view := _held_by_node(node)) != held
    ]


def _has(node: FenceholdNode, held: dict[str, int]) -> bool:
    return _held_by_node(node) == held


async def _held_by_journal(url: str) -> dict[str, int]:
    journal = journal_of(url)
    replica = Replica(journal)
    try:
        await replica.open()
        state = replica.machine.state
        return {name: max(hold.fence for hold in state.holders(name)) for name in names_in_use(state, "")}
    finally:
        await journal.close()


def _held_by_node(node: FenceholdNode) -> dict[str, int]:
    wire = Wire(node.host, node.port)
    held: dict[str, int] = {}
    cursor, names = wire.call("LOCK.LIST", "STALE")
    while names or cursor:
        held |= {each["name"]: each["fence"] for each in names}
        if not cursor:
            break
        cursor, names = wire.call("LOCK.LIST", "CURSOR", cursor, "STALE")
    wire.close()
    return held


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.partition", description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=4)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix=".robustness-", dir=Path.cwd()) as folder:
        partitions, wrong = cut_off(Path(folder), given.rounds)
    wrong += [
        f"refused after {each.refusal_s_max:.2f} s" for each in partitions if each.refusal_s_max > REFUSAL_S_MAX
    ]
    sys.stdout.writelines(f"{each}\n" for each in partitions)
    sys.stdout.writelines(f"WRONG: {line}\n" for line in wrong[:20])
    if given.json is not None:
        found = [each._asdict() for each in partitions]
        given.json.write_text(json.dumps({"partitions": found, "wrong": wrong}, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
