"""The command line with several nodes on one etcd: while they lead, stand by, end, and come back."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rig.etcd import EtcdCluster
from rig.nodes import FenceholdNode, NodeGroup
from rig.processes import free_port
from tests.e2e.served import COMMAND, Said, ended, start, until
from tests.e2e.terminal import Terminal


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(tmp_path_factory.mktemp("etcd"), 1)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def group(etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    # Patient: on a busy machine a node may be silent for a while, and these tests are not about that.
    options = ("--leader-timeout", "5s")
    with NodeGroup(etcd.url("cli"), tmp_path_factory.mktemp("nodes"), options=options) as nodes:
        yield nodes


@pytest.fixture
def nodes(group: NodeGroup) -> NodeGroup:
    """All three nodes, whatever a test before did to them: one leads, two stand by."""
    for node in group.nodes:
        if not node.is_running:
            node.process.start()
    group.await_settled()
    return group


def call(url: str, *words: str) -> Said:
    """Call the command in a process of its own, with its standard streams as pipes."""
    return ended(start(*words, FENCEHOLD_URL=url))


def events(node: FenceholdNode) -> list[dict[str, str]]:
    """The log of a node: its events with their fields."""
    return [dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line)) for line in node.log.splitlines()]


def names(node: FenceholdNode) -> list[str]:
    return [event["event"] for event in events(node)]


def test_the_nodes_are_shown_from_wherever_one_asks(nodes: NodeGroup) -> None:
    """The leader first, then the others; with JSON, facts for a program."""
    leader = nodes.leader()
    standbys = [node for node in nodes.nodes if node is not leader]
    for url in (nodes.url, leader.url, standbys[0].url):
        said = call(url, "cluster")
        rows = [line.split("\t") for line in said.out.splitlines()]
        assert said.code == 0
        assert [row[:3] for row in rows] == [
            [leader.name, leader.address, "leader"],
            *([node.name, node.address, "standby"] for node in standbys),
        ]
        assert {row[6] for row in rows} == {"etcd"}
    found = json.loads(call(nodes.url, "cluster", "--json").out)
    assert found["leader"] == leader.name
    assert found["epoch"] == found["nodes"][0]["epoch"] > 0
    assert all(node["reachable"] and node["lag"] is not None for node in found["nodes"])


def test_commands_go_to_the_leader_though_a_standby_is_named(nodes: NodeGroup) -> None:
    """Looking, holding and letting go: nobody has to know who leads."""
    leader, standby = nodes.leader(), nodes.standbys()[0]
    token = call(standby.url, "acquire", "from-afar").out.strip()
    assert "from-afar" in call(standby.url, "ls").out
    assert call(standby.url, "info", "from-afar").code == 0
    assert json.loads(call(standby.url, "status", "--json").out)["node"] == leader.name
    assert call(standby.url, "run", "--try", "from-afar", "--", "true").code == 1
    assert call(standby.url, "release", token).code == 0
    assert call(standby.url, "info", "from-afar").code == 1


def test_ping_is_about_the_nodes_that_are_named(nodes: NodeGroup) -> None:
    """A standby does not lead, and says who does; with --any it is enough that it is there."""
    leader, standby = nodes.leader(), nodes.standbys()[0]
    said = call(standby.url, "ping")
    assert (said.code, said.err) == (1, f"fencehold: {standby.address} does not lead; {leader.address} does\n")
    assert call(standby.url, "ping", "--any").code == 0
    assert leader.address in call(nodes.url, "ping").out
    nowhere = f"fencehold://127.0.0.1:{free_port()}"
    assert call(nowhere, "ping", "--any").code == call(nowhere, "cluster").code == 69


def test_doctor_looks_at_all_nodes_and_the_members_of_their_engine(nodes: NodeGroup, etcd: EtcdCluster) -> None:
    """And not at a disk that has nothing to do with them."""
    said = call(nodes.standbys()[0].url, "doctor", "--json")
    found = {check["check"]: check for check in json.loads(said.out)["checks"]}
    assert said.code == 0
    assert found["cluster"]["said"] == f"{nodes.leader().name} leads, 2 stand by"
    assert found["lag"]["level"] == found["role"]["level"] == found["engine"]["level"] == "ok"
    assert not {"fdatasync", "room", "file system"} & set(found)
    members = found["members"]
    assert (members["level"], members["said"]) == ("warn", f"1 of 1 up; {etcd.endpoints[0]} leads")


def test_a_killed_leader_is_shown_as_away_and_nothing_is_lost(nodes: NodeGroup) -> None:
    """Who waits for a lock, waits on at the next leader; who watches, goes on there."""
    killed = nodes.leader()
    token = call(nodes.url, "acquire", "kept", "--ttl", "5m").out.strip()
    since = str(json.loads(call(nodes.url, "status", "--json").out)["position"])
    watching = start("watch", "kept", "--from", since, "--count", "3", "--json", FENCEHOLD_URL=nodes.url)
    waiting = start("acquire", "kept", "--json", "--timeout", "60s", FENCEHOLD_URL=nodes.url)
    until(lambda: json.loads(call(nodes.url, "info", "kept", "--json").out)["waiters"])
    assert watching.stdout is not None
    seen = [json.loads(watching.stdout.readline())]
    killed.kill()
    leader = nodes.leader()
    assert leader is not killed
    rows = {row[1]: row for row in (line.split("\t") for line in call(nodes.url, "cluster").out.splitlines())}
    assert rows[killed.address][2] == "unreachable"
    assert rows[leader.address][2] == "leader"
    assert call(nodes.url, "release", token).code == 0
    granted = json.loads(ended(waiting).out)
    assert granted["name"] == "kept"
    seen += [json.loads(line) for line in ended(watching).out.splitlines()]
    assert [event["kind"] for event in seen] == ["queued", "released", "acquired"]
    assert seen[-1]["fence"] == granted["fence"]
    assert call(nodes.url, "release", granted["token"]).code == 0


def test_what_a_plain_client_holds_is_kept_when_its_leader_is_killed(nodes: NodeGroup) -> None:
    """It was told of 20 s; the next leader keeps it, and shows whose it was."""
    killed = nodes.leader()
    with redis.Redis(port=killed.port, protocol=3, decode_responses=True, single_connection_client=True) as plain:
        plain.client_setname("old program")
        assert plain.execute_command("LOCK.ACQUIRE", "plain")["ttl_ms"] == 20_000
        killed.kill()
        nodes.leader()
        assert call(nodes.url, "acquire", "plain", "--try").code == 1
        (hold,) = json.loads(call(nodes.url, "info", "plain", "--json").out)["holds"]
        assert hold["client"]["name"] == "old program"
    assert call(nodes.url, "break", "plain", "--yes").code == 0


def test_a_stop_hands_over_and_is_told(nodes: NodeGroup) -> None:
    """Exit code 0; the node that leads next logs that it does, and the other whom it follows."""
    leader = nodes.leader()
    before = len(names(leader))
    assert leader.stop() == 0
    assert names(leader)[before:] == ["stopping", "stopped"]
    nodes.await_settled()
    successor, (other,) = nodes.leader(), nodes.standbys()
    until(lambda: names(successor)[-1] == "leading" and names(other)[-1] == "standing_by")
    assert events(successor)[-1]["epoch"] == str(successor.facts()["epoch"])
    told = events(other)[-1]
    assert (told["leader"], told["leader_address"]) == (successor.name, successor.address)


def test_an_engine_that_is_away_is_told_once_and_waited_for(etcd: EtcdCluster, nodes: NodeGroup) -> None:
    """No node leads, so `cluster` exits 1; when the engine is back, one leads again, by itself."""
    before = {node.name: len(names(node)) for node in nodes.nodes}
    etcd.kill(0)
    until(lambda: not any(node.role() in ("leader", "standby") for node in nodes.nodes))
    said = call(nodes.url, "cluster")
    assert said.code == 1
    assert said.err.startswith("fencehold: no node leads\n")
    assert {line.split("\t")[2] for line in said.out.splitlines()} == {"waiting"}
    assert call(nodes.url, "doctor").code == 1
    etcd.restore()
    nodes.await_settled()
    for node in nodes.nodes:
        told = names(node)[before[node.name] :]
        # A few words for it at most, however often it was tried.
        assert 1 <= told.count("waiting") <= 8
        assert told[-1] in ("leading", "standing_by")


def test_a_node_starts_without_its_engine(etcd: EtcdCluster, tmp_path: Path) -> None:
    """It says so, takes connections, and leads when there is one; or ends quickly when told to."""
    away = f"etcd://127.0.0.1:{free_port()}"
    node = FenceholdNode("early", away, tmp_path)
    node.start()
    until(lambda: "waiting" in names(node))
    said = call(node.url, "cluster", "--json")
    assert said.code == 1
    assert "trying again" in json.loads(said.out)["nodes"][0]["note"]
    assert "trying again" in call(node.url, "info", "x").err
    assert node.stop(5) == 0
    assert names(node)[-2:] == ["stopping", "stopped"]


def test_a_person_is_told_in_words(etcd: EtcdCluster) -> None:
    """What it is called, where the journal is, and what it does."""
    words = ("--engine", etcd.url("terminal"), "--node", "alone", "--port", "0")
    with Terminal("serve", *words) as screen:
        seen = screen.until("leads, epoch 1")
        screen.press("\x03")
        assert screen.code() == 0
    assert re.search(r"node +alone, advertised as 127\.0\.0\.1:\d+", seen)
    assert f"journal in  {etcd.url('terminal')}" in seen
    assert "handing over" in screen.seen


def test_the_nodes_can_be_watched(nodes: NodeGroup) -> None:
    """Live, until q; a node that goes away keeps its name."""
    with Terminal("cluster", "--watch", "--interval", "100ms", FENCEHOLD_URL=nodes.url) as screen:
        screen.until("standby")
        away = nodes.standbys()[0]
        away.kill()
        screen.until("unreachable")
        assert re.search(rf"{away.name} +{away.address} +unreachable", screen.seen)
        screen.press("q")
        assert screen.code() == 0


class Guarded:
    """An etcd that asks for a password."""

    def __init__(self, folder: Path) -> None:
        self.etcd = EtcdCluster(folder, 1)

    def __enter__(self) -> "Guarded":
        self.etcd.start()
        for words in ("user add root:s3cret", "user grant-role root root", "auth enable"):
            self._ctl(*words.split())
        return self

    def __exit__(self, *_: object) -> None:
        self.etcd.stop()

    def url(self, user: str) -> str:
        return f"etcd://{user}{self.etcd.endpoints[0]}/guarded"

    def _ctl(self, *words: str) -> None:
        command = ["etcdctl", "--endpoints", self.etcd.endpoints[0], *words]
        subprocess.run(command, env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True)


def test_passwords_open_the_engine_and_are_never_shown(tmp_path: Path) -> None:
    """Wrong ones are one sentence, a hint and 77; right ones come by a file or a variable."""
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    with Guarded(tmp_path / "etcd") as guarded:
        for url in (guarded.url(""), guarded.url("root:wrong@")):
            said = ended(start("serve", "--port", "0", "--engine", url))
            assert said.code == 77
            # On a busy machine it may have said before that it listens.
            assert any(line.startswith("fencehold: etcd://") for line in said.err.splitlines())
            assert "--engine-password-file" in said.err
            assert "Traceback" not in said.err
            assert "wrong@" not in said.err
        for number, (options, variables) in enumerate(
            [
                (["--engine-password-file", str(file)], {}),
                ([], {"FENCEHOLD_ENGINE_PASSWORD": "s3cret"}),
            ]
        ):
            node = FenceholdNode(
                "n", guarded.url("root@"), tmp_path / f"n{number}", options=options, env=variables
            )
            node.start()
            node.await_role("leader")
            assert node.stop() == 0
            assert "engine=etcd://root:***@" in node.log
            assert "s3cret" not in node.log


def test_a_check_starts_nothing_and_tells_what_is_wrong(tmp_path: Path) -> None:
    """Exit code 0 with the configuration, or 2 with the sentence that says what to change."""
    file = tmp_path / "fencehold.toml"
    file.write_text('engine = "etcd://10.0.0.1"\nnode = "a"\nport = 7499\n')
    said = ended(start("serve", "--config", str(file), "--check", FENCEHOLD_NODE="b"))
    assert (said.code, said.err) == (0, "")
    assert "node\tb\tenvironment" in said.out
    assert "advertise\t127.0.0.1:7499\tdefault" in said.out
    file.write_text("prot = 7499\n")
    said = ended(start("serve", "--config", str(file), "--check"))
    assert (said.code, said.out) == (2, "")
    assert said.err == f"fencehold: {file}: prot is not known; did you mean port?\n"
    said = ended(start("serve", "--engine", "etcd://10.0.0.1", "--memory"))
    assert said.code == 2
    assert "--memory and --engine both say where the journal is" in said.err


def test_the_command_of_a_node_is_the_one_users_have() -> None:
    """The rig starts what the tests of the command start."""
    assert FenceholdNode("a", "memory://", Path("x")).process.command[: len(COMMAND) + 1] == [*COMMAND, "serve"]
