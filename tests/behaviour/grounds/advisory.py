"""`postgresql+advisory://`: one server, with room for as many locks as the tests hold."""

from pathlib import Path

from fencehold import Guarantees
from rig.postgres import Postgres
from rig.processes import free_port
from tests.behaviour.ground import Ground


class GROUND(Ground):
    expected = Guarantees(
        backend="postgresql+advisory",
        linearizable=False,
        fenced=False,
        fence_survives_failover=False,
        fair=False,
        survives_failover=False,
        frees_on_crash=54.0,
        clocks="durations by the client's monotonic clock, and by the server's kernel for a client that is gone",
        shared=True,
    )

    def start(self, folder: Path) -> None:
        self.server = Postgres(folder, settings={"max_locks_per_transaction": "512"})
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    @property
    def url(self) -> str:
        return self.server.url("locking").replace("postgresql://", "postgresql+advisory://")

    @property
    def dead_url(self) -> str:
        return f"postgresql+advisory://nobody@127.0.0.1:{free_port()}/postgres"
