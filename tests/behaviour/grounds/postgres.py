"""`postgresql://`: one server, as safe as users run it."""

from pathlib import Path

from fencehold import Guarantees
from rig.postgres import Postgres
from rig.processes import free_port
from tests.behaviour.ground import Ground


class GROUND(Ground):
    expected = Guarantees(
        backend="postgresql",
        linearizable=True,
        fenced=True,
        fence_survives_failover=True,
        fair=True,
        survives_failover=True,
        frees_on_crash=30.0,
        clocks="leases by the clock of the database's primary: set forward by more than 2 % of the ttl it ends "
        "leases that are still trusted, set back it makes them last longer; trust by the client's monotonic clock",
        shared=True,
        semaphores=True,
        at_least=True,
    )

    def start(self, folder: Path) -> None:
        self.server = Postgres(folder)
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    @property
    def url(self) -> str:
        return self.server.url("locking")

    @property
    def dead_url(self) -> str:
        return f"postgresql://nobody@127.0.0.1:{free_port()}/postgres"
