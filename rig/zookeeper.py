"""ZooKeeper on loopback: an ensemble of Debian's ZooKeeper, or one server that is alone.

It is set up for quick elections and small machines: a short tick, a small heap, little room taken ahead on disk.
Every write is synced, as in production, unless its caller says otherwise.
"""

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rig.lasting import Lasting
from rig.processes import START_S, Process, await_true, free_port

TICK_MS = 500
_JAVA = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_JARS = ("zookeeper", "netty-codec", "netty-resolver", "slf4j-simple")
"""What else it needs is named in the manifest of `zookeeper.jar`; netty's are for TLS."""
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class Tls(NamedTuple):
    """What a server shows (key, in PKCS 8, and certificates in one PEM file), and whom it trusts."""

    identity: Path
    ca: Path


class Member:
    """One server of an ensemble."""

    def __init__(self, number: int, folder: Path, properties: Mapping[str, str]) -> None:
        self.folder = folder
        self.port, self._peer_port, self._election_port = free_port(), free_port(), free_port()
        self._number = number
        flags = [f"-D{name}={value}" for name, value in properties.items()]
        jars = ":".join(f"/usr/share/java/{jar}.jar" for jar in _JARS)
        command = [*_JAVA, *flags, "-cp", jars, _MAIN, str(folder / "zoo.cfg")]
        self.process = Process(f"zookeeper-{number}", command, folder)

    @property
    def line(self) -> str:
        """How the others know it."""
        return f"server.{self._number}=127.0.0.1:{self._peer_port}:{self._election_port}"

    def configure(self, lines: list[str]) -> None:
        """Write its configuration: what all have in common, and its own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "myid").write_text(f"{self._number}\n")
        (self.folder / "zoo.cfg").write_text("\n".join([*lines, f"dataDir={self.folder}", ""]))

    @property
    def mode(self) -> str:
        """What it says it is: leader, follower, standalone; empty while it does not serve."""
        for line in self._ask(b"srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def _ask(self, word: bytes) -> str:
        answer = b""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as server:
            server.sendall(word)
            while part := server.recv(4_096):
                answer += part
        return answer.decode()


class ZookeeperEnsemble(Lasting):
    """Several servers that elect a leader. Use it as a context, or call `start` and `stop`."""

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        *,
        tick_ms: int = TICK_MS,
        synced: bool = True,
        tls: Tls | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`properties` are ZooKeeper's own, without their prefix."""
        self.size = size
        self._tick_ms = tick_ms
        self._tls = tls
        given = {
            # 64 MB of log taken ahead by each server would be most of what tests write.
            "zookeeper.preAllocSize": "4096",
            "zookeeper.forceSync": "yes" if synced else "no",
            "org.slf4j.simpleLogger.defaultLogLevel": "warn",
        }
        if tls is not None:
            given["zookeeper.serverCnxnFactory"] = "org.apache.zookeeper.server.NettyServerCnxnFactory"
        given |= {f"zookeeper.{name}": value for name, value in (properties or {}).items()}
        self.members = [Member(number, folder / f"{number}", given) for number in range(1, size + 1)]
        self._tls_ports = [free_port() for _ in self.members]

    @property
    def endpoints(self) -> list[str]:
        """`host:port` of every member, dead or alive."""
        ports = self._tls_ports if self._tls is not None else [member.port for member in self.members]
        return [f"127.0.0.1:{port}" for port in ports]

    def url(self, root: str = "/fencehold") -> str:
        """The URL for an engine."""
        scheme = "zookeeper" if self._tls is None else "zookeepers"
        return f"{scheme}://{','.join(self.endpoints)}{root}"

    def start(self) -> None:
        """Start all members, and wait until all of them serve."""
        for member, tls_port in zip(self.members, self._tls_ports, strict=True):
            member.configure(self._lines(member, tls_port))
            member.process.start()
        self.await_healthy()

    def stop(self) -> None:
        """End all members. A crash is the stop they are made for, and the quickest."""
        for member in self.members:
            member.process.kill()

    def kill(self, index: int) -> None:
        """`kill -9` one member."""
        self.members[index].process.kill()

    def kill_leader(self) -> int:
        """`kill -9` the member that leads; returns which it was."""
        index = self.leader()
        self.kill(index)
        return index

    def pause(self, index: int) -> None:
        """SIGSTOP one member: its connections stay, and nothing is answered."""
        self.members[index].process.pause()

    def resume(self, index: int) -> None:
        """SIGCONT."""
        self.members[index].process.resume()

    def restart(self, index: int) -> None:
        """Start a member that was killed. Use `await_healthy` to see it serve."""
        self.members[index].process.start()

    def leader(self, seconds: float = START_S) -> int:
        """Which member leads, once one does."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [at for at, member in enumerate(self.members) if member.mode in ("leader", "standalone")]
            return bool(found)

        await_true(look, "a ZooKeeper leads", seconds)
        return found[0]

    def await_healthy(self, seconds: float = START_S) -> None:
        """Wait until every member that runs serves, and one of them leads."""
        for member in self.members:
            if member.process.is_running:
                member.process.await_ready(lambda member=member: bool(member.mode), seconds)  # type: ignore[misc]
        self.leader(seconds)

    def _lines(self, member: Member, tls_port: int) -> list[str]:
        return [
            f"tickTime={self._tick_ms}",
            # In ticks: a busy machine may hold a member up for seconds.
            "initLimit=20",
            "syncLimit=6",
            f"clientPort={member.port}",
            "clientPortAddress=127.0.0.1",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr,ruok,mntr",
            *self._tls_lines(tls_port),
            *([other.line for other in self.members] if self.size > 1 else []),
        ]

    def _tls_lines(self, port: int) -> list[str]:
        if self._tls is None:
            return []
        return [
            f"secureClientPort={port}",
            "secureClientPortAddress=127.0.0.1",
            f"ssl.keyStore.location={self._tls.identity}",
            f"ssl.trustStore.location={self._tls.ca}",
            "ssl.keyStore.type=PEM",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=want",
        ]
