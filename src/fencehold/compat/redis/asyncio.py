"""redis-py's `Lock` for event loops, on Fencehold; and a shadow for those of `redis.asyncio`."""

from fencehold.compat.redis.aio_locks import Lock, close, lock
from fencehold.compat.redis.shadow_locks import AioShadowLock as ShadowLock
from fencehold.compat.redis.shadows import AioShadow as Shadow

__all__ = ["Lock", "Shadow", "ShadowLock", "close", "lock"]
