"""Addresses: where an ensemble is, under which root the names are kept, and who we are to it.

1. A password is in no message and in no `repr`, and neither is a URL that may hold one.
2. Whatever can be wrong with a URL is said when it is read, not when the first server is asked.
"""

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from fencehold.errors import UsageError

PORT = 2181
ROOT = "/fencehold-locks"
_FORM = "zookeeper://[user:password@]host[:port][,host[:port]…][/root]"
_OPTIONS = ("tls", "ca", "cert", "key")


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
        return f"zookeeper://{','.join(self.hosts)}{self.root}"

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Read `zookeeper://[user:password@]host[:port][,host[:port]…][/root][?tls=yes&ca=…&cert=…&key=…]`.

        Raises:
            UsageError: it is not such a URL, or a file it names cannot be used.
        """
        # Split by hand: `urllib` takes the list for one host, and refuses it when one of several is IPv6.
        scheme, _, rest = url.partition("://")
        if scheme not in ("zookeeper", "zk"):
            raise UsageError(f"the URL of an ensemble is {_FORM}")
        place, _, query = rest.partition("?")
        login, _, place = place.rpartition("@")
        hosts, slash, root = place.partition("/")
        return cls(_hosts(hosts), _root(unquote(slash + root)), *_login(login), _tls(_options(query)))


def _login(text: str) -> tuple[str, str]:
    user, _, password = text.partition(":")
    if text and not (user and password):
        raise UsageError(f"a login has a user and a password: {_FORM}")
    return unquote(user), unquote(password)


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(_host(part) for part in text.split(",") if part)
    if not hosts:
        raise UsageError(f"the URL of an ensemble names at least one host: {_FORM}")
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
        raise UsageError(f"the root of the names is a path such as {ROOT}, and not within /zookeeper: {root!r}")
    return root


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in _OPTIONS or not value:
            raise UsageError(f"the options of zookeeper:// are tls=yes, ca=, cert= and key=FILE, and not {name!r}")
    return options


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    if not options:
        return None
    if options.get("tls") != "yes":
        raise UsageError("tls is yes or left out; ca, cert and key are files for tls=yes")
    if "key" in options and "cert" not in options:
        raise UsageError("a key needs the certificate it belongs to: cert=FILE")
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except OSError as error:
        raise UsageError(f"a file for TLS cannot be used: {error}") from error
    return context
