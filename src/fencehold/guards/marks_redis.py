"""Marks in a Redis, for the processes of several machines: those of `fencehold.guards.redis`, whose guard the
application's own writes may use as well. Then the middleware and the data share one mark.

Marks are as durable as the Redis: one that loses its last second (`appendfsync everysec`), or fails over to a
replica that was behind, forgets marks of that time, and a stale holder passes the middleware again. What must not
happen then has a guard where its data is.

Needs redis-py, and a client of `redis.asyncio`, which stays the caller's.
"""

from redis import exceptions

from fencehold.errors import Unavailable
from fencehold.guards.marks import GuardMarks
from fencehold.guards.offer import Offer
from fencehold.guards.redis import PREFIX, AsyncGuard
from fencehold.guards.redis_calls import AsyncClient


class RedisMarks(GuardMarks):
    """Marks under keys of a Redis, one for each name. A stale fence raises `StaleFence`, with the mark."""

    def __init__(self, client: AsyncClient, *, strict: bool = False, prefix: str = PREFIX) -> None:
        self._guard = AsyncGuard(client, prefix, strict)
        super().__init__(self._raised)

    async def register(self, name: str) -> None:
        """Register a name, with no fence seen yet. Raises as `raise_to`."""
        await self._guard.register(name)

    async def _raised(self, offer: Offer) -> None:
        try:
            await self._guard.enter(offer)
        except exceptions.ResponseError as error:
            # Redis answered, and did nothing: no memory, a replica, no rights.
            raise Unavailable(f"marks: Redis refuses: {error}") from error
