"""`etcd://`: three members."""

from pathlib import Path

from fencehold import Guarantees
from rig.etcd import EtcdCluster
from rig.processes import free_port
from tests.behaviour.ground import Ground


class GROUND(Ground):
    expected = Guarantees(
        backend="etcd",
        linearizable=True,
        fenced=True,
        fence_survives_failover=True,
        fair=True,
        survives_failover=True,
        frees_on_crash=30.0,
        clocks="durations only, by monotonic clocks that drift by less than 2 % from one another",
        semaphores=True,
        at_least=True,
    )
    ttl_min = 2.0
    # etcd looks twice a second for leases that have expired, and its members agree upon the end of each.
    settle_s = 2.0

    def start(self, folder: Path) -> None:
        self.members = EtcdCluster(folder)
        self.members.start()

    def stop(self) -> None:
        self.members.stop()

    @property
    def url(self) -> str:
        return self.members.url("behaviour")

    @property
    def dead_url(self) -> str:
        return f"etcd://127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
