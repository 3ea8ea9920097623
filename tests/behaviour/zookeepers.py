"""What tests on a ZooKeeper see of it, and do to the sessions of clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kazoo.client import KazooClient

from fencehold import aio
from fencehold.backends.carrier import DirectCarrier
from fencehold.backends.zookeeper.queue import part_of
from rig.zookeeper import ZookeeperEnsemble
from tests.behaviour.grounds.zookeeper import GROUND
from tests.unit.engines.zookeeper.valve import Valve

CREATE2 = 15
"""The kind of request that makes a place."""
ROOT = "/behaviour"


class Eye:
    """Sees the znodes themselves."""

    def __init__(self, ensemble: ZookeeperEnsemble) -> None:
        self._kazoo = KazooClient(",".join(ensemble.endpoints))
        self._kazoo.start()

    def close(self) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    def nodes(self, name: str) -> list[str]:
        """The places of a name, in any order; none if it has no queue."""
        path = f"{ROOT}/{part_of(name)}"
        self._kazoo.sync(path)
        return list(self._kazoo.get_children(path)) if self._kazoo.exists(path) else []

    def stat(self, name: str, node: str = "") -> Any:
        return self._kazoo.exists(f"{ROOT}/{part_of(name)}" + (f"/{node}" if node else ""))


def session_of(client: aio.Client) -> Any:
    """The ZooKeeper session of a client."""
    carrier: Any = client._first
    while not isinstance(carrier, DirectCarrier):
        carrier = carrier.within
    backend: Any = carrier._backend
    return backend._sessions._session


def member_of(client: aio.Client, ensemble: ZookeeperEnsemble) -> int:
    """The member that a client is connected to."""
    port = session_of(client)._client._connection._socket.getpeername()[1]
    return [member.port for member in ensemble.members].index(port)


def others_than(index: int, ensemble: ZookeeperEnsemble) -> list[int]:
    return [other for other in range(ensemble.size) if other != index]


def expire(client: aio.Client, ensemble: ZookeeperEnsemble) -> None:
    """End the session of a client behind its back: somebody else takes it over, and closes it."""
    thief = KazooClient(",".join(ensemble.endpoints), client_id=session_of(client)._client.client_id)
    thief.start()
    thief.stop()
    thief.close()


@asynccontextmanager
async def behind_a_valve(ground: GROUND, **options: Any) -> AsyncIterator[tuple[Valve, aio.Client]]:
    """A client, and what stands between it and the one server it knows."""
    valve = Valve(ground.ensemble.members[0].port)
    await valve.start()
    try:
        async with aio.connect(str(valve.address(ROOT)), connect_timeout=10, **options) as client:
            yield valve, client
    finally:
        await valve.stop()
