"""Where the Redis of a redis-py client is, as a URL."""

from typing import Any

import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel

from fencehold.compat.redis import Lock, NotHonoured
from fencehold.compat.redis.addresses import url_of
from fencehold.drivers.resp.address import RedisAddress

SENTINEL: Any = Sentinel([("h1", 1), ("h2", 2)], sentinel_kwargs={"password": "s"})  # type: ignore[no-untyped-call]

URLS = [
    (redis.Redis(), "redis://localhost:6379/0"),
    (redis.Redis(host="::1", port=7, db=3), "redis://[::1]:7/3"),
    (redis.Redis(username="ann", password="a/b@c"), "redis://ann:a%2Fb%40c@localhost:6379/0"),
    (redis.Redis(password="x"), "redis://:x@localhost:6379/0"),
    (redis.Redis(ssl=True), "rediss://localhost:6379/0"),
    (redis.from_url("rediss://u:p@h:1/3"), "rediss://u:p@h:1/3"),
    (redis.Redis(unix_socket_path="/run/r s", db=2), "redis:///run/r%20s?db=2"),
    (
        redis.Redis(ssl=True, ssl_ca_certs="/ca", ssl_certfile="/c", ssl_keyfile="/k"),
        "rediss://localhost:6379/0?ca=/ca&cert=/c&key=/k",
    ),
    (SENTINEL.master_for("orders", db=1), "redis+sentinel://h1:1,h2:2/orders/1?sentinel_password=s"),
    (redis.asyncio.Redis(host="h"), "redis://h:6379/0"),
    (redis.asyncio.from_url("rediss://h"), "rediss://h:6379/0"),
]


@pytest.mark.parametrize(("client", "url"), URLS, ids=[url for _, url in URLS])
def test_a_redis_py_client_says_where_its_redis_is(client: Any, url: str) -> None:
    """The URL leads to the same database of the same server, with the same credentials."""
    assert url_of(client) == url


def test_the_backend_reads_what_is_said() -> None:
    """Special characters, sockets and sentinels come out as they went in."""
    login = RedisAddress.parse(url_of(redis.Redis(username="ann", password="a/b@c", db=3))).server
    assert (login.login.user, login.login.password, login.db) == ("ann", "a/b@c", 3)
    socket = RedisAddress.parse(url_of(redis.Redis(unix_socket_path="/run/r s", db=2))).server
    assert (socket.path, socket.db) == ("/run/r s", 2)
    watched = RedisAddress.parse(url_of(SENTINEL.master_for("orders", db=1)))
    assert (watched.service, watched.server.db) == ("orders", 1)
    assert [(each.endpoint.port, each.login.password) for each in watched.sentinels] == [(1, "s"), (2, "s")]


NOWHERE = [
    (redis.Redis(ssl=True, ssl_cert_reqs="none"), "ssl_cert_reqs='none' is in no URL"),
    (redis.Redis(ssl=True, ssl_check_hostname=False), "ssl_check_hostname=False is in no URL"),
    (redis.Redis(credential_provider=redis.UsernamePasswordCredentialProvider("a", "b")), "that a provider makes"),
    (SENTINEL.slave_for("orders"), "a replica grants no locks"),
    (object(), "a object has no single Redis"),
]


@pytest.mark.parametrize(("client", "why"), NOWHERE, ids=[why for _, why in NOWHERE])
def test_what_no_url_can_say_is_refused(client: Any, why: str) -> None:
    """A lock on another server than everybody thinks is none; the message says what to do instead."""
    with pytest.raises(NotHonoured, match=f"{why}.*fencehold.connect"):
        Lock(client, "a")
