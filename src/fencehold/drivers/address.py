"""The one language of URLs: how servers, users, TLS and options are written, whatever the scheme.

::

    scheme://[user[:password]@]host[:port][,host[:port]…][/path][?option=value&option=value…]

1. One table per scheme (`Scheme`) says what its URLs take. What they do not take is refused, with the name that
   was probably meant.
2. TLS is asked for by the scheme (`etcds://`, `rediss://`, …) or by `tls=yes`. `ca=`, `cert=` and `key=` name
   files: who signed the servers' certificates (without it: whom the system trusts), and what is presented to the
   servers. A certificate's file may hold its key as well.
3. Values are written alike everywhere: flags are yes or no, durations 2, 2s or 500ms, numbers are whole.
4. A message shows the URL whole, but never its secret; nor half of one that was not percent-encoded.
5. Older spellings go on working: a table lists them as aliases.
6. A URL is taken apart, changed and put together here, and nowhere else: `parts_of`, and what is made with it.

It is pure: no file is opened here, and no name looked up.
"""

import difflib
import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, unquote_plus, urlencode

from fencehold.durations import LEAST_S, seconds_of
from fencehold.errors import UsageError

SERVICE_PORT = 7420
REFUSED = "Connection refused"
"""The words for an endpoint where nothing listens."""

_YES = ("yes", "true", "on", "1")
_NO = ("no", "false", "off", "0")
_WHOLE = re.compile(r"[0-9]{1,18}")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
# What would end a host, or begin another part of the URL.
_NO_HOST = frozenset("/?@,[]")
# Up to the last @ there is: a password that was not percent-encoded may hold an @, a slash or a ? of its own.
_LOGIN = re.compile(r"(?<=://)([^:@/?#]*):.*@", re.DOTALL)
_BARE_LOGIN = re.compile(r"(?<=://)[^:@/?#]*@")
_SECRET = re.compile(r"(?<=[?&])([^=&]*(?:password|secret|token)[^=&]*=)[^&#]*", re.IGNORECASE)
# Not of a directory or of memory, which have no users.
_AUTHORITY = re.compile(r"(?!(?:file|memory):)([a-z]+://)(?:([^/?#]*)@)?", re.IGNORECASE)
_STRAY = "after the hosts no @ may stand: in a password write / as %2F, ? as %3F and @ as %40"


class Endpoint(NamedTuple):
    """One server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Login(NamedTuple):
    """The credentials of the caller; both empty if there are none."""

    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Login({self.user!r})"


class TlsFiles(NamedTuple):
    """What TLS is made of; None where nothing was named. `drivers.tls` makes a context of it."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verifies: bool = True
    """False: encrypted, but the peer is not verified."""
    crl: Path | None = None
    """Lists of certificates that were revoked."""

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """The files alone."""
        return self.ca, self.cert, self.key, self.crl

    def over(self, farther: "TlsFiles") -> "TlsFiles":
        """These, and what is named farther away where these name nothing. A certificate comes with its key."""
        shown_from = self if self.cert or self.key else farther
        return TlsFiles(self.ca or farther.ca, shown_from.cert, shown_from.key, self.verifies, self.crl)


@dataclass(frozen=True)
class Option:
    """One `name=value` that a scheme takes."""

    name: str
    read: Callable[[str], Any]
    """Makes a value of the text.

    Raises:
        ValueError: it is none.
    """
    form: str
    """What it must be, for the message."""
    default: Any = None


def text(name: str, default: str = "") -> Option:
    """Any text."""
    return Option(name, str, "a text", default)


def flag(name: str, *, default: bool = False) -> Option:
    """Yes or no."""
    return Option(name, _flag, "yes or no", default)


def whole(name: str, default: int | None, *, most: int | None = None, of: str = "a whole number") -> Option:
    """A whole number from 1 on."""

    def read(said: str) -> int:
        if not _WHOLE.fullmatch(said) or not 1 <= int(said) <= (most or int(said)):
            raise ValueError(said)
        return int(said)

    return Option(name, read, f"{of} above 0" if most is None else f"{of} from 1 to {most}", default)


def seconds(name: str, default: float | None, *, most: float) -> Option:
    """A duration."""
    return Option(name, lambda said: seconds_of(f"{name}=", said, least=LEAST_S, most=most), "a duration", default)


def word(name: str, words: Collection[str]) -> Option:
    """One of some words; the first if it is not there."""

    def read(said: str) -> str:
        if said not in words:
            raise ValueError(said)
        return said

    return Option(name, read, f"one of {', '.join(words)}", next(iter(words)))


def several(name: str, words: Collection[str]) -> Option:
    """Some of some words, with commas between; none if it is not there."""

    def read(said: str) -> frozenset[str]:
        found = frozenset(each for each in said.split(",") if each)
        if not found.issubset(words):
            raise ValueError(said)
        return found

    return Option(name, read, f"some of {', '.join(words)}, with commas between", frozenset())


def identifier(name: str, default: str, *, length_max: int) -> Option:
    """The name of something in a database, where nothing is quoted."""

    def read(said: str) -> str:
        if len(said) > length_max or not _IDENTIFIER.fullmatch(said):
            raise ValueError(said)
        return said

    return Option(name, read, f"a name of a-z, 0-9 and _, of at most {length_max} characters", default)


def _flag(said: str) -> bool:
    if said not in (*_YES, *_NO):
        raise ValueError(said)
    return said in _YES


def _file(said: str) -> Path:
    if not said:
        raise ValueError(said)
    return Path(said)


def _tls(said: str) -> str:
    if said == "unchecked":
        return said
    return "yes" if _flag(said) else "no"


_FILES = tuple(Option(name, _file, "the path of a file") for name in ("ca", "cert", "key"))
TLS = (Option("tls", _tls, "yes or no (or unchecked: encrypted, but not verified)"), *_FILES)
"""The options of TLS, of every scheme that can speak it."""


class UrlParts(NamedTuple):
    """A URL in its parts, each as it is written: what was percent-encoded still is."""

    scheme: str
    """In small letters."""
    login: str
    hosts: str
    path: str
    """With its slash, if it has one."""
    query: str

    @property
    def url(self) -> str:
        """Put together again."""
        who = f"{self.login}@" if self.login else ""
        # Without a login, the @ of an option would be taken for the end of one.
        query = f"?{self.query.replace('@', '%40')}" if self.query else ""
        return f"{self.scheme}://{who}{self.hosts}{self.path}{query}"

    def __repr__(self) -> str:
        return f"UrlParts({shown(self.url)})"


def scheme_in(url: str) -> str:
    """What a URL begins with, in small letters; empty if it is none."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""


def parts_of(url: str) -> UrlParts:
    """Take a URL apart.

    Raises:
        UsageError: it cannot be told where its login ends.
    """
    rest, _, query = url.partition("://")[2].partition("?")
    authority, slash, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    names = [item.partition("=")[0] for item in query.split("&")]
    if "@" in path or ("@" in query and "@" not in authority) or any("@" in name for name in names):
        raise refusal(url, _STRAY)
    return UrlParts(scheme_in(url), login, hosts, slash + path, query)


class ParsedUrl(NamedTuple):
    """A URL in its parts, read by the table of its scheme."""

    url: str
    scheme: str
    login: Login
    endpoints: tuple[Endpoint, ...]
    path: str
    """What comes after the hosts, without the slash."""
    options: Mapping[str, Any]
    """By name, all that the table has: what was said, or the default."""
    tls: TlsFiles | None
    """None: in plain text."""
    others: Mapping[str, str]
    """Options that are not the table's, and that the caller passes on."""

    def __repr__(self) -> str:
        return f"ParsedUrl({shown(self.url)})"

    def refusal(self, why: str) -> UsageError:
        """The error for a URL that cannot be meant so."""
        return refusal(self.url, why)


@dataclass(frozen=True)
class Scheme:
    """The table of one kind of URL."""

    names: tuple[str, ...]
    """What it begins with; the first is the usual one."""
    form: str
    """How it is written, for messages."""
    secure: tuple[str, ...] = ()
    """What it begins with where TLS is asked for."""
    port: int = 0
    options: tuple[Option, ...] = ()
    takes_tls: bool = True
    hosts_min: int = 1
    hosts_max: int | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Older spellings of options, and their present names."""
    names_each_once: bool = False
    has_usual_host: bool = False
    """Whether a port may come without a host, as in `postgresql://:5433/app`."""
    needs_both: bool = False
    """Whether a user comes with a password, and a password with a user."""
    files_ask_for_tls: bool = False
    """Whether to name a file is to ask for TLS."""

    def parse(self, url: str, others: Collection[str] = ()) -> ParsedUrl:
        """Read a URL; `others` are names of options that are handed on as they are.

        Raises:
            UsageError: it is none; the message says what to write instead.
        """
        scheme = scheme_in(url)
        if scheme not in (*self.names, *self.secure):
            begins = " or ".join(f"{each}://" for each in (*self.names[:1], *self.secure[:1]))
            raise refusal(url, f"write {begins}, as in {self.form}")
        parts = parts_of(url)
        said, passed_on = self._options(url, parts.query, others)
        return ParsedUrl(
            url,
            scheme,
            self._login(url, parts.login),
            self._endpoints(url, parts.hosts),
            unquote(parts.path[1:]),
            {option.name: said.get(option.name, option.default) for option in self.options},
            self._tls_files(url, scheme, said) if self.takes_tls else None,
            passed_on,
        )

    def _login(self, url: str, said: str) -> Login:
        user, _, password = said.partition(":")
        if self.needs_both and said and not (user and password):
            raise refusal(url, f"a login is user:password, both of them, as in {self.form}")
        return Login(unquote(user), unquote(password))

    def _endpoints(self, url: str, hosts: str) -> tuple[Endpoint, ...]:
        if hosts and self.hosts_max == 0:
            raise refusal(url, f"{self.names[0]}:// has no host: {self.form}")
        try:
            found = tuple(endpoint(each, self.port) for each in hosts.split(",") if each)
            if not self.has_usual_host and not all(each.host for each in found):
                raise UsageError("a host is missing")
        except UsageError:
            # What is wrong may be a part of a password: the URL is shown without it.
            why = "a host is written host or host:port (an IPv6 one in brackets), with a port from 1 to 65535"
            raise refusal(url, why) from None
        if self.names_each_once and len(set(found)) < len(found):
            raise refusal(url, "a host is named twice: name each once")
        if len(found) < self.hosts_min:
            raise refusal(url, f"it names no host: write {self.form}")
        if self.hosts_max is not None and len(found) > self.hosts_max:
            raise refusal(url, f"it names one server only: write {self.form}")
        return found

    def _options(self, url: str, query: str, others: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
        known = self._known()
        said: dict[str, Any] = {}
        passed_on: dict[str, str] = {}
        for item in query.split("&") if query else ():
            name, separator, value = (unquote_plus(part) for part in item.partition("="))
            if not separator:
                raise refusal(url, "options are written ?name=value&name=value")
            if name in known:
                said[known[name].name] = _read(url, known[name], name, value)
            elif name in others:
                passed_on[name] = value
            else:
                raise refusal(url, self._unknown(name, (*known, *others)))
        return said, passed_on

    def _known(self) -> dict[str, Option]:
        options = (*self.options, *(TLS if self.takes_tls else ()))
        known = {option.name: option for option in options}
        return known | {old: known[name] for old, name in self.aliases.items()}

    def _unknown(self, name: str, known: Iterable[str]) -> str:
        meant = difflib.get_close_matches(name, list(known), 1)
        ours = [option.name for option in (*self.options, *(TLS if self.takes_tls else ()))]
        taken = f"{self.names[0]}:// takes {', '.join(f'{each}=' for each in ours) or 'no options'}"
        return f"unknown option {name}=" + (f": did you mean {meant[0]}=? " if meant else "; ") + taken

    def _tls_files(self, url: str, scheme: str, said: Mapping[str, Any]) -> TlsFiles | None:
        files = {option.name: said[option.name] for option in _FILES if option.name in said}
        usual = "yes" if scheme in self.secure or (self.files_ask_for_tls and files) else "no"
        asked = said.get("tls", usual)
        if asked == "no":
            if scheme in self.secure:
                raise refusal(url, f"{scheme}:// asks for TLS, and tls=no does not: leave one of them out")
            if files:
                instead = f"{self.secure[0]}://, or tls=yes" if self.secure else "tls=yes"
                raise refusal(url, f"{'=, '.join(files)}= is for TLS: write {instead}, too")
            return None
        if "key" in files and "cert" not in files:
            raise refusal(url, "a key needs the certificate it belongs to: name cert=FILE, too")
        return TlsFiles(**files, verifies=asked != "unchecked")


def _read(url: str, option: Option, name: str, said: str) -> Any:
    try:
        return option.read(said)
    except UsageError as error:
        raise refusal(url, str(error)) from None
    except ValueError:
        shown_value = "***" if _SECRET.match(f"?{name}=") else repr(said)
        raise refusal(url, f"{name}= is {option.form}, not {shown_value}") from None


def endpoint(said: str, default_port: int = SERVICE_PORT) -> Endpoint:
    """Read `host` or `host:port`; an IPv6 host is in brackets.

    Raises:
        UsageError: the port is none.
    """
    host, separator, port = said.rpartition(":")
    if not separator or port.endswith("]"):
        host, port = said, str(default_port)
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UsageError(f"a port is a number from 1 to 65535, got {said!r}")
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port))


# Showing, changing and writing.


def shown(url: str) -> str:
    """The URL as it may be shown: without its password."""
    return _SECRET.sub(r"\1***", _LOGIN.sub(r"\1:***@", url))


def refusal(url: str, why: str) -> UsageError:
    """The error for a URL that cannot be used: the URL, without its secret, and why."""
    # A caller who forgot the user may have written the password in its place.
    return UsageError(f"{_BARE_LOGIN.sub('***@', shown(url))}: {why}")


def with_password(url: str, password: str) -> str:
    """The URL with the password of the user it names.

    Raises:
        UsageError: it names no user, or has a password already.
    """
    found = _AUTHORITY.match(url)
    if not password or not found:
        return url
    scheme, login, rest = found[1], found[2], url[found.end() :]
    if not login:
        raise UsageError(f"a password needs its user: write {scheme}USER@… as the engine, not {shown(url)}")
    if ":" in login:
        raise UsageError(f"the engine's password is given twice: take it out of the URL, {shown(url)}")
    return f"{scheme}{login}:{quote(password, safe='')}@{rest}"


def written(
    scheme: str,
    login: Login,
    endpoints: Iterable[Endpoint],
    path: str = "",
    options: Mapping[str, str] | None = None,
) -> str:
    """A URL made of its parts, each percent-encoded as it must be; a path that is said begins with a slash."""
    query = urlencode(options, safe="/", quote_via=quote) if options else ""
    return UrlParts(scheme, _login_text(login), _hosts_text(endpoints), quote(path), query).url


def with_login(url: str, login: Login) -> str:
    """The URL with this login instead of its own; with none, if both are empty.

    Raises:
        UsageError: as `parts_of`.
    """
    return parts_of(url)._replace(login=_login_text(login)).url


def with_endpoints(url: str, endpoints: Iterable[Endpoint]) -> str:
    """The URL of other servers, with all else that it says.

    Raises:
        UsageError: as `parts_of`; or a host is none.
    """
    return parts_of(url)._replace(hosts=_hosts_text(endpoints)).url


def without_options(url: str, names: Collection[str]) -> str:
    """The URL without some of its options, however their names are percent-encoded.

    Raises:
        UsageError: as `parts_of`.
    """
    parts = parts_of(url)
    kept = (each for each in parts.query.split("&") if unquote_plus(each.partition("=")[0]) not in names)
    return parts._replace(query="&".join(kept)).url


def _login_text(login: Login) -> str:
    return f"{quote(login.user, safe='')}:{quote(login.password, safe='')}" if any(login) else ""


def _hosts_text(endpoints: Iterable[Endpoint]) -> str:
    named = tuple(endpoints)
    for each in named:
        if not _NO_HOST.isdisjoint(each.host):
            # A login that is written before it would be sent elsewhere.
            raise UsageError(f"a host is written without any of {' '.join(sorted(_NO_HOST))}, not {each.host!r}")
    return ",".join(map(str, named))


def wrong_scheme(url: str, schemes: Iterable[str]) -> UsageError:
    """The error for a URL of no scheme that is known: the whole URL but for its secret, and what was meant."""
    known = tuple(schemes)
    scheme, separator, rest = url.partition("://")
    if not separator:
        meant, rest = known[0], _without_login(url)
    else:
        meant, rest = next(iter(difflib.get_close_matches(scheme.lower(), known, 1)), ""), _without_login(rest)
    told = repr(f"{scheme}://{rest}" if separator else rest)
    if meant and rest:
        wrong = f"unknown scheme {scheme!r} in {told}" if separator else f"a URL begins with a scheme, not {told}"
        return UsageError(f"{wrong}: did you mean {meant}://{rest}?")
    return UsageError(f"a URL begins with one of {', '.join(f'{each}://' for each in known)}, not {told}")


def _without_login(rest: str) -> str:
    login, separator, hosts = rest.rpartition("@")
    return f"***@{hosts}" if separator and login else rest


# Our own service.

_SERVICE = Scheme(
    names=("fencehold",),
    secure=("fenceholds",),
    form="fencehold://[user:secret@]host[:7420][,host…]",
    port=SERVICE_PORT,
)
SERVICE_SCHEMES = (*_SERVICE.names, *_SERVICE.secure)


class ServiceAddress(NamedTuple):
    """What the URL of a Fencehold service says: its nodes, the credentials, and what TLS is made of."""

    endpoints: tuple[Endpoint, ...]
    user: str
    secret: str
    tls: TlsFiles | None
    """None: in plain text."""

    def __repr__(self) -> str:
        # Whatever is shown of it, the secret is not.
        return f"ServiceAddress({','.join(map(str, self.endpoints))}, user={self.user!r}, tls={self.tls})"


def service_address(url: str) -> ServiceAddress:
    """Read `fencehold://[user:secret@]host[:port][,host[:port]…]`; `fenceholds://` is the same over TLS.

    That takes options, too: `?ca=FILE&cert=FILE&key=FILE`.

    Raises:
        UsageError: it is no such URL; the message says what to write instead.
    """
    if scheme_in(url) not in SERVICE_SCHEMES:
        raise wrong_scheme(url, SERVICE_SCHEMES)
    said = _SERVICE.parse(url)
    if said.tls is not None and not said.tls.verifies:
        # The peer decides who holds a lock: there is no use for one that is not verified.
        raise said.refusal("servers of Fencehold are always verified: name who signed their certificates, ca=FILE")
    return ServiceAddress(said.endpoints, *said.login, said.tls)
