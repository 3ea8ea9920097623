"""`redlock://`: locks in the majority of several Redises that know nothing of one another. See `store`."""

from fencehold.backends.lease.backend import LeaseBackend
from fencehold.backends.port import Backend, Settings
from fencehold.backends.redlock.store import RedlockStore
from fencehold.drivers.resp.address import RedlockAddress


def backend(url: str, settings: Settings) -> Backend:
    """The backend at a URL. Nothing is connected to yet.

    Raises:
        UsageError: the URL makes no sense; the message says what to write instead.
    """
    return LeaseBackend(RedlockStore(RedlockAddress.parse(url), settings), settings)
