"""The address of a database: a URL as libpq takes it, and options of our own.

1. Ours are taken out, and libpq never sees them; whatever is not ours must be libpq's.
2. The password is in no message and in no `repr`.
3. A connection whose peer is gone without a word is found out within seconds, unless the URL says otherwise.
4. Of several hosts the one that takes writes is used.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from fencehold.errors import UsageError

POOLERS = ("detect", "none", "session", "transaction")

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_DEFAULTS = {
    "fallback_application_name": "fencehold",
    "target_session_attrs": "read-write",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


class Address(NamedTuple):
    """What a URL says."""

    params: dict[str, Any]
    """Libpq's."""
    ours: dict[str, str]
    """Options of our own."""

    def __repr__(self) -> str:
        return f"Address({self})"

    def __str__(self) -> str:
        hosts = str(self.params.get("host") or self.params.get("hostaddr") or "localhost").split(",")
        ports = str(self.params.get("port") or "").split(",")
        shown = [
            f"{host}:{port}" if port else host for host, port in zip(hosts, _as_many(ports, hosts), strict=True)
        ]
        return f"postgresql://{','.join(shown)}/{self.params.get('dbname', '')}"

    @property
    def host_count(self) -> int:
        """How many servers it names."""
        return str(self.params.get("host") or self.params.get("hostaddr") or "").count(",") + 1

    def name(self, option: str, default: str, length_max: int) -> str:
        """An option of ours that names something in the database.

        Raises:
            UsageError: it cannot be such a name.
        """
        text = self.ours.get(option, default)
        if len(text) > length_max or not _NAME.fullmatch(text):
            raise UsageError(
                f"{option}= is a name of a-z, 0-9 and _, of at most {length_max} characters, not {text!r}"
            )
        return text

    def word(self, option: str, words: Collection[str]) -> str:
        """An option of ours that is one of some words, the first if it is not there.

        Raises:
            UsageError: it is none of them.
        """
        text = self.ours.get(option, next(iter(words)))
        if text not in words:
            raise UsageError(f"{option}= is one of {', '.join(words)}, not {text!r}")
        return text

    def number(self, option: str, default: int, most: int) -> int:
        """An option of ours that is a whole number from 1 on.

        Raises:
            UsageError: it is none.
        """
        text = self.ours.get(option, str(default))
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= most:
            raise UsageError(f"{option}= is a whole number from 1 to {most}, not {text!r}")
        return int(text)


def parse(url: str, schemes: Collection[str], options: Collection[str]) -> Address:
    """Read a URL of one of these schemes, with these options of our own.

    Raises:
        UsageError: it is not one; the message says what to write instead.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in schemes:
        raise UsageError(f"the URL starts with {next(iter(schemes))}://")
    head, _, query = rest.partition("?")
    if "@" in query:
        raise UsageError("after the ? no @ may stand: write ? in a password as %3F, and @ as %40")
    asked = parse_qsl(query, keep_blank_values=True)
    ours = {name: value for name, value in asked if name in options}
    theirs = {name: value for name, value in asked if name not in options}
    return Address(_params(scheme, f"postgresql://{head}", theirs, options), ours)


def _params(scheme: str, head: str, options: Mapping[str, str], ours: Collection[str]) -> dict[str, Any]:
    try:
        params = conninfo_to_dict(f"{head}?{urlencode(options, quote_via=quote)}" if options else head)
    except ProgrammingError:
        # What libpq says quotes the part it stumbled over, and that may be the password.
        raise UsageError(
            f"the URL cannot be read: write {scheme}://user:password@host:port/database?option=value, with what "
            f"is special in a URL as %XX, and options that libpq knows or that are ours ({', '.join(ours)}); "
            f"those named are: {', '.join(options) or 'none'}"
        ) from None
    ports = str(params.get("port", "")).replace(",", "")
    if "@" in str(params.get("dbname", "")) or (ports and not ports.isdecimal()):
        raise UsageError("a port is a number, and no @ may stand after the hosts: write / in a password as %2F")
    return {**_DEFAULTS, **params}


def _as_many(ports: list[str], hosts: list[str]) -> list[str]:
    return ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
