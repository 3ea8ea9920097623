"""`postgresql://`: a row for each name that is held, and the database's clock."""

from fencehold.backends.lease.backend import LeaseBackend
from fencehold.backends.port import Backend, Settings
from fencehold.backends.postgres.store import SCHEME, PostgresStore
from fencehold.drivers.postgres.address import PostgresAddress


def backend(url: str, settings: Settings) -> Backend:
    """The backend at a URL. Nothing is connected to yet.

    Raises:
        UsageError: the URL cannot be read; the message says what to write instead.
    """
    return LeaseBackend(PostgresStore(PostgresAddress.parse(url, SCHEME), settings), settings)
