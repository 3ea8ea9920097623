"""Addresses: where an ensemble is, under which root something is kept in it, and who we are to it.

Which schemes and options a URL may have, and what its root is for, is said by whoever reads it. For all of them:

1. A password is in no message and in no `repr`, and neither is a URL that may hold one.
2. Whatever can be wrong with a URL is said when it is read, not when the first server is asked.
"""

import ssl
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from fencehold.errors import UsageError

PORT = 2181


@dataclass(frozen=True)
class Ensemble:
    """What a URL says."""

    hosts: tuple[str, ...]
    """`host:port` of each server."""
    root: str
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


class Parts(NamedTuple):
    """A URL in pieces, none of them looked into yet."""

    scheme: str
    login: str
    hosts: str
    root: str
    query: str


def parts_of(url: str) -> Parts:
    """Take `scheme://[login@]hosts[/root][?query]` apart, whatever the pieces are."""
    # Split by hand: `urllib` takes the list for one host, and refuses it when one of several is IPv6.
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    login, _, place = place.rpartition("@")
    hosts, slash, root = place.partition("/")
    return Parts(scheme, login, hosts, unquote(slash + root), query)


def login_of(text: str, form: str) -> tuple[str, str]:
    """User and password, both empty if there are none; `form` is what should have been written.

    Raises:
        UsageError: there is one of them.
    """
    user, _, password = text.partition(":")
    if text and not (user and password):
        raise UsageError(f"a login has a user and a password: {form}")
    return unquote(user), unquote(password)


def hosts_of(text: str, otherwise: str) -> tuple[str, ...]:
    """`host:port` of each server; `otherwise` is said if there is none.

    Raises:
        UsageError: there is none, or one that is no host.
    """
    hosts = tuple(_host(part) for part in text.split(",") if part)
    if not hosts:
        raise UsageError(otherwise)
    return hosts


def _host(text: str) -> str:
    host, separator, port = text.rpartition(":")
    if not separator or port.endswith("]"):
        host, port = text, str(PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UsageError(f"a host is named as host or host:port, an IPv6 one in brackets: {text!r}")
    return f"{host}:{port}"


def root_of(text: str, usual: str, of: str) -> str:
    """The root, the `usual` one if none is named; `of` says what is kept there.

    Raises:
        UsageError: it is no path, or one of ZooKeeper's own.
    """
    root = text.rstrip("/") or usual
    parts = root[1:].split("/")
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts) or parts[0] == "zookeeper":
        raise UsageError(f"the root of {of} is a path such as {usual}, and not within /zookeeper: {root!r}")
    return root


def options_of(query: str, known: Collection[str], form: str) -> dict[str, str]:
    """The options by name; `form` says which there are.

    Raises:
        UsageError: there is one that is not known, or has no value.
    """
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in known or not value:
            raise UsageError(f"the options of {form}, and not {name!r}")
    return options


def tls_of(options: dict[str, str]) -> ssl.SSLContext:
    """Whom to trust (`ca`), and who we are (`cert`, `key`), from the files that the options name.

    Raises:
        UsageError: one of them cannot be used.
    """
    if "key" in options and "cert" not in options:
        raise UsageError("a key needs the certificate it belongs to: cert=FILE")
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except OSError as error:
        raise UsageError(f"a file for TLS cannot be used: {error}") from error
    return context
