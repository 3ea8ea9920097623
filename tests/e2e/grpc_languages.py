"""The examples in other languages, as their users would run them; and what each says."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.etcd import EtcdCluster
from rig.nodes import NodeGroup
from tests.e2e.grpc_client import door
from tests.e2e.served import until

ROOT = Path(__file__).parents[2]
NODE = ROOT / "examples/node"


@contextmanager
def nodes_on_etcd(place: Path) -> Iterator[NodeGroup]:
    """Two nodes, of which one leads."""
    etcd = EtcdCluster(place / "etcd", 1)
    try:
        etcd.start()
        with NodeGroup(etcd.url("grpc"), place, 2) as group:
            yield group
    finally:
        etcd.stop()


def check_failover(words: list[str], folder: Path, place: Path) -> None:
    """A client holds a name over a listener beside the standby; the leader is killed; the hold is not lost.

    `words` is its command, in which `ADDRESS` stands for where the listener is.
    """
    with nodes_on_etcd(place) as nodes:
        leader = nodes.leader()
        (standby,) = [node for node in nodes.nodes if node is not leader]
        with door(place, "grpc", standby.url) as port:
            command = [word.replace("ADDRESS", f"127.0.0.1:{port}") for word in words]
            holding = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                assert holding.stdout is not None
                assert re.search(r"held \d+", holding.stdout.readline()), holding.communicate("")
                leader.kill()
                until(lambda: nodes.leader() is standby)
                said, errors = holding.communicate("", timeout=60)
                assert "released" in said, (said, errors)
            finally:
                holding.kill()
                holding.wait()
