"""A cluster to play with: `make cluster`, or `python -m rig.cluster --engine zookeeper --nodes 5`.

1. Everything is on loopback, with its data in a folder of its own that is gone at the end.
2. It lasts until ctrl-c or SIGTERM. Then all of it is stopped, the nodes first; and should this process be killed,
   the kernel ends the others.
3. A node that ends is started again after a while, as systemd would do: kill one and watch.
"""

import argparse
import contextlib
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, Protocol

from rig.console import interrupt, say
from rig.etcd import EtcdCluster
from rig.nodes import FenceholdNode, NodeGroup
from rig.postgres import Postgres
from rig.processes import free_port
from rig.zookeeper import ZookeeperEnsemble

PORT = 7420
_HTTP_FROM = 10
"""Their HTTP listeners are on ports so much higher: 7430, 7431, …"""
_RESTART_S = 5.0
_LOOK_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Engine(Protocol):
    """What keeps the journal."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def url(self) -> str: ...


def main() -> None:
    """Start it, wait, stop it."""
    parser = argparse.ArgumentParser(
        prog="python -m rig.cluster", description="A cluster on this machine, to play with."
    )
    parser.add_argument("--engine", choices=("etcd", "zookeeper", "postgres"), default="etcd")
    parser.add_argument("--nodes", type=_count, default=3, help="of Fencehold; 3")
    parser.add_argument("--members", type=_count, default=3, help="of the engine; 3; Postgres has one")
    parser.add_argument("--port", type=int, default=PORT, help=f"of the first node; {PORT}; 0: any")
    wanted = parser.parse_args()
    for number in _SIGNALS:
        signal.signal(number, interrupt)
    with _place() as folder, contextlib.suppress(KeyboardInterrupt), _running(folder, wanted) as nodes:
        _say_what_to_try(nodes)
        _keep_running(nodes)
    say("stopped; nothing is left behind")


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fencehold-cluster-"))
    # Postgres runs as a user of its own, which needs access.
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _running(folder: Path, wanted: argparse.Namespace) -> Iterator[NodeGroup]:
    engine = _engine(wanted.engine, folder / wanted.engine, wanted.members)
    ports, http_first = _ports(wanted.port, wanted.nodes), wanted.port and wanted.port + _HTTP_FROM
    http_ports = _ports(http_first, wanted.nodes)
    nodes = NodeGroup(engine.url(), folder / "nodes", wanted.nodes, ports=ports, http_ports=http_ports)
    try:
        say(f"starting {wanted.engine} …")
        engine.start()
        say(f"starting {wanted.nodes} node{'s' if wanted.nodes > 1 else ''} …")
        nodes.start()
        yield nodes
    finally:
        # A second ctrl-c does not cut this short.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        say("\nstopping …")
        nodes.stop()
        engine.stop()


def _engine(kind: str, folder: Path, members: int) -> Engine:
    if kind == "postgres":
        folder.mkdir()
        return Postgres(folder)
    return ZookeeperEnsemble(folder, members) if kind == "zookeeper" else EtcdCluster(folder, members)


def _ports(first: int, size: int) -> list[int]:
    """Those that are easy to remember, if they are free."""
    return [port if first and _is_free(port) else free_port() for port in range(first, first + size)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        # As the server does: a port whose last connections fade away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _say_what_to_try(nodes: NodeGroup) -> None:
    leader = nodes.leader()
    say("")
    for node in nodes.nodes:
        role = "leads" if node is leader else "stands by"
        http = node.process.command[node.process.command.index("--http") + 1]
        say(f"  node {node.name}   {node.address}   http://{node.host}:{http}   pid {node.process.pid}   {role}")
    say(f"\n  export FENCEHOLD_URL={nodes.url}\n")
    say("Then, in another terminal, with .venv/bin on the path:\n")
    say("  fencehold cluster --watch                # who leads, how far the others are")
    say("  fencehold run hello -- sleep 60          # hold a lock …")
    say(f"  kill -9 {leader.process.pid:<8}                         # … and kill the leader: the lock is kept")
    say("  fencehold info hello")
    say(f"\nA node that ends is started again after {_RESTART_S:g} s. ctrl-c stops everything.\n")


def _keep_running(nodes: NodeGroup) -> NoReturn:
    """Start nodes that ended again, until interrupted."""
    ended_at: dict[FenceholdNode, float] = {}
    while True:
        for node in nodes.nodes:
            if node.is_running:
                continue
            if node not in ended_at:
                ended_at[node] = time.monotonic()
                say(f"node {node.name} has ended")
            elif time.monotonic() - ended_at[node] > _RESTART_S:
                del ended_at[node]
                node.process.start()
                say(f"node {node.name} is started again, pid {node.process.pid}")
        time.sleep(_LOOK_S)


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 9:
        raise argparse.ArgumentTypeError("from 1 to 9")
    return number


if __name__ == "__main__":
    main()
