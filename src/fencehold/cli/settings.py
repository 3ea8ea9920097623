"""Settings of `serve`: each has a name, a type and a default. A TOML file sets them by the same names.

1. A value of the wrong type is refused. The message names the key and says what is allowed. Nothing is guessed.
2. An unknown key is refused, too: a mistyped bound would silently be no bound.
3. Beside the settings there are tables of bounds. Their fields and defaults are those of the server's own classes.
"""

import difflib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import typer

from fencehold.cli.options import lasting
from fencehold.core.limits import Limits
from fencehold.doors.resp.bounds import Bounds as ListenerBounds
from fencehold.errors import UsageError
from fencehold.node.leader import Bounds as LeaderBounds
from fencehold.node.suspicion import Patience
from fencehold.observe.feed import ObserveBounds
from fencehold.observe.history.store import Bounds as HistoryBounds
from fencehold.placement.cells import Reach
from fencehold.placement.map import SHARDS_MAX
from fencehold.security.audit import Bounds as AuditBounds
from fencehold.security.tls import Clients
from fencehold.server import PORT

_FILE_BYTES_MAX = 1 << 20


class Auth(Enum):
    """Whether authentication is required."""

    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"

    @property
    def is_required(self) -> bool | None:
        """None: where other machines can connect, and where certificates of clients are required."""
        return None if self is Auth.AUTO else self is Auth.REQUIRED


class Wrong(Exception):
    """A value is not what it should be. The text says what it should be."""


class Setting(NamedTuple):
    """One setting of a server."""

    read: Callable[[Any], Any]
    """Converts the TOML value, or raises `Wrong`."""
    default: Any
    variable: str


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise Wrong("a text")
    return value


def _path(value: Any) -> Path:
    return Path(_text(value))


def _auth(value: Any) -> Auth:
    if value not in [each.value for each in Auth]:
        raise Wrong('"auto", "required" or "none"')
    return Auth(value)


def _clients(value: Any) -> Clients:
    if value not in [each.value for each in Clients]:
        raise Wrong('"none", "optional" or "required"')
    return Clients(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise Wrong("a list of texts")
    return tuple(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong("true or false")
    return value


def _port(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 65_535:
        raise Wrong("a whole number from 0 to 65535")
    return value


def _shards(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= SHARDS_MAX:
        raise Wrong(f"a whole number from 1 to {SHARDS_MAX}")
    return value


def _spans(value: Any) -> Reach:
    try:
        return Reach(value)
    except ValueError:
        raise Wrong("none, zone or region") from None


def check_trace_url(url: str) -> str:
    """An address in which a trace's id has a place, or none.

    Raises:
        UsageError: it is something else.
    """
    if url and not (url.startswith(("https://", "http://")) and "{trace}" in url):
        raise UsageError(f"--trace-url is like https://traces.example/trace/{{trace}}, not {url!r}")
    return url


def _duration(value: Any) -> float:
    try:
        if type(value) not in (int, float, str):
            raise typer.BadParameter("of another kind")
        return lasting(value)
    except typer.BadParameter:
        raise Wrong('seconds, or a text such as "500ms" or "3s"') from None


SETTINGS = {
    "engine": Setting(_text, "", "FENCEHOLD_ENGINE"),
    "engine_password_file": Setting(_path, None, "FENCEHOLD_ENGINE_PASSWORD_FILE"),
    "data": Setting(_path, Path(".fencehold"), "FENCEHOLD_DATA"),
    "memory": Setting(_flag, False, "FENCEHOLD_MEMORY"),
    "shards": Setting(_shards, 1, "FENCEHOLD_SHARDS"),
    "spans": Setting(_spans, Reach.NONE, "FENCEHOLD_SPANS"),
    "node": Setting(_text, "", "FENCEHOLD_NODE"),
    "host": Setting(_text, "127.0.0.1", "FENCEHOLD_HOST"),
    "port": Setting(_port, PORT, "FENCEHOLD_PORT"),
    "advertise": Setting(_text, "", "FENCEHOLD_ADVERTISE"),
    "leader_timeout": Setting(_duration, Patience().leader_timeout_s, "FENCEHOLD_LEADER_TIMEOUT"),
    "grpc": Setting(_port, None, "FENCEHOLD_GRPC"),
    "http": Setting(_port, None, "FENCEHOLD_HTTP"),
    "no_http": Setting(_flag, False, "FENCEHOLD_NO_HTTP"),
    "tls_cert": Setting(_path, None, "FENCEHOLD_TLS_CERT"),
    "tls_key": Setting(_path, None, "FENCEHOLD_TLS_KEY"),
    "tls_ca": Setting(_path, None, "FENCEHOLD_TLS_CA"),
    "tls_crl": Setting(_path, None, "FENCEHOLD_TLS_CRL"),
    "tls_clients": Setting(_clients, Clients.NONE, "FENCEHOLD_TLS_CLIENTS"),
    "auth": Setting(_auth, Auth.AUTO, "FENCEHOLD_AUTH"),
    "tokens": Setting(_path, None, "FENCEHOLD_TOKENS"),
    "listener_token_file": Setting(_path, None, "FENCEHOLD_LISTENER_TOKEN_FILE"),
    "audit_log": Setting(_path, None, "FENCEHOLD_AUDIT_LOG"),
    "no_observer": Setting(_flag, False, "FENCEHOLD_NO_OBSERVER"),
    "history_file": Setting(_text, "", "FENCEHOLD_HISTORY_FILE"),
    "insecure": Setting(_flag, False, "FENCEHOLD_INSECURE"),
    "traces": Setting(_flag, False, "FENCEHOLD_TRACES"),
    "trace_url": Setting(_text, "", "FENCEHOLD_TRACE_URL"),
    "port_file": Setting(_path, None, "FENCEHOLD_PORT_FILE"),
    "json": Setting(_flag, False, "FENCEHOLD_JSON"),
}
"""In the order they are shown. An option of `serve` is called the same, with dashes."""

TABLES: dict[str, Callable[..., Any]] = {
    "limits": Limits,
    "leader": LeaderBounds,
    "listener": ListenerBounds,
    "audit": AuditBounds,
    "history": HistoryBounds,
    "observe": ObserveBounds,
}

_OLD_TABLES = {"door": "listener"}
"""Earlier spellings of tables, which files may still use."""

_MAY_BE_NOTHING = {("limits", "lock_delay_ms_max")}


class File(NamedTuple):
    """The content of a file: settings, and the fields of each table."""

    settings: Mapping[str, Any] = MappingProxyType({})
    tables: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    sinks: Mapping[str, Any] = MappingProxyType({})
    """The table of sinks, see `sink_processes`."""


def read(path: Path) -> File:
    """Read a file.

    Raises:
        UsageError: it cannot be read, or a key or value in it is not allowed.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
        if len(text) > _FILE_BYTES_MAX:
            raise UsageError(f"{path} has more than {_FILE_BYTES_MAX} bytes: that is not a configuration file")
        known = tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    try:
        return _read(known)
    except Wrong as wrong:
        raise UsageError(f"{path}: {wrong}") from None


def _read(known: dict[str, Any]) -> File:
    for old, name in _OLD_TABLES.items():
        if old in known and name in known:
            raise Wrong(f"[{old}] is the earlier spelling of [{name}]: keep only [{name}]")
        if old in known:
            known[name] = known.pop(old)
    tables = {name: known.pop(name) for name in TABLES if name in known}
    # The same file may configure clients, too, see `client.config`.
    known.pop("client", None)
    sinks = known.pop("sinks", {})
    if not isinstance(sinks, dict):
        raise Wrong("sinks is a table: write [sinks], and below it a name and a URL for each")
    for key in known:
        if key not in SETTINGS:
            raise Wrong(_unknown(key, [*SETTINGS, *TABLES, "sinks"]))
    settings = {key: _checked(key, SETTINGS[key].read, value) for key, value in known.items()}
    return File(settings, {name: _table(name, fields) for name, fields in tables.items()}, sinks)


def _table(table: str, said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise Wrong(f"{table} is a table: write [{table}], and its fields below")
    fields = bounds_of(table)
    for key in said:
        if key not in fields:
            raise Wrong(f"[{table}]: {_unknown(key, list(fields))}")
    return {key: _bound(table, key, type(fields[key]), value) for key, value in said.items()}


def bounds_of(table: str) -> dict[str, Any]:
    """The fields of a table, with their defaults."""
    return {name: field.default for name, field in inspect.signature(TABLES[table]).parameters.items()}


def _bound(table: str, key: str, kind: type, value: Any) -> Any:
    least = 0 if (table, key) in _MAY_BE_NOTHING else 1

    def read(value: Any) -> Any:
        if kind is int and (type(value) is not int or value < least):
            raise Wrong(f"a whole number, {least} or more")
        if kind is float and (type(value) not in (int, float) or not 0 < value < float("inf")):
            raise Wrong("a number of seconds above 0")
        if kind is tuple:
            return _texts(value)
        return kind(value)

    return _checked(f"{table}.{key}", read, value)


def _checked(key: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except Wrong as wrong:
        # Not the value itself: it may be a password in the wrong place.
        raise Wrong(f"{key} is {wrong}, not {_kind(value)}") from None


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return "a text" if value else "an empty text"
        case dict():
            return "a table"
        case list():
            return "a list"
        case _:
            return "a date or time"


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key.replace("-", "_"), known, 1)
    return f"{key} is not known; " + (f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}")
