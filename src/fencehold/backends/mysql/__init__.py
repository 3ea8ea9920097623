"""Locks in a table of MySQL or MariaDB."""

from fencehold.backends.lease.backend import LeaseBackend
from fencehold.backends.mysql.store import MysqlStore
from fencehold.backends.port import Settings
from fencehold.drivers.mysql.address import MysqlAddress


def backend(url: str, settings: Settings) -> LeaseBackend:
    """The backend at a URL; it connects to nothing yet.

    Raises:
        UsageError: the URL cannot be used; the message says what to write.
    """
    return LeaseBackend(MysqlStore(MysqlAddress.parse(url), settings), settings)
