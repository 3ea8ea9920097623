"""An address in etcd: a URL, read once, and wrong ones told what is wrong.

``etcd://[user:password@]host[:2379][,host…][/prefix]``, and ``etcds://`` for TLS, which also takes ``ca=FILE``
(who signed the members' certificates; without it those that the system trusts), ``cert=FILE`` and ``key=FILE``
(what the members are shown). A journal's may say ``?compact=false``, and ``room_bytes=NUMBER``: no more than so
many bytes of etcd's database are to be in use, whatever its quota.

The password is in no message and in no `repr`.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from fencehold.errors import UsageError

PORT = 2379
PREFIX = "/fencehold/"
_FILES = ("ca", "cert", "key")
_JOURNAL = ("compact", "room_bytes")


class Files(NamedTuple):
    """What TLS is made of; None where nothing was named."""

    ca: Path | None
    cert: Path | None
    key: Path | None


class Address(NamedTuple):
    """What a URL says."""

    endpoints: tuple[str, ...]
    """`host:port`, in the order they are named."""
    prefix: str = PREFIX
    """What all keys begin with. It begins and ends with a slash."""
    user: str = ""
    password: str = ""
    tls: Files | None = None
    compact: bool = True
    """Have etcd forget old revisions, all of them, when trimming. Not where others read or watch those."""
    room_bytes: int | None = None
    """So much of the database may be in use, of whoever it is; None: as much as its quota allows."""

    def __repr__(self) -> str:
        return f"Address({self})"

    def __str__(self) -> str:
        return f"{'etcd' if self.tls is None else 'etcds'}://{','.join(self.endpoints)}{self.prefix.rstrip('/')}"


def parse(url: str, *, compacts: bool = True) -> Address:
    """Read a URL; `compacts` says whether it is that of a journal, which may be told not to.

    Raises:
        UsageError: it is not one; the message says what to write instead.
    """
    # Split by hand: `urllib` takes the list for one host, and refuses it when one of several is IPv6.
    scheme, separator, rest = url.partition("://")
    if scheme not in ("etcd", "etcds") or not separator:
        raise UsageError("the URL of an etcd starts with etcd://, or etcds:// for TLS")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    if "@" in path or "@" in query:
        # Said without a word of it: what stands before the @ is a password cut in two.
        raise UsageError("after the hosts no @ may stand: write / in a password as %2F, ? as %3F, @ as %40")
    login, _, hosts = authority.rpartition("@")
    user, password = _login(login)
    options = _options(query, is_tls=scheme == "etcds", compacts=compacts)
    return Address(
        endpoints=_endpoints(hosts),
        prefix=_prefix(path),
        user=user,
        password=password,
        tls=_files(options) if scheme == "etcds" else None,
        compact=_flag("compact", options.get("compact", "true")),
        room_bytes=_bytes("room_bytes", options["room_bytes"]) if "room_bytes" in options else None,
    )


def _endpoints(hosts: str) -> tuple[str, ...]:
    endpoints = tuple(_endpoint(text) for text in hosts.split(",") if text)
    if not endpoints:
        raise UsageError("the URL names no host: etcd://host[:port][,host…]")
    if len(set(endpoints)) < len(endpoints):
        raise UsageError(f"the URL names a host twice: {hosts}")
    return endpoints


def _endpoint(text: str) -> str:
    host, separator, port = text.rpartition(":")
    if not separator or port.endswith("]"):
        host, port = text, str(PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UsageError(f"a host is followed by a port from 1 to 65535, or none: {text!r}")
    return f"{host}:{port}"


def _login(text: str) -> tuple[str, str]:
    user, separator, password = text.partition(":")
    if text and not (user and separator and password):
        raise UsageError("a login in the URL is user:password, both of them, with % for what is special in a URL")
    return unquote(user), unquote(password)


def _prefix(path: str) -> str:
    segments = [unquote(segment) for segment in path.split("/") if segment]
    return f"/{'/'.join(segments)}/" if segments else PREFIX


def _options(query: str, *, is_tls: bool, compacts: bool) -> dict[str, str]:
    known = (*(_JOURNAL if compacts else ()), *(_FILES if is_tls else ()))
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError as error:
        raise UsageError(f"options are written ?name=value&name=value, not ?{query}") from error
    for name in options:
        if name in _FILES and not is_tls:
            raise UsageError(f"{name}= is for TLS: the URL must start with etcds://")
        if name not in known:
            raise UsageError(f"unknown option {name}=: known are {', '.join(known) or 'none'}")
    return options


def _files(options: dict[str, str]) -> Files:
    if ("cert" in options) != ("key" in options):
        raise UsageError("a certificate needs its key: name both cert=FILE and key=FILE, or none")
    return Files(*(Path(options[name]) if name in options else None for name in _FILES))


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise UsageError(f"{name}= is true or false, not {text!r}")
    return text == "true"


def _bytes(name: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"{name}= is a number of bytes above 0, not {text!r}")
    return int(text)
