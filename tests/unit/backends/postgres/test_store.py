"""What a URL of the backends on Postgres may say, and what they make of failures."""

import re
from pathlib import Path

import pytest

from fencehold import PermissionDenied, Unavailable, Unsupported, UsageError
from fencehold.backends.advisory.notes import Notes
from fencehold.backends.port import Settings
from fencehold.backends.postgres import backend
from fencehold.backends.postgres.store import SCHEME
from fencehold.backends.postgres.tables import making, script
from fencehold.drivers.postgres.address import PostgresAddress
from fencehold.drivers.postgres.failures import Rejected, refusal, unreached
from fencehold.errors import FenceholdError, OutcomeUnknown


def test_a_url_is_libpqs_with_options_of_our_own() -> None:
    """Ours do not get to libpq, and all others do."""
    address = PostgresAddress.parse(
        "postgres://me:secret@db:5433/app?schema=s&table=t&connections=2&sslmode=require", SCHEME
    )
    assert address.options == {
        "schema": "s",
        "table": "t",
        "connections": 2,
        "pooler": "detect",
        "replication": "synchronous",
    }
    assert address.params["sslmode"] == "require"
    assert "schema" not in address.params
    assert address.params["password"] == "secret"


def test_what_is_special_in_an_option_arrives_as_it_is() -> None:
    """Blanks, for one: libpq knows no plus signs for them."""
    address = PostgresAddress.parse("postgresql://db/app?options=-c%20jit%3Doff", SCHEME)
    assert address.params["options"] == "-c jit=off"


def test_a_password_is_never_shown() -> None:
    """Neither in the address, nor in what is said of a URL that cannot be read."""
    address = PostgresAddress.parse("postgresql://me:secret@one:1,two:2/app", SCHEME)
    assert f"{address}" == "postgresql://one:1,two:2/app"
    assert "secret" not in repr(address)
    with pytest.raises(UsageError) as caught:
        PostgresAddress.parse("postgresql://me:secret@db:port/app?nonsense=1", SCHEME)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("schema=Big", "schema="),
        ("schema=", "schema="),
        ("table=a-b", "table="),
        ("table=" + "a" * 41, "40 characters"),
        ("connections=0", "from 1 to 64"),
        ("connections=many", "from 1 to 64"),
        ("replication=maybe", "synchronous, asynchronous"),
        ("pooler=maybe", "transaction"),
        ("nonsense=1", "nonsense"),
        ("x=y@z", "%40"),
    ],
)
def test_a_url_that_makes_no_sense_says_what_to_write(query: str, words: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(UsageError, match=words):
        backend(f"postgresql://db/app?{query}", Settings())


def test_an_asynchronous_standby_lowers_what_is_declared() -> None:
    """A promotion takes back the last grants, and fences with them: then it is for efficiency only."""
    kept = backend("postgresql://db/app", Settings(ttl=20)).guarantees
    assert (kept.linearizable, kept.fence_survives_failover, kept.survives_failover) == (True, True, True)
    assert kept.frees_on_crash == 20
    lowered = backend("postgresql://db/app?replication=asynchronous", Settings()).guarantees
    assert (lowered.linearizable, lowered.fence_survives_failover, lowered.survives_failover) == (
        False,
        False,
        False,
    )
    assert lowered.fenced


def test_everything_in_the_database_has_the_names_asked_for() -> None:
    """Nothing is made outside of the schema, and nothing is left to be filled in."""
    text = script("mine", "held")
    assert "{" not in text
    assert b"mine.held_take_v1" in making("mine", "held")
    assert all("mine" in line for line in text.splitlines() if line.startswith("CREATE"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("57P01", OutcomeUnknown),
        ("08006", OutcomeUnknown),
        ("", OutcomeUnknown),
        ("40P01", Unavailable),
        ("25006", Unavailable),
        ("53200", Unavailable),
        ("42501", PermissionDenied),
        ("28000", PermissionDenied),
        ("25001", UsageError),
        ("22P05", UsageError),
        ("42P01", Unsupported),
    ],
)
def test_a_no_of_the_server_says_what_it_means(code: str, error: type[FenceholdError]) -> None:
    """What ends a connection may have happened; all else certainly has not."""
    assert type(refusal(Rejected(code, "it said no"), "db")) is error


@pytest.mark.parametrize(("denied", "error"), [(True, PermissionDenied), (False, Unavailable)])
def test_a_connection_that_is_not_had_says_why(denied: bool, error: type[FenceholdError]) -> None:
    """Whether waiting may help, or nothing but a password or a right does; with the server's words."""
    refused = unreached(OSError("session is read-only"), "db", PermissionDenied if denied else None)
    assert type(refused) is error
    assert "read-only" in str(refused)


def test_the_page_shows_the_tables_as_they_are_made() -> None:
    """Whoever makes them by hand makes the same."""
    page = (Path(__file__).parents[4] / "docs/how-to/lock-on-postgres.md").read_text()
    made = script("fencehold", "locks") + Notes("fencehold", "advisory").script
    shown = re.findall(r"CREATE (?:UNLOGGED )?TABLE (?:.|\n)*?\n\)[^;]*;", page)
    assert [text for text in shown if text not in made] == []
    assert len(shown) == 3
