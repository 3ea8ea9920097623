"""The address of locks in MySQL or MariaDB: ``mysql://user:password@host[:3306]/database[?option=value]``.

- ``replication``: ``synchronous`` (default: one server, or others that have each commit before it is answered), or
  ``asynchronous``: a server that takes over may lack the last grants, so state cannot be protected.
- ``connections``: how many are used at once, 8 by default; they are opened when they are needed.
- ``timeout``: how long one step may take, 5 seconds by default: 2, 2s or 500ms.
- ``socket``: the path of a Unix socket, in place of host and port.
- ``ssl``: ``on`` encrypts and checks the server's certificate and name, ``unchecked`` only encrypts.
- ``ssl_ca``, ``ssl_cert``, ``ssl_key``: paths of files. ``ssl_ca`` means ``ssl=on``.

The password is in no message and in no `repr`.
"""

import re
import ssl
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from fencehold.durations import LEAST_S, seconds_of
from fencehold.errors import UsageError

REPLICATIONS = ("synchronous", "asynchronous")
PORT = 3306
_SSL = ("off", "on", "unchecked")
_OPTIONS = ("replication", "connections", "timeout", "socket", "ssl", "ssl_ca", "ssl_cert", "ssl_key")
_CONNECTIONS_MAX = 64
_TIMEOUT_S_MAX = 60.0
_FORM = "write mysql://user:password@host:3306/database, with what is special in a URL as %XX"
_WHOLE = re.compile(r"[0-9]{1,9}")


class Address(NamedTuple):
    """What a URL says."""

    host: str
    port: int
    user: str
    password: str
    database: str
    replication: str = REPLICATIONS[0]
    connections: int = 8
    timeout: float = 5.0
    socket: str = ""
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Address({self})"

    def __str__(self) -> str:
        return f"mysql://{self.user}@{self.socket or f'{self.host}:{self.port}'}/{self.database}"

    def arguments(self) -> dict[str, Any]:
        """What the driver takes."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "db": self.database,
            "unix_socket": self.socket or None,
            "ssl": self.tls,
            "charset": "utf8mb4",
            "program_name": "fencehold",
        }


def parse(url: str) -> Address:
    """Read a URL.

    Raises:
        UsageError: it is not one; the message says what to write instead.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or PORT
    except ValueError:
        # What is said of it may quote the password.
        raise UsageError(f"the URL cannot be read: {_FORM}") from None
    database = unquote(parts.path.removeprefix("/"))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _check(parts.hostname or options.get("socket"), parts.username, database, options)
    return Address(
        parts.hostname or "localhost",
        port,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        database,
        _word("replication", options, REPLICATIONS),
        _count("connections", options, 8, _CONNECTIONS_MAX),
        seconds_of("timeout=", options.get("timeout", 5.0), least=LEAST_S, most=_TIMEOUT_S_MAX),
        options.get("socket", ""),
        _tls(options),
    )


def _check(host: str | None, user: str | None, database: str, options: dict[str, str]) -> None:
    for what, is_there in (("a host", host), ("a user", user), ("a database", database)):
        if not is_there:
            raise UsageError(f"the URL names no {what.split()[1]}: {_FORM}")
    if "/" in database or "@" in database:
        raise UsageError(f"the name of a database has no / and no @ in it: {_FORM}")
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise UsageError(f"options of mysql:// are {', '.join(_OPTIONS)}, not {', '.join(unknown)}")


def _word(name: str, options: dict[str, str], words: tuple[str, ...]) -> str:
    word = options.get(name, words[0])
    if word not in words:
        raise UsageError(f"{name}= is one of {', '.join(words)}, not {word!r}")
    return word


def _count(name: str, options: dict[str, str], usual: int, most: int) -> int:
    text = options.get(name, str(usual))
    if not _WHOLE.fullmatch(text) or not 0 < int(text) <= most:
        raise UsageError(f"{name}= is a whole number from 1 to {most}, not {text!r}")
    return int(text)


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    files = {name: options[name] for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in options}
    word = _word("ssl", options, _SSL)
    if word == "off":
        if "ssl" in options and files:
            raise UsageError("ssl=off takes no ssl_ca, ssl_cert or ssl_key")
        if not files:
            return None
    try:
        context = ssl.create_default_context(cafile=files.get("ssl_ca"))
        if "ssl_cert" in files:
            context.load_cert_chain(files["ssl_cert"], files.get("ssl_key"))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"a file of ssl_ca, ssl_cert or ssl_key cannot be read: {error}") from error
    if word == "unchecked":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
