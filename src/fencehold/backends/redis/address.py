"""The address of locks in one Redis.

``redis://[user:password@]host[:6379][/db]``, or ``redis://[user:password@]/path/of/a/socket[?db=1]``; with
``rediss://`` over TLS.
``redis+sentinel://[user:password@]host[:26379][,host…]/service[/db]`` names sentinels, who
know the master; with ``rediss+sentinel://`` they and it speak TLS. ``valkey://`` and ``valkeys://`` are the
same as ``redis://`` and ``rediss://``.

Options: ``prefix=`` stands before every name; ``fence=yes`` counts grants; ``sentinel_user=`` and
``sentinel_password=`` are shown to sentinels; ``ca=``, ``cert=`` and ``key=`` are files for TLS.
"""

from typing import NamedTuple

from fencehold.client.endpoints import Endpoint
from fencehold.drivers.resp.address import (
    PORT,
    SENTINEL_PORT,
    TLS_OPTIONS,
    Files,
    Login,
    Parts,
    Server,
    database,
    split,
)
from fencehold.errors import UsageError

_OPTIONS = ("prefix", "fence", *TLS_OPTIONS)
_SENTINEL = "+sentinel"
_SECURE = ("rediss", "valkeys", "rediss+sentinel")


class Address(NamedTuple):
    """What a URL says."""

    server: Server
    """Where the locks are; of a service of sentinels, all but its endpoint."""
    sentinels: tuple[Server, ...] = ()
    service: str = ""
    prefix: str = ""
    is_fenced: bool = False

    def __str__(self) -> str:
        if not self.sentinels:
            return str(self.server)
        return f"{','.join(map(str, self.sentinels))} ({self.service})"


def parse(url: str) -> Address:
    """Read a URL.

    Raises:
        UsageError: it makes no sense; the message says what to write instead.
    """
    scheme = url.partition("://")[0]
    address = _of_sentinels(url) if scheme.endswith(_SENTINEL) else _of_one(url)
    parts = split(url, (*_OPTIONS, "db", "sentinel_user", "sentinel_password"))
    return address._replace(prefix=parts.options.get("prefix", ""), is_fenced=parts.flag("fence"))


def _of_one(url: str) -> Address:
    parts = split(url, (*_OPTIONS, "db"), PORT)
    if len(parts.endpoints) > 1:
        raise UsageError(
            f"{parts.scheme}:// names one Redis: name several with redlock://, or sentinels with redis+sentinel://"
        )
    if parts.endpoints:
        db = database(parts.path or parts.options.get("db", ""))
        return Address(Server(parts.endpoints[0], parts.login, db, _tls(parts)))
    if not parts.path or parts.path.isdecimal():
        raise UsageError(f"a URL names a host, as in {parts.scheme}://localhost:6379/0")
    db = database(parts.options.get("db", ""))
    return Address(Server(Endpoint("", 0), parts.login, db, path=f"/{parts.path}"))


def _of_sentinels(url: str) -> Address:
    parts = split(url, (*_OPTIONS, "sentinel_user", "sentinel_password"), SENTINEL_PORT)
    service, _, db = parts.path.partition("/")
    if not parts.endpoints or not service:
        raise UsageError(
            f"{parts.scheme}:// names sentinels and the service they watch, as in "
            f"{parts.scheme}://10.0.0.1,10.0.0.2,10.0.0.3/mymaster"
        )
    tls = _tls(parts)
    login = Login(parts.options.get("sentinel_user", ""), parts.options.get("sentinel_password", ""))
    sentinels = tuple(Server(each, login, tls=tls) for each in parts.endpoints)
    master = Server(Endpoint("", PORT), parts.login, database(db), tls)
    return Address(master, sentinels, service)


def _tls(parts: Parts) -> Files | None:
    if parts.scheme in _SECURE:
        return parts.files()
    if any(name in parts.options for name in TLS_OPTIONS):
        raise UsageError(f"{parts.scheme}:// speaks no TLS: say rediss://, or leave ca=, cert= and key= out")
    return None
