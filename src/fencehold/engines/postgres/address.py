"""The address of a journal in Postgres: a URL as libpq takes it, and some options of our own.

``postgresql://[user[:password]@]host[:5432][,host…]/database[?schema=fencehold&…]``

Ours, which libpq never sees:

- ``schema``: where the tables are. One schema, one journal.
- ``synchronous_commit``: ``on`` (default), ``remote_apply``, or ``remote_write`` where standbys need not have
  synced. Never less: an append that was answered is on disk.
- ``room_bytes``: no more than so many bytes are to be in use by the database: what its disk has left, no server
  tells.
- ``unsafe``: what the server may lack, by name and with commas between; see `greeting`.

All others are libpq's: ``sslmode``, ``sslrootcert``, ``passfile``, … The password is in no message and in no
`repr`.
"""

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from fencehold.errors import UsageError

SCHEMA = "fencehold"
DURABILITIES = ("on", "remote_apply", "remote_write")
UNSAFE = ("fsync", "full_page_writes", "asynchronous")

_OURS = ("schema", "synchronous_commit", "room_bytes", "unsafe")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# A connection whose peer is gone without a word is found out within seconds, also where nothing is sent.
_DEFAULTS = {
    "fallback_application_name": "fencehold",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# Whether a server takes writes is asked of it, and told in words that help.
_DROPPED = ("target_session_attrs", "load_balance_hosts")


class Address(NamedTuple):
    """What a URL says."""

    hosts: tuple[dict[str, Any], ...]
    """What libpq needs to know, for one server each, in the order they are named."""
    schema: str = SCHEMA
    synchronous_commit: str = "on"
    unsafe: frozenset[str] = frozenset()
    room_bytes: int | None = None
    """So large may the database get, by whoever uses it; None: nobody knows."""

    def __repr__(self) -> str:
        return f"Address({self})"

    def __str__(self) -> str:
        hosts = ",".join(shown(host) for host in self.hosts)
        return f"postgresql://{hosts}/{self.hosts[0].get('dbname', '')}?schema={self.schema}"


def shown(host: dict[str, Any]) -> str:
    """Which server: host and port."""
    name = host.get("host") or host.get("hostaddr") or "localhost"
    return f"{name}:{host['port']}" if host.get("port") else str(name)


def parse(url: str) -> Address:
    """Read a URL.

    Raises:
        UsageError: it is not one; the message says what to write instead.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        raise UsageError("the URL of a journal in Postgres starts with postgresql://")
    head, _, query = url.partition("?")
    if "@" in query:
        raise UsageError("after the ? no @ may stand: write ? in a password as %3F, and @ as %40")
    options = parse_qsl(query, keep_blank_values=True)
    ours = {name: value for name, value in options if name in _OURS}
    theirs = [(name, value) for name, value in options if name not in _OURS]
    return Address(
        _hosts(_params(head, theirs)),
        _schema(ours.get("schema", SCHEMA)),
        _durability(ours.get("synchronous_commit", "on")),
        _unsafe(ours.get("unsafe", "")),
        _bytes(ours["room_bytes"]) if "room_bytes" in ours else None,
    )


def _params(head: str, options: list[tuple[str, str]]) -> dict[str, Any]:
    try:
        params = conninfo_to_dict(f"{head}?{urlencode(options)}")
    except ProgrammingError:
        # What libpq says quotes the part it stumbled over, and that may be the password.
        names = ", ".join(name for name, _ in options) or "none"
        raise UsageError(
            "the URL cannot be read: write postgresql://user:password@host:port/database?option=value, with what "
            f"is special in a URL as %XX, and options that libpq knows or that are ours; those named are: {names}"
        ) from None
    ports = str(params.get("port", "")).replace(",", "")
    if "@" in str(params.get("dbname", "")) or (ports and not ports.isdecimal()):
        raise UsageError("a port is a number, and no @ may stand after the hosts: write / in a password as %2F")
    for name in _DROPPED:
        params.pop(name, None)
    return {**_DEFAULTS, **params}


def _hosts(params: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """One set of parameters for each server: libpq has them in lists, side by side."""
    lists = {name: str(params[name]).split(",") for name in ("host", "hostaddr", "port") if name in params}
    count = max((len(values) for values in lists.values()), default=1)
    for name, values in lists.items():
        if len(values) not in (1, count):
            raise UsageError(f"the URL names {count} servers, but {len(values)} for {name}: name as many, or one")
    return tuple(params | {name: _nth(values, at) for name, values in lists.items()} for at in range(count))


def _nth(values: list[str], at: int) -> str | None:
    return (values[at] if len(values) > 1 else values[0]) or None


def _schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text):
        raise UsageError(f"schema= is a name of a-z, 0-9 and _, of at most 63 characters, not {text!r}")
    return text


def _durability(text: str) -> str:
    if text not in DURABILITIES:
        raise UsageError(f"synchronous_commit= is one of {', '.join(DURABILITIES)}, not {text!r}")
    return text


def _unsafe(text: str) -> frozenset[str]:
    names = frozenset(name for name in text.split(",") if name)
    unknown = sorted(names.difference(UNSAFE))
    if unknown:
        raise UsageError(f"unsafe= names some of {', '.join(UNSAFE)}, not {', '.join(unknown)}")
    return names


def _bytes(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"room_bytes= is a number of bytes above 0, not {text!r}")
    return int(text)
