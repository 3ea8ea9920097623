"""`make cluster`: it starts, is what it says, survives the loss of its leader, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencehold
from tests.e2e.served import PATIENCE_S, until
from tests.e2e.terminal import Terminal

ROOT = Path(__file__).parents[2]
_NODE = re.compile(r"node (\w) +(\S+) +http://\S+ +pid (\d+) +(leads|stands by)")


class Playground:
    """One that was started, and what it said."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said = ""
        assert process.stdout is not None
        for line in process.stdout:
            self.said += line
            if "ctrl-c stops everything" in line:
                break
        self.nodes = {name: (int(pid), role) for name, _, pid, role in _NODE.findall(self.said)}
        found = re.search(r"FENCEHOLD_URL=(\S+)", self.said)
        self.url = found[1] if found else ""
        self.children = children(process.pid)

    def hear(self, text: str) -> None:
        """Read on until it says so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if text in line:
                return
        raise AssertionError(f"it never said {text!r}: {self.said}")


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[Playground]:
    command = [sys.executable, "-m", "rig.cluster", "--port", "0", "--members", "1"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Playground(process)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in found.split()]


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_it_can_be_played_with_and_is_gone_afterwards(playground: Playground, tmp_path: Path) -> None:
    """A hold outlives the leader; the node that was killed is started again; SIGTERM ends all of it."""
    assert sorted(role for _, role in playground.nodes.values()) == ["leads", "stands by", "stands by"]
    name, (pid, _) = next((name, node) for name, node in playground.nodes.items() if node[1] == "leads")
    with fencehold.connect(playground.url) as client, client.lock("toy") as hold:
        subprocess.run(["kill", "-9", str(pid)], check=True)
        playground.hear(f"node {name} has ended")
        other = client.lock("other").acquire()
        assert other is not None
        assert other.fence > hold.fence
        hold.check()
        playground.hear(f"node {name} is started again")
    playground.process.send_signal(signal.SIGTERM)
    playground.hear("nothing is left behind")
    assert playground.process.wait(PATIENCE_S) == 0
    assert len(playground.children) == 4
    assert not any(lives(child) for child in playground.children)
    assert list(tmp_path.iterdir()) == []


def test_killed_it_takes_its_processes_along(playground: Playground) -> None:
    """The kernel ends what it started."""
    playground.process.kill()
    playground.process.wait(PATIENCE_S)
    until(lambda: not any(lives(child) for child in playground.children))


def test_ctrl_c_stops_it_in_order(tmp_path: Path) -> None:
    """Its nodes do not get the key: they are stopped one after the other, and nothing complains."""
    words = (sys.executable, "-m", "rig.cluster", "--port", "0", "--members", "1", "--nodes", "1")
    with Terminal(*words, shell=True, TMPDIR=str(tmp_path), PYTHONPATH=str(ROOT)) as screen:
        screen.until("ctrl-c stops everything")
        assert list(tmp_path.iterdir()) != []
        screen.press("\x03")
        assert screen.code() == 0
    assert list(tmp_path.iterdir()) == []
    assert "nothing is left behind" in screen.seen
    assert "Traceback" not in screen.seen
