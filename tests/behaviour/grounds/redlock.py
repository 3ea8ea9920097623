"""`redlock://`: five Redises that know nothing of one another."""

from pathlib import Path

from fencehold import Guarantees
from rig.processes import free_port
from rig.redis import Several
from tests.behaviour.ground import Ground


class GROUND(Ground):
    expected = Guarantees(
        backend="redlock",
        linearizable=False,
        fenced=False,
        fence_survives_failover=False,
        fair=False,
        survives_failover=False,
        frees_on_crash=30.0,
        clocks="the times of day of a majority of the Redis servers, by which keys expire: set forward, they "
        "free what is held",
        at_least=True,
    )

    def start(self, folder: Path) -> None:
        self.nodes = Several(folder, 5)
        self.nodes.start()

    def stop(self) -> None:
        self.nodes.stop()

    @property
    def url(self) -> str:
        # Ample: on a busy machine one that is late is no fault. What late ones cost is tested with the faults.
        return f"redlock://{self.nodes.endpoints}?node_timeout=5"

    @property
    def dead_url(self) -> str:
        return "redlock://" + ",".join(f"127.0.0.1:{free_port()}" for _ in range(5))
