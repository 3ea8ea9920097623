"""etcd on loopback: one, three or five members, with their data in a folder.

Election timeouts are etcd's defaults: what tests and benchmarks see here is what users get. A folder that holds
data is taken up again, with the ports it had.
"""

import contextlib
import json
import ssl
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rig.processes import START_S, Process, await_true, free_port

_ASK_S = 2.0


class Tls(NamedTuple):
    """Files of certificates: who signs, and one pair for the members, which clients of this rig show as well."""

    ca: Path
    cert: Path
    key: Path


class EtcdCluster:
    """Members numbered from 0. Its caller stops it."""

    def __init__(self, folder: Path, size: int = 3, *, tls: Tls | None = None, flags: Sequence[str] = ()) -> None:
        self.folder = folder
        self.size = size
        self._tls = tls
        self._flags = tuple(flags)
        self._scheme = "http" if tls is None else "https"
        self._client_ports, self._peer_ports = _ports(folder, size)
        self._members = [self._member(index) for index in range(size)]

    @property
    def endpoints(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._client_ports]

    @property
    def pids(self) -> list[int]:
        """The processes of the members, dead or alive."""
        return [member.pid for member in self._members]

    def url(self, prefix: str = "", *, user: str = "") -> str:
        """What `fencehold serve --engine` takes; `user` is `name:password`."""
        login = f"{user}@" if user else ""
        hosts = ",".join(self.endpoints)
        path = f"/{prefix.strip('/')}" if prefix.strip("/") else ""
        if self._tls is None:
            return f"etcd://{login}{hosts}{path}"
        ca, cert, key = self._tls
        return f"etcds://{login}{hosts}{path}?ca={ca}&cert={cert}&key={key}"

    def start(self) -> None:
        """Start all members, and wait until all of them serve."""
        for member in self._members:
            if not member.is_running:
                member.start()
        self.await_healthy()

    def stop(self) -> None:
        """End all members, at once: asked politely, each would hand its lead on to one that ends next."""
        for member in self._members:
            member.kill()

    def kill(self, index: int) -> None:
        """`kill -9` one member."""
        self._members[index].kill()

    def kill_leader(self) -> int:
        """`kill -9` the member that leads; returns which that was."""
        index = self.leader()
        self.kill(index)
        return index

    def pause(self, index: int) -> None:
        """SIGSTOP one member: it accepts connections, and says nothing."""
        self._members[index].pause()

    def resume(self, index: int) -> None:
        self._members[index].resume()

    def restart(self, index: int) -> None:
        """Start a member that was killed; whether it serves is for `await_healthy`."""
        self._members[index].kill()
        self._members[index].start()

    def restore(self) -> None:
        """Have every member run again, whatever was done to it, and wait until all of them serve."""
        for member in self._members:
            member.resume()
            if not member.is_running:
                member.start()
        self.await_healthy()

    def is_running(self, index: int) -> bool:
        return self._members[index].is_running

    def leader(self) -> int:
        """The member that leads, as those that run say; waits while they say none."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [index for index in range(self.size) if self._leads(index)]
            return bool(found)

        await_true(look, "an etcd member leads")
        return found[0]

    def log(self, index: int, size: int = 2_000) -> str:
        """The end of what a member wrote."""
        return self._members[index].tail(size)

    def status(self, index: int) -> dict[str, Any]:
        """What a member says of itself: sizes of its database, its leader, its revision. Numbers come as text."""
        return dict(self.ask(index, "/v3/maintenance/status", {}))

    def ask(
        self, index: int, path: str, body: Mapping[str, Any] | None = None, token: str = ""
    ) -> Mapping[str, Any]:
        """Ask a member in JSON, by the gateway that it has beside gRPC; as the user of a token."""
        data = None if body is None else json.dumps(body).encode()
        who = {"Authorization": token} if token else {}
        request = urllib.request.Request(self._client_url(index) + path, data=data, headers=who)
        with urllib.request.urlopen(request, timeout=_ASK_S, context=self._context()) as reply:
            return dict(json.loads(reply.read()))

    def await_healthy(self, seconds: float = START_S) -> None:
        """Wait until every member that runs has a leader and answers reads that need a majority."""
        until = time.monotonic() + seconds
        for index, member in enumerate(self._members):
            if member.is_running:
                left_s = max(0.1, until - time.monotonic())
                member.await_ready(lambda index=index: self._is_healthy(index), left_s)  # type: ignore[misc]

    def _member(self, index: int) -> Process:
        client, peer = self._client_url(index), f"http://127.0.0.1:{self._peer_ports[index]}"
        initial = ",".join(f"m{at}=http://127.0.0.1:{port}" for at, port in enumerate(self._peer_ports))
        command = ["etcd", "--name", f"m{index}", "--data-dir", str(self.folder / f"m{index}")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", initial, "--logger", "zap", "--log-level", "error"]
        # From etcd 3.6 on the default; older members keep ten times as many entries in memory.
        command += ["--log-outputs", "stderr", "--snapshot-count", "10000"]
        if self._tls is not None:
            ca, cert, key = (str(path) for path in self._tls)
            command += ["--cert-file", cert, "--key-file", key, "--trusted-ca-file", ca, "--client-cert-auth"]
        return Process(f"etcd-{index}", [*command, *self._flags], self.folder)

    def _client_url(self, index: int) -> str:
        return f"{self._scheme}://127.0.0.1:{self._client_ports[index]}"

    def _leads(self, index: int) -> bool:
        if not self._members[index].is_running:
            return False
        with contextlib.suppress(OSError):
            status = self.status(index)
            return bool(status.get("leader")) and status["leader"] == status["header"]["member_id"]
        return False

    def _is_healthy(self, index: int) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.ask(index, "/health")["health"] == "true")
        return False

    def _context(self) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        context = ssl.create_default_context(cafile=str(self._tls.ca))
        context.load_cert_chain(self._tls.cert, self._tls.key)
        return context


def _ports(folder: Path, size: int) -> tuple[list[int], list[int]]:
    """The ports the members in this folder have: members remember each other's, so they must stay."""
    file = folder / "ports.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([free_port() for _ in range(2 * size)]))
    ports = [int(port) for port in json.loads(file.read_text())]
    return ports[:size], ports[size:]
