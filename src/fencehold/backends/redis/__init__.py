"""`redis://`: locks in one Redis, or in the master that Sentinel names. See `store` for the rules it obeys."""

from fencehold.backends.lease.backend import LeaseBackend
from fencehold.backends.port import Backend, Settings
from fencehold.backends.redis.store import RedisStore
from fencehold.drivers.resp.address import RedisAddress


def backend(url: str, settings: Settings) -> Backend:
    """The backend at a URL. Nothing is connected to yet.

    Raises:
        UsageError: the URL makes no sense; the message says what to write instead.
    """
    return LeaseBackend(RedisStore(RedisAddress.parse(url), settings), settings)
