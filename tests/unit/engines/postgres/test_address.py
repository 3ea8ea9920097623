"""Addresses: what a URL means, and what is wrong with those that mean nothing."""

import pytest

from fencehold.drivers.postgres.connection import shown
from fencehold.engines.postgres import PostgresJournal
from fencehold.engines.postgres.address import PostgresJournalAddress
from fencehold.errors import UsageError


@pytest.mark.parametrize(
    ("url", "hosts", "database", "schema"),
    [
        ("postgresql://a/locks", ["a"], "locks", "fencehold"),
        ("postgres://a:1/locks?schema=eu_1", ["a:1"], "locks", "eu_1"),
        ("postgresql://u@a:1,b,c:3/locks", ["a:1", "b", "c:3"], "locks", "fencehold"),
        ("postgresql://a,b/locks?port=7", ["a:7", "b:7"], "locks", "fencehold"),
        ("postgresql://[::1]:7/locks", ["::1:7"], "locks", "fencehold"),
        ("postgresql:///locks?host=%2Frun%2Fpostgresql&port=7", ["/run/postgresql:7"], "locks", "fencehold"),
        ("postgresql://", ["localhost"], None, "fencehold"),
    ],
)
def test_a_url_names_servers_a_database_and_a_schema(
    url: str, hosts: list[str], database: str | None, schema: str
) -> None:
    """All that libpq takes is taken, several servers too; the schema has a default."""
    address = PostgresJournalAddress.parse(url)
    assert [shown(host) for host in address.hosts] == hosts
    assert {host.get("dbname") for host in address.hosts} == {database}
    assert address.schema == schema


def test_our_options_are_ours_and_the_others_are_libpqs() -> None:
    """libpq never sees our options, and is given its own; which server takes writes is ours to find out."""
    address = PostgresJournalAddress.parse(
        "postgresql://a,b/x?schema=s&unsafe=fsync,asynchronous&synchronous_commit=remote_apply&room_bytes=1000"
        "&sslmode=verify-full&application_name=n&target_session_attrs=any&tcp_user_timeout=7"
    )
    assert (address.schema, address.synchronous_commit) == ("s", "remote_apply")
    assert address.unsafe == {"fsync", "asynchronous"}
    assert address.room_bytes == 1000
    for host in address.hosts:
        assert host["sslmode"] == "verify-full"
        assert host["application_name"] == "n"
        assert host["tcp_user_timeout"] == "7"
        assert not {"schema", "unsafe", "room_bytes", "synchronous_commit", "target_session_attrs"} & set(host)


@pytest.mark.parametrize("where", ["alice:s3cr%40t%2F%3F@a,b/locks", "a,b/locks?password=s3cr%40t%2F%3F"])
def test_a_password_is_never_shown(where: str) -> None:
    """A password may have any character, and is in no text made of the address or the journal."""
    url = f"postgresql://{where}"
    assert {host["password"] for host in PostgresJournalAddress.parse(url).hosts} == {"s3cr@t/?"}
    for text in (
        str(PostgresJournalAddress.parse(url)),
        repr(PostgresJournalAddress.parse(url)),
        repr(PostgresJournal.from_url(url)),
    ):
        assert "s3cr" not in text
        assert "postgresql://a,b/locks?schema=fencehold" in text


@pytest.mark.parametrize(
    "url",
    [
        "etcd://a",
        "postgresql:a",
        "postgresql://a:b/x",
        "postgresql://a:1,b:2,c/x?port=1,2",
        "postgresql://a/x?schema=",
        "postgresql://a/x?schema=Upper",
        'postgresql://a/x?schema=a"b',
        f"postgresql://a/x?schema={'a' * 64}",
        "postgresql://a/x?synchronous_commit=off",
        "postgresql://a/x?synchronous_commit=local",
        "postgresql://a/x?unsafe=fsync,all",
        "postgresql://a/x?room_bytes=10GB",
        "postgresql://a/x?room_bytes=0",
        "postgresql://a/x?nonsense=1",
        "postgresql://u:s3cret%zz@a/x",
        "postgresql://u:s3cret/s3cret@a/x",
        "postgresql://u:1/s3cret@a/x",
        "postgresql://u:s3cret?s3cret@a/x",
        "postgresql://a/x?password=s3cret&nonsense=1",
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str) -> None:
    """What is wrong is said at once, and a password, also one in a wrong place, is not repeated."""
    with pytest.raises(UsageError) as refused:
        PostgresJournalAddress.parse(url)
    assert "s3cret" not in str(refused.value)
