"""Locks in a SQLite file: the URL, and the rows."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencehold import UsageError
from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.port import Settings
from fencehold.backends.sqlite import backend, boot_clock
from fencehold.backends.sqlite.file import SqliteAddress
from fencehold.backends.sqlite.rows import NS, TABLES, LeaseRows, WantedLease


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:", isolation_level=None)
    for statement in TABLES:
        made.execute(statement)
    yield made
    made.close()


def wanted(token: str, *, permits: int = 0, waits: bool = True) -> WantedLease:
    return WantedLease("a", token, permits, 10 * NS, "[]", waits)


def test_a_path_is_from_here_or_from_the_root() -> None:
    """Three slashes or four; what is special in a URL is written as such."""
    assert SqliteAddress.parse("sqlite:////var/lib/locks.db").path == Path("/var/lib/locks.db")
    assert SqliteAddress.parse("sqlite:///locks.db").path == Path("locks.db").absolute()
    assert SqliteAddress.parse("sqlite:////a%20b/c%3F.db?timeout=0.5") == (Path("/a b/c?.db"), 0.5)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://:memory:"])
def test_without_a_file_there_is_another_backend(url: str) -> None:
    """The message says which."""
    with pytest.raises(UsageError, match="memory://"):
        backend(url, Settings())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://host/file", "no host"),
        ("sqlite:///a?timeout=0", "timeout="),
        ("sqlite:///a?timeout=soon", "timeout="),
        ("sqlite:///a?mode=ro", "unknown option mode=; sqlite:// takes timeout="),
        ("sqlite:///a%00b", "NUL"),
    ],
)
def test_what_makes_no_sense_is_said(url: str, words: str) -> None:
    """Before anything is touched."""
    with pytest.raises(UsageError, match=words):
        backend(url, Settings())


def test_a_network_file_system_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The mount that is nearest to the file decides."""
    mounts = tmp_path / "mounts"
    shared = str(tmp_path / "shared folder").replace(" ", r"\040")
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / {shared} rw shared:1 - nfs4 server:/ rw\n")
    monkeypatch.setattr(boot_clock, "_MOUNTS", mounts)
    boot_clock.check_is_local(tmp_path / "locks.db")
    with pytest.raises(UsageError, match="nfs4"):
        boot_clock.check_is_local(tmp_path / "shared folder" / "locks.db")


def test_turns_are_in_the_order_of_asking(db: sqlite3.Connection) -> None:
    """Nobody overtakes, and who is gone holds nobody up."""
    book = LeaseRows(db, NS, 100)
    assert book.take(wanted("1")) == Taken(101)
    assert isinstance(book.take(wanted("2")), Busy)
    assert isinstance(book.take(wanted("3")), Busy)
    assert book.release("a", "1")
    assert book.next_token("a") == "2"
    assert book.take(wanted("4", waits=False)) == Busy()
    assert isinstance(book.take(wanted("3")), Busy)
    later = LeaseRows(db, 7 * NS, 103)
    assert later.take(wanted("3")) == Taken(104)
    assert later.queue("a") == []


def test_an_ask_is_granted_once(db: sqlite3.Connection) -> None:
    """Asked again it is told the same fence; after its time it is another grant."""
    assert LeaseRows(db, NS, 100).take(wanted("1")) == Taken(101)
    assert LeaseRows(db, 2 * NS, 101).take(wanted("1")) == Taken(101)
    assert LeaseRows(db, 11 * NS, 101).take(wanted("2", waits=False)) == Busy()
    assert LeaseRows(db, 13 * NS, 101).take(wanted("1")) == Taken(102)


def test_an_expired_lease_is_not_renewed(db: sqlite3.Connection) -> None:
    """Also if nobody has had the name since."""
    LeaseRows(db, NS, 100).take(wanted("1"))
    assert LeaseRows(db, 10 * NS).renew("a", "1", NS)
    assert not LeaseRows(db, 11 * NS).renew("a", "1", NS)
    assert not LeaseRows(db, 11 * NS).release("a", "1")


def test_what_is_over_is_purged(db: sqlite3.Connection) -> None:
    """And only that."""
    book = LeaseRows(db, NS, 100)
    book.take(wanted("1"))
    book.take(wanted("2"))
    LeaseRows(db, 7 * NS).purge()
    assert db.execute(
        "SELECT (SELECT count(*) FROM fencehold_holds), (SELECT count(*) FROM fencehold_queue)"
    ).fetchone() == (1, 0)
    LeaseRows(db, 12 * NS).purge()
    assert db.execute("SELECT count(*) FROM fencehold_holds").fetchone() == (0,)


def test_a_glance_says_no_more_than_it_knows(db: sqlite3.Connection) -> None:
    """It refuses what is busy; what is free, or to be written, it leaves to a transaction."""
    book = LeaseRows(db, NS, 100)
    assert book.glance(wanted("1")) is None
    book.take(wanted("1"))
    assert book.glance(wanted("2", waits=False)) == Busy()
    assert book.glance(wanted("2")) is None
    book.take(wanted("2"))
    assert isinstance(book.glance(wanted("2")), Busy)
    assert LeaseRows(db, 5 * NS).glance(wanted("2")) is None


def test_permits_of_another_limit_are_refused(db: sqlite3.Connection) -> None:
    """While any is had; and a lock waits until none is."""
    book = LeaseRows(db, NS, 100)
    assert book.take(wanted("1", permits=2)) == Taken(101)
    assert book.take(wanted("2", permits=2)) == Taken(102)
    assert isinstance(book.take(wanted("3", permits=2, waits=False)), Busy)
    with pytest.raises(UsageError, match="limit of 2"):
        book.take(wanted("4", permits=3))
    assert isinstance(book.take(wanted("5")), Busy)
    book.release("a", "1")
    # One stands in the queue who wants it alone.
    assert isinstance(book.take(wanted("6", permits=2, waits=False)), Busy)
