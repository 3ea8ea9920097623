"""Locks in a SQLite file, for the processes of one machine."""

from fencehold.backends.lease.backend import LeaseBackend
from fencehold.backends.port import Settings
from fencehold.backends.sqlite.file import SqliteAddress
from fencehold.backends.sqlite.store import SqliteStore


def backend(url: str, settings: Settings) -> LeaseBackend:
    """The backend at a URL; it touches no file yet.

    Raises:
        UsageError: the URL cannot be used; the message says what to write.
    """
    return LeaseBackend(SqliteStore(SqliteAddress.parse(url), settings), settings)
