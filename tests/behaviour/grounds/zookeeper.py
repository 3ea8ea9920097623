"""`zookeeper://`: an ensemble of three."""

from pathlib import Path

from fencehold import Guarantees
from rig.processes import free_port
from rig.zookeeper import ZookeeperEnsemble
from tests.behaviour.ground import Ground


class GROUND(Ground):
    expected = Guarantees(
        backend="zookeeper",
        linearizable=True,
        fenced=True,
        fence_survives_failover=True,
        fair=True,
        survives_failover=True,
        frees_on_crash=30.0,
        clocks="durations only, by monotonic clocks that drift by less than 2 % from one another",
        shared=True,
        semaphores=True,
    )
    settle_s = 2.0
    """Two ticks and a busy machine: servers look for sessions that ended once a tick."""
    ttl_min = 1.5

    def start(self, folder: Path) -> None:
        self.ensemble = ZookeeperEnsemble(folder, synced=False)
        self.ensemble.start()

    def stop(self) -> None:
        self.ensemble.stop()

    @property
    def url(self) -> str:
        return self.ensemble.url("/behaviour")

    @property
    def dead_url(self) -> str:
        return f"zookeeper://127.0.0.1:{free_port()}"
