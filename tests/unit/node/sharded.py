"""Servers with several shards, over journals in memory that they share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Unavailable
from fencehold.node.leader import Bounds
from fencehold.node.suspicion import Patience
from fencehold.runtime.faults import Faults
from fencehold.server import Config, Server

QUICK = Patience(leader_timeout_s=0.8, confirm_s=0.2, stagger_s=0.1)


class Away(Faults):
    """A journal that takes no entry, and lets nobody lead, while it is away."""

    def __init__(self) -> None:
        self.is_away = False

    def reach(self, point: str) -> None:
        if self.is_away and point.endswith(".before"):
            raise Unavailable("out of reach")


class ShardedCluster:
    """Servers that share a journal for each shard, by name."""

    def __init__(self, shards: int, journal: type[MemoryJournal] = MemoryJournal) -> None:
        self._journal = journal
        self.shards = shards
        self.stores = [MemoryStore() for _ in range(shards)]
        self.faults = [Away() for _ in range(shards)]
        self.servers: dict[str, Server] = {}

    async def start(self, name: str) -> Server:
        """Start one more, or one again."""
        config = Config(node=name, port=0, shards=self.shards, patience=QUICK, leader=Bounds(tick_s=0.05))
        pairs = zip(self.stores, self.faults, strict=True)
        server = Server(config, journals=[self._journal(store, faults=faults) for store, faults in pairs])
        self.servers[name] = server
        await server.start()
        return server

    async def stop(self, name: str) -> None:
        await self.servers.pop(name).stop()

    def led(self) -> dict[str, int]:
        """How many shards each leads."""
        return {name: server.shards.led for name, server in self.servers.items() if server.shards is not None}

    @property
    def url(self) -> str:
        """Where clients find all of them."""
        return "fencehold://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers.values())


@asynccontextmanager
async def sharded(
    shards: int, *names: str, journal: type[MemoryJournal] = MemoryJournal
) -> AsyncIterator[ShardedCluster]:
    """Servers that are up, none of which need lead anything yet."""
    cluster = ShardedCluster(shards, journal)
    try:
        for name in names:
            await cluster.start(name)
        yield cluster
    finally:
        for name in list(cluster.servers):
            await cluster.stop(name)
