"""`sqlite:///`: a file, and no server."""

from pathlib import Path

from fencehold import Guarantees
from tests.behaviour.ground import Ground


class GROUND(Ground):
    expected = Guarantees(
        backend="sqlite",
        linearizable=True,
        fenced=True,
        fence_survives_failover=True,
        fair=True,
        survives_failover=False,
        frees_on_crash=30.0,
        clocks="durations, by the one clock of the machine that counts from its start; no time of day",
        semaphores=True,
        at_least=True,
    )
    dead_url = "sqlite:////nowhere/at/all/locks.db"

    def start(self, folder: Path) -> None:
        self._file = folder / "locks.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self._file}"
