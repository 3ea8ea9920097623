"""Sweeping: comparing what etcd has of a client with what the client knows of, every time its lease is renewed.

1. *A hold whose key is gone is lost*: somebody deleted it by hand. A leader's memory raises the doubt only; a
   transaction decides.
2. *A key that nobody knows of is deleted* when it is found so twice: a request that was held up on its way, and
   arrived after its ask was withdrawn or its hold released, has put it there. Found once, it may be one that is
   being deleted as it should be.
"""

from collections.abc import Callable, Iterable, Sequence

from fencehold.backends.etcd import queues
from fencehold.backends.port import Lease
from fencehold.drivers.etcd.cluster import Cluster


class Sweeper:
    """Of one client."""

    def __init__(self, cluster: Cluster, root: bytes, is_known: Callable[[bytes], bool]) -> None:
        self._cluster = cluster
        self._root = root
        """What all keys begin with that asks have."""
        self._is_known = is_known
        self._strays: set[bytes] = set()

    async def sweep(self, lease: int, held: Sequence[tuple[bytes, Lease]]) -> list[Lease]:
        """Delete what nobody knows of; returns the holds that are gone.

        Raises:
            Unavailable, OutcomeUnknown: as ever; nothing is known to be gone.
        """
        there = set(await self._cluster.keys_of_lease(lease))
        strays = {key for key in there if key.startswith(self._root) and not self._is_known(key)}
        for key in strays & self._strays:
            await self._cluster.delete(key, b"")
        self._strays = strays
        return await self._gone((key, each) for key, each in held if key not in there)

    async def _gone(self, doubted: Iterable[tuple[bytes, Lease]]) -> list[Lease]:
        gone = []
        for key, lease in doubted:
            if not lease.ending:
                answer = await self._cluster.transact(queues.make_sure(key, lease.fence))
                if not answer.message.succeeded:
                    gone.append(lease)
        return gone
