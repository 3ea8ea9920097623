"""`mysql://`: one MariaDB."""

from pathlib import Path

from fencehold import Guarantees
from rig.mariadb import MariaDB
from rig.processes import free_port
from tests.behaviour.ground import Ground
from tests.depth import deep


class GROUND(Ground):
    expected = Guarantees(
        backend="mysql",
        linearizable=True,
        fenced=True,
        fence_survives_failover=True,
        fair=True,
        survives_failover=True,
        frees_on_crash=30.0,
        clocks="leases by the clock of the database server: set forward by more than 2 % of the ttl it ends "
        "leases that are still trusted, set back it makes them last longer; trust by the client's monotonic clock",
        semaphores=True,
        at_least=True,
    )
    names_at_once = deep(300, 2_000)
    """More are as possible, and take longer than a test should."""

    def start(self, folder: Path) -> None:
        self.server = MariaDB(folder)
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    @property
    def url(self) -> str:
        return self.server.url()

    @property
    def dead_url(self) -> str:
        return self.server.url(port=free_port())
