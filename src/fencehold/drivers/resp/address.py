"""The address of one Redis or several: a URL, read once, and wrong ones told what is wrong.

``scheme://[user:password@]host[:port][,host…][/path][?option=value&…]``. What the path and the options mean is for
the backend; those of TLS are read here: ``ca=FILE`` (who signed the servers' certificates; without it those the
system trusts), ``cert=FILE`` and ``key=FILE`` (what the servers are shown).

The password is in no message and in no `repr`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from fencehold.client.endpoints import Endpoint, endpoint
from fencehold.errors import UsageError

PORT = 6379
SENTINEL_PORT = 26379
TLS_OPTIONS = ("ca", "cert", "key")


class Login(NamedTuple):
    """Who asks. Without a user it is Redis's `default`."""

    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Login({self.user!r})"


class Files(NamedTuple):
    """What TLS is made of; None where nothing was named."""

    ca: Path | None
    cert: Path | None
    key: Path | None


class Server(NamedTuple):
    """One server, as a connection to it is made."""

    endpoint: Endpoint
    login: Login = Login()
    db: int = 0
    tls: Files | None = None
    path: str = ""
    """Of a socket in the file system, instead of the endpoint; empty if there is none."""

    def __str__(self) -> str:
        return self.path or str(self.endpoint)


class Parts(NamedTuple):
    """A URL in its parts."""

    scheme: str
    login: Login
    endpoints: tuple[Endpoint, ...]
    path: str
    """What stands behind the hosts, without the slash."""
    options: Mapping[str, str]

    def files(self) -> Files:
        """The files that TLS is to use.

        Raises:
            UsageError: one of them is not there, or a certificate has no key.
        """
        ca, cert, key = (_file(name, self.options.get(name, "")) for name in TLS_OPTIONS)
        if (cert is None) != (key is None):
            raise UsageError("cert=FILE and key=FILE of a URL belong together: name both, or none")
        return Files(ca, cert, key)

    def flag(self, name: str) -> bool:
        """An option that says yes or no; no if it is not there."""
        said = self.options.get(name, "no")
        if said not in ("yes", "no"):
            raise UsageError(f"{name}= of a URL is yes or no, not {said!r}")
        return said == "yes"


def split(url: str, options: Sequence[str], port: int = PORT) -> Parts:
    """Take a URL apart that may have these options.

    Raises:
        UsageError: it makes no sense; the message says what to write instead.
    """
    # Split by hand: `urllib` takes the list for one host, and refuses it when one of several is IPv6.
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    user, _, password = login.partition(":")
    nodes = tuple(endpoint(text, port) for text in hosts.split(",") if text)
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in options:
            known = ", ".join(f"{each}=" for each in options)
            raise UsageError(f"{name}= is no option of a {scheme}:// URL; there are {known}")
    return Parts(scheme, Login(unquote(user), unquote(password)), nodes, unquote(path), given)


def database(text: str) -> int:
    """The number of a database; 0 if nothing is said."""
    if text and not text.isdecimal():
        raise UsageError(f"a database of Redis is a number, as in redis://host/0, not {text!r}")
    return int(text or 0)


def _file(name: str, said: str) -> Path | None:
    if not said:
        return None
    if not Path(said).is_file():
        raise UsageError(f"{name}= of a URL names a file that is there, not {said!r}")
    return Path(said)
