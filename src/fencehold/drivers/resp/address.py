"""The addresses of locks in Redis: in one, in the master that Sentinel names, or in several at once.

- ``redis://[user:password@]host[:6379][/db]``, or ``redis://[user:password@]/path/of/a/socket[?db=1]``; with
  ``rediss://`` over TLS. ``valkey://`` and ``valkeys://`` are the same.
- ``redis+sentinel://[user:password@]host[:26379][,host…]/service[/db]`` names sentinels, who know the master; with
  ``rediss+sentinel://`` they and it speak TLS.
- ``redlock://[user:password@]host[:6379],host[:6379],host[:6379][,…][/db]``, and ``redlocks://`` for TLS. All of
  them take the same user, and have the locks in the same database.

Options: ``prefix=`` stands before every name; ``fence=yes`` counts grants; ``sentinel_user=`` and
``sentinel_password=`` are shown to sentinels; ``node_timeout=`` is how long one of several may take to answer.
`drivers.address` has the rules of all URLs.
"""

from typing import NamedTuple, Self

from fencehold.drivers.address import Endpoint, Login, ParsedUrl, Scheme, TlsFiles, flag, scheme_in, seconds, text
from fencehold.drivers.tls import check_readable

PORT = 6379
SENTINEL_PORT = 26379
NODES_MIN = 3
"""With fewer, none can be lost: then one Redis is as good, and simpler."""

_LOCKS = (text("prefix"), flag("fence"))
REDIS = Scheme(
    names=("redis", "valkey"),
    secure=("rediss", "valkeys"),
    form="redis://[user:password@]localhost[:6379][/0]",
    port=PORT,
    options=(*_LOCKS, text("db")),
    hosts_min=0,
)
SENTINEL = Scheme(
    names=("redis+sentinel",),
    secure=("rediss+sentinel",),
    form="redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/mymaster",
    port=SENTINEL_PORT,
    options=(*_LOCKS, text("sentinel_user"), text("sentinel_password")),
)
REDLOCK = Scheme(
    names=("redlock",),
    secure=("redlocks",),
    form="redlock://10.0.0.1,10.0.0.2,10.0.0.3",
    port=PORT,
    options=(text("prefix"), seconds("node_timeout", None, most=60.0)),
    names_each_once=True,
)


class RedisServer(NamedTuple):
    """One server, as a connection to it is made."""

    endpoint: Endpoint
    login: Login = Login()
    db: int = 0
    tls: TlsFiles | None = None
    path: str = ""
    """Of a socket in the file system, instead of the endpoint; empty if there is none."""

    def __str__(self) -> str:
        return self.path or str(self.endpoint)


class RedisAddress(NamedTuple):
    """What a URL of one Redis says, or of the sentinels that know it."""

    server: RedisServer
    """Where the locks are; of a service of sentinels, all but its endpoint."""
    sentinels: tuple[RedisServer, ...] = ()
    service: str = ""
    prefix: str = ""
    is_fenced: bool = False

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL.

        Raises:
            UsageError: it is none; the message says what to write instead.
        """
        is_sentinels = scheme_in(url).endswith("+sentinel")
        said = _checked((SENTINEL if is_sentinels else REDIS).parse(url))
        server, sentinels, service = _through_sentinels(said) if is_sentinels else (_single(said), (), "")
        return cls(server, sentinels, service, said.options["prefix"], said.options["fence"])

    def __str__(self) -> str:
        if not self.sentinels:
            return str(self.server)
        return f"{','.join(map(str, self.sentinels))} ({self.service})"


class RedlockAddress(NamedTuple):
    """What a URL of several Redises says."""

    servers: tuple[RedisServer, ...]
    prefix: str = ""
    node_s: float | None = None
    """Seconds that one of them may take to answer; None: what is small against the ttl."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL.

        Raises:
            UsageError: it is none; the message says what to write instead.
        """
        said = _checked(REDLOCK.parse(url))
        if len(said.endpoints) < NODES_MIN:
            raise said.refusal(
                f"it names three Redises or more, each once, better five than four, as in {REDLOCK.form}; "
                "for one write redis://"
            )
        db = _database(said, said.path)
        servers = tuple(RedisServer(each, said.login, db, said.tls) for each in said.endpoints)
        return cls(servers, said.options["prefix"], said.options["node_timeout"])


def _single(said: ParsedUrl) -> RedisServer:
    if len(said.endpoints) > 1:
        raise said.refusal("it names one Redis: name several with redlock://, or sentinels with redis+sentinel://")
    if said.endpoints:
        return RedisServer(
            said.endpoints[0], said.login, _database(said, said.path or said.options["db"]), said.tls
        )
    if not said.path or said.path.isdecimal():
        raise said.refusal(f"it names a host, as in {REDIS.form}")
    return RedisServer(Endpoint("", 0), said.login, _database(said, said.options["db"]), path=f"/{said.path}")


def _through_sentinels(said: ParsedUrl) -> tuple[RedisServer, tuple[RedisServer, ...], str]:
    service, _, db = said.path.partition("/")
    if not service:
        raise said.refusal(f"it names sentinels and the service they watch, as in {SENTINEL.form}")
    login = Login(said.options["sentinel_user"], said.options["sentinel_password"])
    sentinels = tuple(RedisServer(each, login, tls=said.tls) for each in said.endpoints)
    return RedisServer(Endpoint("", PORT), said.login, _database(said, db), said.tls), sentinels, service


def _database(said: ParsedUrl, number: str) -> int:
    if number and not number.isdecimal():
        raise said.refusal(f"a database of Redis is a number, as in redis://host/0, not {number!r}")
    return int(number or 0)


def _checked(said: ParsedUrl) -> ParsedUrl:
    if said.tls is not None:
        check_readable(said.tls)
    return said
