"""Nodes: real servers in simulated processes, each run by something that starts it again when it ends."""

from collections.abc import Callable, Sequence
from itertools import count

from fencehold.core.machine import Machine
from fencehold.doors.resp.connection import Connection
from fencehold.node.leader import Bounds
from fencehold.node.node import Node
from fencehold.node.saver import Saver
from fencehold.node.suspicion import Patience
from fencehold.security.admission import How, Known
from fencehold.server import Config, Server
from tests.simulation.calendars import Calendars
from tests.simulation.process import Process
from tests.simulation.store import SimulatedJournal, Store

PORT = 7420


class Making:
    """What the nodes of a run are made with."""

    def __init__(
        self,
        stores: Sequence[Store],
        calendars: Calendars,
        tick_s: float,
        patience: Patience,
        commands_per_snapshot: int,
        append_s: float,
        has_policy: bool = False,
    ) -> None:
        self._has_policy = has_policy
        self._stores = tuple(stores)
        """One for each shard."""
        self._calendars = calendars
        self._tick_s = tick_s
        self._patience = patience
        self._commands_per_snapshot = commands_per_snapshot
        self._append_s = append_s
        self._secrets = count(1)

    def server(self, process: Process) -> Server:
        journals = [SimulatedJournal(store, process, self._append_s) for store in self._stores]
        config = Config(
            node=process.host,
            advertise=f"{process.host}:{PORT}",
            port=PORT,
            insecure=True,
            leader=Bounds(tick_s=self._tick_s),
            patience=self._patience,
            shards=len(journals),
        )
        calendar = self._calendars.of(process.host)
        server = Server(config, journals=journals, clock=process, calendar=calendar)
        server.door.new_secret = lambda: f"secret-{next(self._secrets)}"
        for host, journal in zip(server.hosts, journals, strict=True):
            host.node._saver = Saver(journal, self._commands_per_snapshot)
        if self._has_policy:
            _know_hosts(server)
        return server


def _know_hosts(server: Server) -> None:
    """Let each connection be that of the host it comes from, as its certificate would say."""
    door = server.door
    opened = door.on_opened

    def on_opened(connection: Connection) -> None:
        opened(connection)
        connection.admit(Known(connection.peer.rpartition(":")[0], How.CERTIFICATE))

    door.on_opened = on_opened  # type: ignore[method-assign]


class NodeProcess:
    """One life of one node."""

    def __init__(self, process: Process, making: Making, on_exit: Callable[["NodeProcess", str], None]) -> None:
        self.process = process
        self.server: Server | None = None
        self.is_to_stop = False
        """It was told to, which it may not have heard yet."""
        self.stopping = False
        self._making = making
        self._on_exit = on_exit

    def node(self, shard: int = 0) -> Node | None:
        """Its node of a shard, if it has come to that."""
        return None if self.server is None else self.server.hosts[shard].node

    def leads(self, shard: int = 0) -> bool:
        node = self.node(shard)
        return self.process.alive and node is not None and node.leads

    def machine(self, shard: int = 0) -> Machine | None:
        node = self.node(shard)
        return None if node is None else node.replica.machine

    async def run(self) -> None:
        """As `fencehold serve` does it."""
        server = self.server = self._making.server(self.process)
        why = "stopped"
        try:
            await server.start()
            await server.serve()
        except Exception as error:
            why = repr(error)
        if not self.stopping:
            self._on_exit(self, why)

    def stop(self) -> None:
        """As by SIGTERM."""
        if not self.stopping and self.server is not None:
            self.stopping = True
            self.process.spawn(self._stop(self.server), "stop")

    async def _stop(self, server: Server) -> None:
        await server.stop()
        self._on_exit(self, "stopped")
