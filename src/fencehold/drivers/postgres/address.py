"""The address of a Postgres database: a URL as libpq takes it, and options of our own.

1. Ours are taken out, and libpq never sees them; every other option must be one of libpq's.
2. TLS may be asked for as everywhere (`tls=yes`, `ca=`, `cert=`, `key=`), or in libpq's words (`sslmode=`, …).
3. The password is in no message and in no `repr`.
4. A connection whose peer is gone without a word is found out within seconds, unless the URL says otherwise.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

from psycopg import ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict

from fencehold.drivers.address import ParsedUrl, Scheme, parts_of, refusal
from fencehold.drivers.postgres.connection import Host

POOLERS = ("detect", "none", "session", "transaction")
_DEFAULTS = {
    # Of several servers, the one that takes writes.
    "target_session_attrs": "read-write",
    "fallback_application_name": "fencehold",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
FORM = "postgresql://user:password@host:5432,host…/database?option=value"


class PostgresAddress(NamedTuple):
    """What a URL says."""

    params: dict[str, Any]
    """Libpq's."""
    options: Mapping[str, Any]
    """Our own, as the table has them."""

    @classmethod
    def parse(cls, url: str, table: Scheme) -> Self:
        """Read a URL by a table.

        Raises:
            UsageError: it is none; the message says what to write instead.
        """
        said = table.parse(url, _keywords())
        return cls({**_DEFAULTS, **_params(said)}, said.options)

    def __repr__(self) -> str:
        return f"PostgresAddress({self})"

    def __str__(self) -> str:
        hosts = str(self.params.get("host") or self.params.get("hostaddr") or "localhost").split(",")
        ports = str(self.params.get("port") or "").split(",")
        if len(ports) != len(hosts):
            ports = ports[:1] * len(hosts)
        shown = [f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=True)]
        return f"postgresql://{','.join(shown)}/{self.params.get('dbname', '')}"

    @property
    def host_count(self) -> int:
        """How many servers it names."""
        return str(self.params.get("host") or self.params.get("hostaddr") or "").count(",") + 1


def hosts_of(params: Host, url: str) -> tuple[Host, ...]:
    """One set of parameters for each server: libpq has them in lists, side by side.

    Raises:
        UsageError: the lists differ in length.
    """
    lists = {name: str(params[name]).split(",") for name in ("host", "hostaddr", "port") if name in params}
    count = max((len(values) for values in lists.values()), default=1)
    for name, values in lists.items():
        if len(values) not in (1, count):
            raise refusal(url, f"it names {count} servers, but {len(values)} for {name}: name as many, or one")
    return tuple(params | {name: _nth(values, at) for name, values in lists.items()} for at in range(count))


def _nth(values: list[str], at: int) -> str | None:
    return (values[at] if len(values) > 1 else values[0]) or None


@cache
def _keywords() -> frozenset[str]:
    """The options that libpq takes; and one more, that it takes in URLs."""
    return frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults()) | {"ssl"}


def _params(said: ParsedUrl) -> dict[str, Any]:
    options = {**said.others, **_tls(said)}
    head = parts_of(said.url)._replace(scheme="postgresql", query="").url
    try:
        params = conninfo_to_dict(f"{head}?{urlencode(options, quote_via=quote)}" if options else head)
    except ProgrammingError:
        # What libpq says quotes the part it stumbled over, and that may be the password.
        raise said.refusal(f"libpq cannot read it: write {FORM}, with what is special in a URL as %XX") from None
    ports = str(params.get("port", "")).replace(",", "")
    if ports and not ports.isdecimal():
        raise said.refusal("a port is a number")
    return params


def _tls(said: ParsedUrl) -> dict[str, str]:
    """The TLS options of the URL, in libpq's words."""
    if said.tls is None:
        return {}
    theirs = [name for name in said.others if name.startswith("ssl")]
    if theirs:
        raise said.refusal(f"tls= and {theirs[0]}= both say how TLS is used: leave one of them out")
    ca, cert, key, verifies, _ = said.tls
    files = {"sslcert": cert, "sslkey": key or cert}
    words = {name: str(path) for name, path in files.items() if path is not None}
    if not verifies:
        return {"sslmode": "require", **words}
    return {"sslmode": "verify-full", "sslrootcert": "system" if ca is None else str(ca), **words}
