"""Connections that a server refuses: who is not let in, and who only came at a bad time."""

import psycopg
import pytest

from fencehold.engines.postgres.failures import unreached
from fencehold.errors import NotAdmitted, Unavailable

FAILED = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '


@pytest.mark.parametrize(
    "words",
    [
        'FATAL:  password authentication failed for user "app"',
        'FATAL:  Peer authentication failed for user "app"',
        "fe_sendauth: no password supplied",
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "app", database "locks", no encryption',
        'FATAL:  permission denied for database "locks"',
        'FATAL:  role "app" does not exist',
        'FATAL:  database "locks" does not exist',
    ],
)
def test_who_is_refused_is_not_admitted(words: str) -> None:
    """Waiting would not help; the server's words are told."""
    refused = unreached(psycopg.OperationalError(FAILED + words), "127.0.0.1:5432")
    assert type(refused) is NotAdmitted
    assert words in str(refused)


@pytest.mark.parametrize(
    "words",
    [
        "Connection refused\n\tIs the server running on that host?",
        "FATAL:  the database system is starting up",
        "FATAL:  sorry, too many clients already",
        "FATAL:  terminating connection due to administrator command",
    ],
)
def test_who_came_at_a_bad_time_may_come_again(words: str) -> None:
    """A server that starts, or is full, lets in later."""
    assert type(unreached(psycopg.OperationalError(FAILED + words), "127.0.0.1:5432")) is Unavailable
