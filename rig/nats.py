"""NATS on loopback: one server with JetStream, its streams in a folder. The program comes from PyPI."""

import shutil
import sys
from pathlib import Path

from rig.lasting import Lasting
from rig.processes import Process, accepts, free_port


class Nats(Lasting):
    """One server. Its starter stops it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder / f"nats-{self.port}"
        beside = Path(sys.executable).with_name("nats-server")
        program = str(beside) if beside.exists() else shutil.which("nats-server") or "nats-server"
        command = [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "streams")]
        self._process = Process("nats", command, self.folder)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        if not self._process.is_running:
            self._process.start()
        self._process.await_ready(lambda: accepts(self.port))

    def stop(self) -> None:
        self._process.kill()

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
