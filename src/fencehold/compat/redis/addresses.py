"""The address of a redis-py client, as a URL of Fencehold.

Settings that a URL cannot express are refused, before anything is connected to: a lock on the wrong server
protects nothing.
"""

from collections.abc import Mapping
from typing import Any

from redis import connection as plain
from redis import sentinel as plain_sentinel
from redis.asyncio import connection as awaited
from redis.asyncio import sentinel as awaited_sentinel

from fencehold.compat.redis.errors import NotHonoured
from fencehold.drivers.address import Endpoint, Login, written
from fencehold.drivers.resp.address import PORT

_TLS = (plain.SSLConnection, awaited.SSLConnection)
_SOCKET = (plain.UnixDomainSocketConnection, awaited.UnixDomainSocketConnection)
_TCP = (plain.Connection, awaited.Connection)
_SENTINEL = (plain_sentinel.SentinelConnectionPool, awaited_sentinel.SentinelConnectionPool)
_FILES = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key"}
"""Settings of TLS that a URL has an option for."""
_USUAL: dict[str, tuple[object, ...]] = {
    "ssl_cert_reqs": (None, "required"),
    "ssl_check_hostname": (None, True),
}
"""The defaults of TLS; the other settings are None or False by default."""

_INSTEAD = "make a client with fencehold.connect(…), and give that to the lock"


def url_of(client: object) -> str:
    """The URL of a redis-py client.

    Raises:
        NotHonoured: no URL can express it; the message says what to do instead.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise NotHonoured(f"a {type(client).__name__} has no single Redis to lock on: {_INSTEAD}")
    said = _said(pool)
    if isinstance(pool, _SENTINEL):
        return _of_sentinels(pool, said)
    if issubclass(pool.connection_class, _SOCKET):
        return written("redis", _login(said), (), said["path"], {"db": f"{said.get('db') or 0}"})
    if not issubclass(pool.connection_class, _TCP):
        raise NotHonoured(f"a pool of {pool.connection_class.__name__} has no redis:// URL: {_INSTEAD}")
    scheme, options = _security(pool, said)
    return written(scheme, _login(said), [_endpoint(said)], f"/{said.get('db') or 0}", options)


def _of_sentinels(pool: Any, said: Mapping[str, Any]) -> str:
    if not pool.is_master:
        raise NotHonoured(f"a replica grants no locks: {_INSTEAD}")
    scheme, options = _security(pool, said)
    theirs = [_said(each.connection_pool) for each in pool.sentinel_manager.sentinels]
    for word, key in (("sentinel_user", "username"), ("sentinel_password", "password")):
        if theirs[0].get(key):
            options[word] = theirs[0][key]
    path = f"/{pool.service_name}/{said.get('db') or 0}"
    return written(f"{scheme}+sentinel", _login(said), map(_endpoint, theirs), path, options)


def _said(pool: Any) -> Mapping[str, Any]:
    """The settings of a pool's connections."""
    said: Mapping[str, Any] = pool.connection_kwargs
    if said.get("credential_provider") is not None:
        raise NotHonoured(f"credentials that a provider makes are in no URL: {_INSTEAD}")
    return said


def _security(pool: Any, said: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The scheme, and the options of TLS."""
    if not issubclass(pool.connection_class, _TLS):
        return "redis", {}
    for key, value in said.items():
        if key.startswith("ssl_") and key not in _FILES and value not in _USUAL.get(key, (None, False)):
            raise NotHonoured(f"{key}={value!r} is in no URL: {_INSTEAD}")
    return "rediss", {word: str(said[key]) for key, word in _FILES.items() if said.get(key)}


def _login(said: Mapping[str, Any]) -> Login:
    return Login(said.get("username") or "", said.get("password") or "")


def _endpoint(said: Mapping[str, Any]) -> Endpoint:
    return Endpoint(said.get("host") or "localhost", said.get("port") or PORT)
