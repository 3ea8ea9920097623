"""Addresses: where an ensemble is, under which root the journal lives in it, and who we are to it.

1. A password is in no message and in no `repr`, and neither is a URL that may hold one.
2. Whatever can be wrong with a URL is said when it is read, not when the first server is asked.
"""

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from fencehold.errors import UsageError

PORT = 2181
ROOT = "/fencehold"
_OPTIONS = ("ca", "cert", "key")


@dataclass(frozen=True)
class Address:
    """What a URL says."""

    hosts: tuple[str, ...]
    """`host:port` of each server."""
    root: str = ROOT
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __str__(self) -> str:
        scheme = "zookeeper" if self.tls is None else "zookeepers"
        return f"{scheme}://{','.join(self.hosts)}{self.root}"

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Read `zookeeper://[user:password@]host[:port][,host[:port]…][/root]`.

        `zookeepers://` is the same over TLS; `?ca=FILE&cert=FILE&key=FILE` says whom to trust and who we are.

        Raises:
            UsageError: it is not such a URL, or a file it names cannot be used.
        """
        # Split by hand: `urllib` takes the list for one host, and refuses it when one of several is IPv6.
        scheme, _, rest = url.partition("://")
        if scheme not in ("zookeeper", "zookeepers"):
            raise UsageError("the URL of an ensemble starts with zookeeper:// or zookeepers://")
        place, _, query = rest.partition("?")
        login, _, place = place.rpartition("@")
        hosts, slash, root = place.partition("/")
        if query and scheme == "zookeeper":
            raise UsageError("only zookeepers:// takes options, and they are about TLS")
        tls = _tls(_options(query)) if scheme == "zookeepers" else None
        return cls(_hosts(hosts), _root(unquote(slash + root)), *_login(login), tls)


def _login(text: str) -> tuple[str, str]:
    user, _, password = text.partition(":")
    if text and not (user and password):
        raise UsageError("a login has a user and a password: user:password@")
    return unquote(user), unquote(password)


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(_host(part) for part in text.split(",") if part)
    if not hosts:
        raise UsageError("the URL of an ensemble names at least one host")
    return hosts


def _host(text: str) -> str:
    host, separator, port = text.rpartition(":")
    if not separator or port.endswith("]"):
        host, port = text, str(PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UsageError(f"a host is named as host or host:port, an IPv6 one in brackets: {text!r}")
    return f"{host}:{port}"


def _root(text: str) -> str:
    root = text.rstrip("/") or ROOT
    parts = root[1:].split("/")
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts) or parts[0] == "zookeeper":
        raise UsageError(f"the root of a journal is a path such as {ROOT}, and not within /zookeeper: {root!r}")
    return root


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in _OPTIONS or not value:
            raise UsageError(f"the options of zookeepers:// name files, {', '.join(_OPTIONS)}, and not {name!r}")
    return options


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    if "key" in options and "cert" not in options:
        raise UsageError("a key needs the certificate it belongs to: cert=FILE")
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except OSError as error:
        raise UsageError(f"a file for TLS cannot be used: {error}") from error
    return context
