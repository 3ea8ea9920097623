"""A demo: `make demo`. Three nodes on an etcd, a made-up company that uses them, and the dashboard to look at it.

Without an etcd it is one embedded server. Everything is on loopback, in a folder that is gone at the end; ctrl-c
ends it.
"""

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from rig.console import interrupt, say
from rig.etcd import EtcdCluster
from rig.nodes import NodeGroup
from rig.processes import Process, accepts, free_port

PORT = 7422
_ROOT = Path(__file__).resolve().parent.parent
_LOOK_S = 0.5
_RESTART_S = 5.0


class Demo:
    """What runs."""

    def __init__(self, url: str, dashboard: str, nodes: NodeGroup | None) -> None:
        self.url = url
        self.dashboard = dashboard
        self.nodes = nodes


@contextlib.contextmanager
def running(folder: Path, *, port: int = 0, pace: float = 1.0, embedded: bool = False) -> Iterator[Demo]:
    """A service, its HTTP listener and the load, ended at the end."""
    with contextlib.ExitStack() as stack:
        nodes = None if embedded else _cluster(stack, folder)
        url = _embedded(stack, folder) if nodes is None else nodes.url
        port = port if port and not accepts(port) else free_port()
        door = [sys.executable, "-m", "fencehold.cli", "listener", "http", "--url", url, "--port", str(port)]
        listener = _started(stack, "http", door, folder / "http")
        listener.await_ready(lambda: accepts(port))
        load = [sys.executable, "-m", "rig.demo_services", url, str(pace)]
        _started(stack, "services", load, folder / "services")
        yield Demo(url, f"http://127.0.0.1:{port}/dashboard/", nodes)


def _cluster(stack: contextlib.ExitStack, folder: Path) -> NodeGroup:
    etcd = EtcdCluster(folder / "etcd", 3)
    # Each runs in a folder of its own: there is its history, too.
    nodes = NodeGroup(etcd.url(), folder / "nodes", 3, options=("--history-file", "history.sqlite"))
    etcd.start()
    stack.callback(etcd.stop)
    nodes.start()
    stack.callback(nodes.stop)
    return nodes


def _embedded(stack: contextlib.ExitStack, folder: Path) -> str:
    port = free_port()
    command = [sys.executable, "-m", "fencehold.cli", "serve", "--data", str(folder / "data"), "--port", str(port)]
    server = _started(stack, "server", command, folder / "server")
    server.await_ready(lambda: accepts(port))
    return f"fencehold://127.0.0.1:{port}"


def _started(stack: contextlib.ExitStack, name: str, command: list[str], folder: Path) -> Process:
    # It runs in a folder of its own, from which `rig` is found like this.
    # And nothing is shown of sinks that others run on this machine.
    process = Process(name, command, folder, env={"PYTHONPATH": str(_ROOT), "TMPDIR": str(folder)})
    process.start()
    stack.callback(process.stop)
    return process


def main() -> None:
    """Start it, say where it is, wait, stop it."""
    parser = argparse.ArgumentParser(prog="python -m rig.demo", description="A made-up company, to look at.")
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"of the dashboard; {PORT}, or any if that is taken"
    )
    parser.add_argument("--pace", type=float, default=1.0, help="how much happens; 2 is twice as much")
    parser.add_argument("--embedded", action="store_true", help="one embedded server, no cluster")
    wanted = parser.parse_args()
    embedded = wanted.embedded or shutil.which("etcd") is None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    with (
        tempfile.TemporaryDirectory(prefix="fencehold-demo-") as folder,
        contextlib.suppress(KeyboardInterrupt),
        running(Path(folder), port=wanted.port, pace=wanted.pace, embedded=embedded) as demo,
    ):
        say(f"\n  dashboard   {demo.dashboard}\n  service     {demo.url}\n")
        if demo.nodes is not None:
            leader = demo.nodes.leader()
            say(f"Kill the leader and watch: kill -9 {leader.process.pid}. A node that ends is started again.")
        say("ctrl-c stops everything.\n")
        _keep_running(demo)
    say("stopped; nothing is left behind")


def _keep_running(demo: Demo) -> NoReturn:
    ended_at: dict[str, float] = {}
    while True:
        for node in demo.nodes.nodes if demo.nodes else ():
            if node.is_running:
                ended_at.pop(node.name, None)
            elif time.monotonic() - ended_at.setdefault(node.name, time.monotonic()) > _RESTART_S:
                node.start()
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main()
