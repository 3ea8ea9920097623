"""URLs of Redis: read, or refused with what to write instead."""

from pathlib import Path

import pytest

from fencehold.backends import redis, redlock
from fencehold.backends.port import Settings
from fencehold.drivers.address import Endpoint
from fencehold.drivers.resp.address import RedisAddress, RedlockAddress
from fencehold.errors import UsageError


def test_a_url_names_a_server_a_user_and_a_database() -> None:
    """Percent signs are read as in every URL; ports and databases have defaults."""
    server = RedisAddress.parse("redis://user:p%40ss@10.0.0.1:7000/3").server
    assert (server.endpoint, server.login.user, server.login.password, server.db) == (
        Endpoint("10.0.0.1", 7000),
        "user",
        "p@ss",
        3,
    )
    assert RedisAddress.parse("valkey://[::1]").server.endpoint == Endpoint("::1", 6379)
    assert RedisAddress.parse("redis://h?db=2").server.db == 2
    assert (
        RedisAddress.parse("redis:///run/redis.sock?db=1").server.path,
        RedisAddress.parse("redis:///run/redis.sock?db=1").server.db,
    ) == (
        "/run/redis.sock",
        1,
    )


def test_a_url_of_sentinels_names_them_and_a_service() -> None:
    """User and password are the master's; sentinels have their own."""
    address = RedisAddress.parse("redis+sentinel://u:p@a,b:7/main/2?sentinel_password=s&prefix=x:")
    assert [str(sentinel) for sentinel in address.sentinels] == ["a:26379", "b:7"]
    assert (address.service, address.server.db, address.prefix) == ("main", 2, "x:")
    assert (address.server.login.password, address.sentinels[0].login.password) == ("p", "s")
    assert str(address) == "a:26379,b:7 (main)"


def test_tls_takes_files_that_are_there(tmp_path: Path) -> None:
    """A key comes with its certificate."""
    file = tmp_path / "ca.pem"
    file.touch()
    tls = RedisAddress.parse(f"rediss://h?ca={file}").server.tls
    assert tls is not None
    assert (tls.ca, tls.cert) == (file, None)
    for url in (f"rediss://h?key={file}", "rediss://h?ca=/nowhere", f"redis://h?ca={file}"):
        with pytest.raises(UsageError):
            RedisAddress.parse(url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://", "names a host"),
        ("redis:///3", "names a host"),
        ("redis://a,b", "redlock://"),
        ("redis://a/x", "is a number"),
        ("redis://a:0", "port"),
        ("redis://a?fence=maybe", "yes or no"),
        ("redis://a?nonsense=1", "unknown option nonsense=; redis:// takes prefix="),
        ("redis+sentinel://a", "/mymaster"),
        ("redis+sentinel://a/main/x", "is a number"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_write(url: str, says: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(UsageError, match=says):
        redis.backend(url, Settings())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redlock://a,b", "three Redises or more"),
        ("redlock://a,b,b", "each once"),
        ("redlock://a,b,c/x", "is a number"),
        ("redlock://a,b,c?node_timeout=fast", "node_timeout=: 'fast' is not a duration"),
        ("redlock://a,b,c?fence=yes", "unknown option fence="),
        ("redlock://a,b,c?ca=x", "redlocks://"),
    ],
)
def test_redlock_needs_three_and_says_so(url: str, says: str) -> None:
    """With fewer, none may be lost."""
    with pytest.raises(UsageError, match=says):
        redlock.backend(url, Settings())


def test_a_url_of_redlock_names_all_of_them() -> None:
    """In one database, for one user."""
    address = RedlockAddress.parse("redlock://u:p@a,b:7,c/4?node_timeout=0.5&prefix=x")
    assert [str(server) for server in address.servers] == ["a:6379", "b:7", "c:6379"]
    assert {(server.db, server.login.password) for server in address.servers} == {(4, "p")}
    assert (address.prefix, address.node_s) == ("x", 0.5)


def test_a_password_is_not_shown() -> None:
    """Neither in a message nor in a `repr`."""
    address = RedisAddress.parse("redis://user:secret@h")
    assert "secret" not in repr(address) + str(address)


def test_guarantees_are_known_before_anything_is_connected_to() -> None:
    """Those of fences follow the URL."""
    assert not redis.backend("redis://h", Settings()).guarantees.fenced
    assert redis.backend("redis://h?fence=yes", Settings(ttl=7)).guarantees.fenced
    assert redis.backend("redis://h", Settings(ttl=7)).guarantees.frees_on_crash == 7
    assert not redlock.backend("redlock://a,b,c", Settings()).guarantees.fair
