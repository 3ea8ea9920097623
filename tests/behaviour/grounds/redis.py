"""`redis://`: one Redis that keeps nothing on disk."""

from pathlib import Path

from fencehold import Guarantees
from rig.processes import free_port
from rig.redis import Redis
from tests.behaviour.ground import Ground


class GROUND(Ground):
    expected = Guarantees(
        backend="redis",
        linearizable=False,
        fenced=False,
        fence_survives_failover=False,
        fair=True,
        survives_failover=False,
        frees_on_crash=30.0,
        clocks="the time of day of the Redis server, by which keys expire: set forward, it frees what is held",
        semaphores=True,
        at_least=True,
    )

    def start(self, folder: Path) -> None:
        self.server = Redis(folder)
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def dead_url(self) -> str:
        return f"redis://127.0.0.1:{free_port()}"
