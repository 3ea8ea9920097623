"""Locks in MySQL: the URL, the text of the steps, what errors mean."""

import pymysql
import pytest

from fencehold import PermissionDenied, Unavailable, UsageError
from fencehold.backends.mysql import backend, statements
from fencehold.backends.port import Settings
from fencehold.drivers.mysql.address import MysqlAddress
from fencehold.drivers.mysql.failures import is_lost, is_passing, refusal


def test_a_url_says_where_and_who() -> None:
    """What is special is written as %XX; there are defaults for the rest."""
    address = MysqlAddress.parse("mariadb://app:p%40ss%2Fword@db.example:3307/locks")
    assert address[:5] == ("db.example", 3307, "app", "p@ss/word", "locks")
    assert (MysqlAddress.parse("mysql://app@db/locks").port, address.replication) == (3306, "synchronous")


def test_a_password_is_not_shown() -> None:
    """Neither by `str` nor by `repr`."""
    address = MysqlAddress.parse("mysql://app:hidden@db/locks")
    assert "hidden" not in f"{address} {address!r}"
    with pytest.raises(UsageError) as caught:
        MysqlAddress.parse("mysql://app:hid/den@db:x/locks")
    assert "den" not in str(caught.value).replace("hidden", "")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://db/locks", "names no user"),
        ("mysql://app@db", "names no database"),
        ("mysql:///locks", "names no host"),
        ("mysql://app@db/a/b", "no /"),
        ("mysql://app@db:port/locks", "with a port from 1 to 65535"),
        ("mysql://app@db/locks?speed=high", "unknown option speed=; mysql:// takes replication="),
        ("mysql://app@db/locks?replication=maybe", "replication= is one of"),
        ("mysql://app@db/locks?connections=0", "connections="),
        ("mysql://app@db/locks?connections=1.5", "connections="),
        ("mysql://app@db/locks?timeout=never", "timeout="),
        ("mysql://app@db/locks?ssl=perhaps", "ssl= is yes or no"),
        ("mysql://app@db/locks?ssl_ca=/nowhere", "ca=/nowhere cannot be read"),
        ("mysql://app@db/locks?ssl=off&ssl_ca=/nowhere", "ca= is for TLS"),
    ],
)
def test_what_makes_no_sense_is_said(url: str, words: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(UsageError, match=words):
        backend(url, Settings())


def test_encryption_is_checked_unless_told_otherwise() -> None:
    """`ssl=on` checks who the server is; `unchecked` does not."""
    checked = MysqlAddress.parse("mysql://app@db/locks?ssl=on").tls
    unchecked = MysqlAddress.parse("mysql://app@db/locks?ssl=unchecked").tls
    assert checked is not None
    assert unchecked is not None
    assert checked.check_hostname
    assert not unchecked.check_hostname
    assert MysqlAddress.parse("mysql://app@db/locks").tls is None


def test_less_is_guaranteed_where_standbys_lag() -> None:
    """A server that takes over may lack grants, and fences."""
    given = backend("mysql://app@db/locks?replication=asynchronous", Settings(ttl=7)).guarantees
    assert (given.linearizable, given.fence_survives_failover, given.survives_failover) == (False, False, False)
    assert given.frees_on_crash == 7


def test_values_cannot_be_taken_for_sql() -> None:
    """Whatever a name is, it travels as hexadecimal digits."""
    odd = "a'; DROP TABLE x; -- \\"
    wanted = statements.WantedLease(odd, odd, 2, 1.0, odd, True)
    steps = [
        statements.take([wanted]),
        statements.standings([odd]),
        statements.stay([odd]),
        statements.renew([odd], 1),
        statements.release(odd, odd, is_doubted=True),
        statements.withdraw(odd, odd),
        statements.look(odd),
        statements.break_hold(odd, 1),
    ]
    assert all("DROP" not in step and odd.encode().hex() in step for step in steps)


def test_a_step_is_sent_up_to_its_commit() -> None:
    """Whatever is begun in a text is ended in it."""
    wanted = statements.WantedLease("a", "b", 0, 1.0, "", True)
    steps = [
        statements.take([wanted, wanted]),
        statements.renew(["b"], 1),
        statements.release("a", "b", is_doubted=True),
        statements.break_hold("a", 1),
    ]
    assert [(step.count("START TRANSACTION"), step.count("COMMIT")) for step in steps] == [(1, 1)] * 4


@pytest.mark.parametrize(
    ("code", "lost", "passing"),
    [(2013, True, False), (2006, True, False), (1927, True, False), (1213, False, True), (1205, False, True)],
)
def test_what_an_error_says_of_the_world(code: int, lost: bool, passing: bool) -> None:
    """A connection that is gone leaves a doubt; a deadlock leaves none."""
    error = pymysql.err.OperationalError(code, "words")
    assert (is_lost(error), is_passing(error)) == (lost, passing)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1044, PermissionDenied),
        (1045, PermissionDenied),
        (1227, PermissionDenied),
        (1820, PermissionDenied),
        (1142, PermissionDenied),
        (1290, Unavailable),
        (1049, UsageError),
        (9, Unavailable),
    ],
)
def test_a_refusal_has_its_kind(code: int, kind: type[Exception]) -> None:
    """And the words of the server."""
    told = refusal(pymysql.err.OperationalError(code, "as it said"), "db")
    assert type(told) is kind
    assert "as it said" in str(told)
