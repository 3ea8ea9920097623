"""Nodes of Fencehold on loopback: real `fencehold serve` processes that share one engine.

::

    with NodeGroup(etcd.url("demo"), folder) as nodes:      # three nodes: one leads, two stand by
        fencehold.connect(nodes.url)
        nodes.leader().kill()                               # or pause, resume, stop, start
        nodes.leader()                                      # another one, as soon as it leads

A node keeps its port and its name when it is started again. What it logs is in its folder.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hiredis

from rig.lasting import Lasting
from rig.processes import START_S, STOP_S, Process, accepts, await_true, free_port

_ASK_S = 1.0


class FenceholdNode:
    """One node. It does not run before `start`."""

    def __init__(
        self,
        name: str,
        engine_url: str,
        folder: Path,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        """`options` are more of `serve`; `prefix` stands before the command, as in `ip netns exec NAME`."""
        self.name = name
        self.host = host
        self.port = port or free_port()
        # By the interpreter that runs this: the tests need no `fencehold` on the path.
        command = [*prefix, sys.executable, "-m", "fencehold.cli", "serve", "--engine", engine_url, "--node", name]
        command += ["--host", host, "--port", str(self.port)]
        # Many nodes on one machine: HTTP is for those that get a port of their own.
        command += [] if "--http" in options else ["--no-http"]
        command += [] if host.startswith("127.") else ["--insecure"]
        self.process = Process(name, [*command, *options], folder, env={**_without_ours(), **(env or {})})

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """For clients that are to know of this node only."""
        return f"fencehold://{self.address}"

    @property
    def is_running(self) -> bool:
        return self.process.is_running

    @property
    def log(self) -> str:
        """All that it wrote."""
        return self.process.tail(1 << 20)

    def start(self) -> None:
        """Start it, and wait until it takes connections; for more there is `await_role`."""
        self.process.start()
        self.process.await_ready(lambda: accepts(self.port, self.host))

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: its connections stay, and nothing is answered."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.process.resume()

    def stop(self, seconds: float = STOP_S) -> int:
        """SIGTERM: it hands over and ends; returns the exit status."""
        return self.process.stop(seconds)

    def facts(self) -> dict[str, Any]:
        """What it reports of itself and its standbys (`NODE.LIST`); empty if it does not answer."""
        with contextlib.suppress(OSError, hiredis.HiredisError):
            return dict(_ask(self.host, self.port, b"NODE.LIST"))
        return {}

    def role(self) -> str:
        """`leader`, `standby` or `waiting`; empty if it does not answer."""
        return str(self.facts().get("role", ""))

    def await_role(self, role: str, seconds: float = START_S) -> None:
        """Wait until it leads (`leader`) or stands by (`standby`)."""
        await_true(lambda: self.role() == role, f"{self.name} is {role}", seconds)


class NodeGroup(Lasting):
    """Several nodes on one engine, called a, b, c, … Use it as a context, or call `start` and `stop`."""

    def __init__(
        self,
        engine_url: str,
        folder: Path,
        size: int = 3,
        *,
        ports: Sequence[int] = (),
        http_ports: Sequence[int] = (),
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`http_ports` are those of the HTTP listeners; without, there are none."""
        http: list[tuple[str, ...]] = [("--http", str(port)) for port in http_ports] or [()] * size
        names = [chr(ord("a") + number) for number in range(size)]
        self.nodes = [
            FenceholdNode(name, engine_url, folder / name, port=port, options=(*options, *more), env=env)
            for name, port, more in zip(names, ports or [0] * size, http, strict=True)
        ]

    @property
    def url(self) -> str:
        """For clients: all nodes, dead or alive."""
        return "fencehold://" + ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Start all nodes, and wait until one leads and the others stand by, known to it."""
        for node in self.nodes:
            node.process.start()
        self.await_settled()

    def stop(self) -> None:
        """Stop all of them; the leader last, so that no node takes over only to be stopped."""
        for node in self.nodes:
            node.resume()
        for node in sorted(self.nodes, key=lambda node: node.role() == "leader"):
            node.stop()

    def leader(self, seconds: float = START_S) -> FenceholdNode:
        """The node that leads, once one does. Of two that say so, the one with the newer epoch."""
        found: list[FenceholdNode] = []

        def look() -> bool:
            leads = [(facts["epoch"], node) for node, facts in self._facts() if facts.get("role") == "leader"]
            found[:] = [node for _, node in sorted(leads, key=lambda lead: -int(lead[0]))]
            return bool(found)

        await_true(look, "a node leads", seconds)
        return found[0]

    def standbys(self) -> list[FenceholdNode]:
        """The current standbys."""
        return [node for node, facts in self._facts() if facts.get("role") == "standby"]

    def await_settled(self, seconds: float = START_S) -> None:
        """Wait until, of the nodes that run, one leads and all others stand by and are known to it."""
        running = [node for node in self.nodes if node.is_running]
        for node in running:
            node.process.await_ready(lambda node=node: bool(node.role()), seconds)  # type: ignore[misc]
        await_true(lambda: self._is_settled(running), "one node leads and the others follow it", seconds)

    def _is_settled(self, running: list[FenceholdNode]) -> bool:
        roles = {node.name: facts for node, facts in self._facts() if node in running}
        leads = [facts for facts in roles.values() if facts.get("role") == "leader"]
        stand_by = {name for name, facts in roles.items() if facts.get("role") == "standby"}
        if len(leads) != 1 or len(stand_by) != len(running) - 1:
            return False
        return stand_by <= {standby["node"] for standby in leads[0]["standbys"]}

    def _facts(self) -> list[tuple[FenceholdNode, dict[str, Any]]]:
        return [(node, node.facts()) for node in self.nodes if node.is_running]


def _ask(host: str, port: int, word: bytes) -> Any:
    """The reply to one word, on a connection of its own."""
    parser = hiredis.Reader(encoding="utf-8")
    with socket.create_connection((host, port), timeout=_ASK_S) as server:
        server.sendall(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*1\r\n$%d\r\n%b\r\n" % (len(word), word))
        replies: list[Any] = []
        while len(replies) < 2:
            data = server.recv(1 << 16)
            if not data:
                raise ConnectionResetError(f"{host}:{port} closed the connection")
            parser.feed(data)
            replies += iter(parser.gets, False)
    if isinstance(replies[1], hiredis.ReplyError):
        raise replies[1]
    return replies[1]


def _without_ours() -> dict[str, str]:
    """Variables of Fencehold are for the present process, not for its nodes. An empty one counts as none."""
    return {name: "" for name in os.environ if name.startswith("FENCEHOLD_")}
