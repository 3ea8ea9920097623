"""`fencehold://`: an embedded server on a directory, whose CORRECTNESS tier is on disk."""

import sys
from pathlib import Path

from fencehold import Guarantees
from rig.processes import Process, accepts, free_port
from tests.behaviour.ground import Ground


class GROUND(Ground):
    expected = Guarantees(
        backend="fencehold",
        linearizable=True,
        fenced=True,
        fence_survives_failover=True,
        fair=True,
        survives_failover=True,
        frees_on_crash=1.0,
        clocks="durations only, by monotonic clocks that drift by less than 2 % from one another",
        shared=True,
        semaphores=True,
        at_least=True,
        multi=True,
        delays=True,
        watches=True,
    )

    def start(self, folder: Path) -> None:
        self._port = free_port()
        words = ["serve", "--no-http", "--data", str(folder / "data"), "--port", str(self._port)]
        self._process = Process("fencehold", [sys.executable, "-m", "fencehold.cli", *words], folder)
        self._process.start()
        self._process.await_ready(lambda: accepts(self._port))

    def stop(self) -> None:
        self._process.stop()

    @property
    def url(self) -> str:
        return f"fencehold://127.0.0.1:{self._port}"

    @property
    def dead_url(self) -> str:
        return f"fencehold://127.0.0.1:{free_port()}"
