"""Configuration of a server: options, environment variables and a file, merged and checked.

1. An option overrides its variable, the variable overrides the file, and the file overrides the default.
2. Three settings say where the journal is: `data`, `memory` and `engine`. The one from the source with the highest
   precedence wins. Two from the same source are an error.
3. Settings for several nodes are refused when the journal allows only one node.
4. Mistakes that can be found without connecting anywhere are reported here, before a server starts.
"""

import ipaddress
import socket
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from fencehold.cli.credentials import from_environment, password_of
from fencehold.cli.listener_processes import HTTP_PORT, KINDS, check_installed, check_upstream, is_installed
from fencehold.cli.output import say_json, say_rows, written
from fencehold.cli.settings import SETTINGS, TABLES, File, bounds_of, check_trace_url
from fencehold.cli.sink_processes import SinkSettings, shown_sinks, sinks_of
from fencehold.drivers.address import endpoint, is_loopback, shown, with_password
from fencehold.engines.registry import journal_of, path_of
from fencehold.errors import UsageError
from fencehold.locks.trace_export import check_export
from fencehold.node.suspicion import Patience
from fencehold.observe.feed import Observing
from fencehold.observe.templates import Templates
from fencehold.security.tls import Certificates, Clients, ServerTls
from fencehold.security.tokens import Tokens
from fencehold.server import Config

SOURCES = ("option", "environment", "file", "default")
"""From the highest precedence to the lowest."""
_FIELDS = ("limits", "leader", "listener", "audit")
"""The tables of the file that fill the field of `Config` with their name."""
HISTORY_FILE = "history.sqlite"
NO_HISTORY = "off"
_NOT_CHOSEN = {"data": None, "memory": False, "engine": ""}
_SHARED_ONLY = ("node", "advertise", "leader_timeout")
_NAME_BYTES_MAX, _ADDRESS_BYTES_MAX = 128, 256
"""What the other nodes accept, see `doors.resp.nodes`."""


class Said(NamedTuple):
    """A value, and the source it came from."""

    value: Any
    source: str


class Configuration(NamedTuple):
    """All that `serve` needs to know."""

    server: Config
    port_file: Path | None
    as_json: bool
    listeners: dict[str, int]
    """Which listeners are started beside it, and on which ports."""
    optional: frozenset[str]
    """Those enabled by default only: the server skips one whose port is in use."""
    said: dict[str, Said]
    """Every setting, secrets masked."""
    sinks: SinkSettings = SinkSettings()
    """Where events go, by processes beside it."""


def configured(given: Mapping[str, Said], file: File) -> Configuration:
    """Merge the settings given as options or variables with those of the file and the defaults.

    Raises:
        UsageError: a setting, or a combination of settings, is not allowed; the message names it.
    """
    said = {name: _nearest(name, given, file) for name in SETTINGS}
    url = _settle_journal(said)
    config = Config(
        data=said["data"].value,
        engine=url,
        node=said["node"].value,
        shards=said["shards"].value,
        spans=said["spans"].value.value,
        host=said["host"].value,
        port=said["port"].value,
        advertise=said["advertise"].value,
        insecure=said["insecure"].value,
        tls=_tls(said),
        auth=said["auth"].value.is_required,
        tokens=_tokens(said["tokens"].value),
        audit_log=said["audit_log"].value and said["audit_log"].value.expanduser(),
        patience=Patience(leader_timeout_s=said["leader_timeout"].value),
        **{table: kind(**file.tables.get(table, {})) for table, kind in TABLES.items() if table in _FIELDS},
        observing=_observing(said, file),
    )
    config.checked()
    if url:
        config = _settle_membership(config, said)
    else:
        _refuse_membership(said)
    optional = _settle_http(said, config)
    listeners = {kind: said[kind].value for kind in KINDS if said[kind].value is not None}
    asked = {kind: port for kind, port in listeners.items() if kind not in optional}
    check_installed(asked)
    if asked:
        check_upstream(config)
    if said["traces"].value:
        check_export()
    check_trace_url(said["trace_url"].value)
    sinks = sinks_of(file.sinks)
    if sinks.sinks:
        check_upstream(config, "sinks", "fencehold sink run")
    return Configuration(config, said["port_file"].value, said["json"].value, listeners, optional, said, sinks)


def _observing(said: Mapping[str, Said], file: File) -> Observing | None:
    """The observer beside the server, which counts and keeps history, if there is one."""
    path, data = said["history_file"].value, said["data"].value
    if said["no_observer"].value:
        if path and path != NO_HISTORY:
            raise UsageError("a history is kept by the observer: leave out --no-observer, or --history-file")
        return None
    bounds, observe = (TABLES[table](**file.tables.get(table, {})) for table in ("history", "observe"))
    Templates(observe.templates)
    where = Path(path).expanduser() if path else data.expanduser() / HISTORY_FILE if data is not None else None
    history = None if path == NO_HISTORY or where is None else where.absolute()
    return Observing(history, bounds, observe, traces=said["traces"].value)


def effective(known: Configuration) -> dict[str, Any]:
    """The configuration as it may be shown: every setting and every bound, no secret."""
    tables = {
        table: {key: _shown(getattr(_bounds(known.server, table), key)) for key in bounds_of(table)}
        for table in TABLES
    }
    sinks = {"sinks": shown_sinks(known.sinks)} if known.sinks.sinks else {}
    return {**{name: _shown(said.value) for name, said in known.said.items()}, **tables, **sinks}


def _bounds(config: Config, table: str) -> Any:
    if table in _FIELDS:
        return getattr(config, table)
    observing = config.observing or Observing()
    return observing.bounds if table == "history" else observing.observe


def show(known: Configuration) -> None:
    """Print what a server would be started with, and where each value comes from."""
    values = effective(known)
    sources = {name: said.source for name, said in known.said.items()}
    if known.as_json:
        say_json({**values, "sources": sources})
        return
    rows = [(name, written(values[name]), sources[name]) for name in sources]
    for table in TABLES:
        defaults = bounds_of(table)
        rows += [
            (f"{table}.{key}", value, "default" if value == defaults[key] else "file")
            for key, value in values[table].items()
        ]
    rows += [(f"sinks.{name}", url, "file") for name, url in shown_sinks(known.sinks).items()]
    say_rows(("SETTING", "VALUE ", "SAID BY"), rows, empty="")


def _shown(value: Any) -> Any:
    if value == "":
        return None
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value


def _nearest(name: str, given: Mapping[str, Said], file: File) -> Said:
    if name in given:
        return given[name]
    if name in file.settings:
        return Said(file.settings[name], "file")
    return Said(SETTINGS[name].default, "default")


def _tls(said: Mapping[str, Said]) -> ServerTls | None:
    """TLS of the listener, if any; read once, so that errors are reported before it starts."""
    cert, key, ca, crl = (said[name].value for name in ("tls_cert", "tls_key", "tls_ca", "tls_crl"))
    if cert is None and key is None:
        for name in ("tls_ca", "tls_crl", "tls_clients"):
            if said[name].source != "default":
                raise UsageError(f"{_where(said[name], name)} needs --tls-cert FILE and --tls-key FILE, too")
        return None
    if cert is None or key is None:
        raise UsageError("a certificate needs its key: give both --tls-cert FILE and --tls-key FILE")
    ca, crl = ca and ca.expanduser(), crl and crl.expanduser()
    tls = ServerTls(cert.expanduser(), key.expanduser(), ca, said["tls_clients"].value, crl)
    Certificates(tls)
    return tls


def _settle_http(said: dict[str, Said], config: Config) -> frozenset[str]:
    """Whether HTTP is enabled by default: where only this machine can connect.

    Not where any free port is wanted (0): such servers are often started in numbers.
    """
    off, port = said["no_http"], said["http"]
    if off.value and port.value is not None:
        if SOURCES.index(off.source) == SOURCES.index(port.source):
            raise UsageError(f"{_where(port, 'http')} and {_where(off, 'no_http')} contradict each other")
        if SOURCES.index(off.source) < SOURCES.index(port.source):
            said["http"] = Said(None, off.source)
    is_for_nodes = config.tls is not None and config.tls.clients is Clients.REQUIRED
    if off.value or port.value is not None or is_for_nodes or not config.port:
        return frozenset()
    if not is_loopback(config.host) or not is_installed("http"):
        return frozenset()
    said["http"] = Said(HTTP_PORT, "default")
    return frozenset({"http"})


def _tokens(path: Path | None) -> Path | None:
    """The file of tokens, read once, so that errors are reported before it starts."""
    if path is None:
        return None
    path = path.expanduser()
    Tokens(path)
    return path


def _settle_journal(said: dict[str, Said]) -> str:
    """Decide where the journal is; returns the URL of a shared one with its password, or an empty string."""
    chosen = _chosen(said)
    for name, nothing in _NOT_CHOSEN.items():
        if name != chosen:
            said[name] = Said(nothing, "default")
    password_file = said.pop("engine_password_file")
    url = _settle_engine(said, password_file) if chosen == "engine" else ""
    if not url and password_file.source != "default":
        where = _where(password_file, "engine_password_file")
        raise UsageError(f"{where} is for an --engine with users, and this journal has none")
    return url


def _chosen(said: Mapping[str, Said]) -> str:
    # `memory = false` does not choose a journal.
    ways = [name for name in _NOT_CHOSEN if said[name].source != "default" and said[name].value]
    for source in SOURCES:
        near = [name for name in ways if said[name].source == source]
        if len(near) > 1:
            both = " and ".join(_where(said[name], name) for name in near)
            raise UsageError(f"{both} both say where the journal is: give one of them")
        if near:
            return near[0]
    return "data"


def _settle_engine(said: dict[str, Said], password_file: Said) -> str:
    url, source = said["engine"]
    directory = path_of(url)
    if directory == url and "/" not in url:
        # `etcd`, or `10.0.0.1:2379`: probably not a directory.
        raise UsageError(
            f"{url} is not an engine: write etcd://HOST, zookeeper://HOST or postgresql://HOST/DATABASE; "
            f"for a directory of that name, --data {url}"
        )
    if directory is not None:
        said["data"], said["engine"] = Said(Path(directory), source), Said("", "default")
        return ""
    if url.lower().startswith("memory:"):
        journal_of(url)
        said["memory"], said["engine"] = Said(True, source), Said("", "default")
        return ""
    # A password variable overrides a password file that only the configuration file names.
    is_far = password_file.source == "file" and from_environment()
    url = with_password(url, password_of(None if is_far else password_file.value))
    journal_of(url)
    said["engine"] = Said(shown(url), source)
    return url


def _refuse_membership(said: Mapping[str, Said]) -> None:
    for name in _SHARED_ONLY:
        if said[name].source != "default":
            raise UsageError(
                f"{_where(said[name], name)} is for nodes that share a journal, and this journal is for a server "
                "alone: add --engine etcd://…, zookeeper://… or postgresql://…"
            )


def _settle_membership(config: Config, said: dict[str, Said]) -> Config:
    """Fill in what this node is called and where it is reached, and check it."""
    config = config._replace(advertise=_advertised(config), node=config.node or _own_name(config))
    for name in ("node", "advertise"):
        said[name] = Said(getattr(config, name), said[name].source)
    if len(config.node.encode()) > _NAME_BYTES_MAX or not config.node.isprintable():
        raise UsageError(f"the name of a node has at most {_NAME_BYTES_MAX} bytes, all printable: {config.node!r}")
    least_s = 2 * config.leader.tick_s
    if config.patience.leader_timeout_s < least_s:
        raise UsageError(
            f"a leader timeout of {config.patience.leader_timeout_s:g} s is too short: a leader may be silent for "
            f"{config.leader.tick_s:g} s (leader.tick_s), so set {least_s:g} s or more"
        )
    return config


def _own_name(config: Config) -> str:
    # Port 0: the server makes the name itself once it knows its port.
    return f"{socket.gethostname()}:{config.port}" if config.port else ""


def _advertised(config: Config) -> str:
    """The address at which others reach this node: the advertised one, or where it listens. Empty for port 0."""
    said = config.advertise
    if not said and not config.port:
        return ""
    host, port = endpoint(said, config.port) if said else (config.host, config.port)
    if _is_any(host):
        raise UsageError(f"others cannot connect to {host}: add --advertise HOST:PORT")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if len(address.encode()) > _ADDRESS_BYTES_MAX or not address.isprintable():
        raise UsageError(f"an address has at most {_ADDRESS_BYTES_MAX} bytes, all printable: {address[:60]!r}")
    return address


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def _where(said: Said, name: str) -> str:
    """How the user wrote the setting: as an option, a variable or a key in the file."""
    match said.source:
        case "option":
            return f"--{name.replace('_', '-')}"
        case "environment":
            return SETTINGS[name].variable
        case _:
            return f"{name} in the file"
