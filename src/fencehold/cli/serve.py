"""`fencehold serve`: a single server, or one of several nodes, until it is stopped.

1. On SIGTERM and SIGINT it accepts no more commands, answers those it has accepted, closes the journal, and exits
   0. A second signal ends it at once.
2. If it cannot serve, it prints one sentence and a hint, and exits with a code for the reason.
3. On a terminal it prints a banner; elsewhere it writes one line of log per event, to stderr.
"""

import errno
import resource
from pathlib import Path
from typing import Annotated, Any

import typer

from fencehold.cli.configuration import Configuration, Said, configured, show
from fencehold.cli.exits import Exit, exit_of
from fencehold.cli.failures import fail
from fencehold.cli.options import lasting, port_number
from fencehold.cli.port_file import tell_port
from fencehold.cli.server_process import Serving
from fencehold.cli.settings import SETTINGS, Auth, File, read
from fencehold.errors import (
    AlreadyOwned,
    Damaged,
    FenceholdError,
    InvariantViolated,
    NotAdmitted,
    OutcomeUnknown,
    UsageError,
)
from fencehold.placement.cells import Reach
from fencehold.placement.map import SHARDS_MAX
from fencehold.security.tls import Clients
from fencehold.server import Config

_JOURNAL, _CLUSTER, _REST = "Where the journal is", "One of several nodes", "Where it listens, what it logs"
_SECURITY = "Security"


def _option(setting: str, panel: str, words: str, *flags: str, **more: Any) -> Any:
    """The option of a setting, which its variable can set as well."""
    return typer.Option(*flags, envvar=SETTINGS[setting].variable, rich_help_panel=panel, help=words, **more)


EngineUrl = Annotated[
    str | None,
    _option(
        "engine",
        _JOURNAL,
        "A journal that nodes share: etcd://…, zookeeper://… or postgresql://….",
        metavar="URL",
    ),
]
PasswordFile = Annotated[
    Path | None,
    _option(
        "engine_password_file",
        _JOURNAL,
        "The password of the user that --engine names; or set $FENCEHOLD_ENGINE_PASSWORD.",
        metavar="FILE",
    ),
]
Data = Annotated[
    Path | None,
    _option(
        "data",
        _JOURNAL,
        "The journal's directory, for a single server; created if it does not exist.",
        metavar="DIRECTORY",
        show_default=str(SETTINGS["data"].default),
    ),
]
Memory = Annotated[bool | None, _option("memory", _JOURNAL, "Keep the journal in memory only.", "--memory")]
ShardCount = Annotated[
    int | None,
    _option(
        "shards",
        _JOURNAL,
        "Spread the names over this many machines, each with its own journal; it cannot change later.",
        min=1,
        max=SHARDS_MAX,
        metavar="N",
        show_default="1",
    ),
]
Spans = Annotated[
    Reach | None,
    _option(
        "spans",
        _JOURNAL,
        "What the members of the engine are spread over, for one of several cells: none, zone or region.",
        show_default=Reach.NONE.value,
        metavar="WHAT",
    ),
]
NodeName = Annotated[
    str | None,
    _option(
        "node",
        _CLUSTER,
        "The name of this node among the nodes that share its engine.",
        metavar="NAME",
        show_default="HOSTNAME:PORT",
    ),
]
Advertise = Annotated[
    str | None,
    _option(
        "advertise",
        _CLUSTER,
        "The address at which clients and other nodes reach this node.",
        metavar="HOST:PORT",
        show_default="where it listens",
    ),
]
LeaderTimeout = Annotated[
    float | None,
    _option(
        "leader_timeout",
        _CLUSTER,
        "Silence of the leader after which another node takes over.",
        parser=lasting,
        metavar="DURATION",
        show_default="1s",
    ),
]
Host = Annotated[
    str | None,
    _option("host", _REST, "The address to listen on.", show_default=SETTINGS["host"].default),
]
Port = Annotated[
    int | None,
    _option(
        "port",
        _REST,
        "The port; 0 picks a free one.",
        parser=port_number,
        metavar="PORT",
        show_default=str(SETTINGS["port"].default),
    ),
]
GrpcPort = Annotated[
    int | None,
    _option(
        "grpc",
        _REST,
        "Listen for gRPC on this port, too, usually 7421, in a process of its own.",
        "--grpc",
        parser=port_number,
        metavar="PORT",
    ),
]
HttpPort = Annotated[
    int | None,
    _option(
        "http",
        _REST,
        "Listen for HTTP on this port, too, in a process of its own.",
        "--http",
        parser=port_number,
        metavar="PORT",
        show_default="7422 on loopback",
    ),
]
NoHttp = Annotated[bool | None, _option("no_http", _REST, "Do not listen for HTTP.", "--no-http")]
TlsCert = Annotated[
    Path | None,
    _option("tls_cert", _SECURITY, "Speak TLS, with this certificate (and its chain).", metavar="FILE"),
]
TlsKey = Annotated[Path | None, _option("tls_key", _SECURITY, "The key of that certificate.", metavar="FILE")]
TlsCa = Annotated[
    Path | None,
    _option(
        "tls_ca", _SECURITY, "The CA that signs the certificates of clients and of other nodes.", metavar="FILE"
    ),
]
TlsCrl = Annotated[
    Path | None,
    _option("tls_crl", _SECURITY, "Which of those certificates were revoked: a CRL, in PEM.", metavar="FILE"),
]
TlsClients = Annotated[
    Clients | None,
    _option(
        "tls_clients",
        _SECURITY,
        "Whether clients are asked for a certificate: none, optional or required.",
        show_default=Clients.NONE.value,
        metavar="WHETHER",
    ),
]
Authentication = Annotated[
    Auth | None,
    _option(
        "auth",
        _SECURITY,
        "Whether clients must authenticate; auto: where other machines can connect.",
        show_default=Auth.AUTO.value,
    ),
]
TokensFile = Annotated[
    Path | None,
    _option("tokens", _SECURITY, "The tokens of services, hashed: `fencehold security token`.", metavar="FILE"),
]
ListenerToken = Annotated[
    Path | None,
    _option(
        "listener_token_file",
        _SECURITY,
        "A token of listener/NAME, by which listeners for gRPC and HTTP vouch for certificates.",
        metavar="FILE",
    ),
]
AuditLog = Annotated[
    Path | None,
    _option("audit_log", _SECURITY, "Write an audit log into this directory.", metavar="DIRECTORY"),
]
NoObserver = Annotated[
    bool | None,
    _option(
        "no_observer",
        _REST,
        "Do not start the observer, which counts for metrics, logs losses and keeps the history of holds.",
        "--no-observer",
    ),
]
HistoryFile = Annotated[
    str | None,
    _option(
        "history_file",
        _REST,
        "The SQLite file of the history of holds; `off` keeps none.",
        metavar="FILE",
        show_default="in --data",
    ),
]
Insecure = Annotated[
    bool | None,
    _option(
        "insecure",
        _SECURITY,
        "Listen where other machines can connect without TLS, or without authentication.",
        "--insecure",
    ),
]
Traces = Annotated[
    bool | None,
    _option("traces", _REST, "Send a span of every traced acquire by OTLP, as $OTEL_… say.", "--traces"),
]
TraceUrl = Annotated[
    str | None,
    _option(
        "trace_url",
        _REST,
        "Where the dashboard links traces to; {trace} is the id.",
        metavar="URL",
    ),
]
PortFile = Annotated[
    Path | None,
    _option(
        "port_file", _REST, "Write the port to this file once the server accepts connections.", metavar="FILE"
    ),
]
LogJson = Annotated[bool | None, _option("json", _REST, "Write the log as lines of JSON.", "--json")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="FENCEHOLD_CONFIG",
        help="A TOML file with settings that options and variables do not give.",
    ),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Print the effective configuration and whether it is valid; start nothing."),
]


def serve(
    context: typer.Context,
    engine: EngineUrl = None,
    engine_password_file: PasswordFile = None,
    data: Data = None,
    memory: Memory = None,
    shards: ShardCount = None,
    spans: Spans = None,
    node: NodeName = None,
    advertise: Advertise = None,
    leader_timeout: LeaderTimeout = None,
    host: Host = None,
    port: Port = None,
    grpc: GrpcPort = None,
    http: HttpPort = None,
    no_http: NoHttp = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tls_crl: TlsCrl = None,
    tls_clients: TlsClients = None,
    auth: Authentication = None,
    tokens: TokensFile = None,
    listener_token_file: ListenerToken = None,
    audit_log: AuditLog = None,
    no_observer: NoObserver = None,
    history_file: HistoryFile = None,
    insecure: Insecure = None,
    traces: Traces = None,
    trace_url: TraceUrl = None,
    port_file: PortFile = None,
    as_json: LogJson = None,
    config: ConfigFile = None,
    check: Check = False,
) -> None:
    """Start a server: a single one with its journal in a directory, or one of several nodes that share an engine.

    Every option can be set in the environment and in a file, too; an option wins over its variable, that over the
    file.
    """
    # As the parameters were converted: those of the context are texts in some versions of Typer.
    here = locals()
    settings = {name: here[name] for name in context.params if name not in ("config", "check")}
    known = configured(_given(context, settings), read(config) if config is not None else File())
    if check:
        show(known)
        return
    _raise_open_files_limit()
    _serve(known)


def _given(context: typer.Context, settings: dict[str, Any]) -> dict[str, Said]:
    """The settings from options and variables. A parameter is `None` if neither gives it, so that a file may."""
    sources = {name: context.get_parameter_source(name) for name in settings}
    return {
        "json" if name == "as_json" else name: Said(
            value, "option" if source.name == "COMMANDLINE" else "environment"
        )
        for name, value in settings.items()
        if value is not None and (source := sources[name]) is not None
    }


def _serve(known: Configuration) -> None:
    config = known.server
    if config.data is not None and not config.engine:
        config = config._replace(data=_prepared(Path(config.data)))
    serving = Serving(
        config,
        as_json=known.as_json,
        on_port=lambda chosen: tell_port(known.port_file, chosen),
        listeners=known.listeners,
        sinks=known.sinks,
        optional=known.optional,
        listener_token=known.said["listener_token_file"].value,
        traces=known.said["traces"].value,
        trace_url=known.said["trace_url"].value,
    )
    try:
        serving.run()
    except (FenceholdError, OSError) as error:
        raise _failed(error, config, serving.was_ready) from error
    finally:
        if known.port_file is not None:
            known.port_file.unlink(missing_ok=True)


def _raise_open_files_limit() -> None:
    """Raise the limit of open files to the hard limit: every client uses one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _prepared(data: Path) -> Path:
    """The directory's absolute path; its parents are created here, the directory itself by its engine."""
    path = data.expanduser().absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail(
            Exit.UNAVAILABLE, f"cannot make {path.parent}: {error.strerror}", "choose another --data"
        ) from None
    return path


def _failed(error: FenceholdError | OSError, config: Config, was_ready: bool) -> typer.Exit:
    """Why the server cannot serve, and what to do."""
    match error:
        case OSError():
            return _no_address(error, config)
        case AlreadyOwned():
            hint = "a server may already be running there (try: fencehold ping); or choose another --data"
            return fail(Exit.UNAVAILABLE, str(error), hint)
        case NotAdmitted():
            hint = "the password may come from --engine-password-file, or from $FENCEHOLD_ENGINE_PASSWORD"
            return fail(Exit.DENIED, str(error), hint)
        case Damaged():
            return fail(Exit.DAMAGED, f"the journal is damaged: {error}", "nothing was changed")
        case UsageError():
            return fail(Exit.USAGE, str(error))
        case InvariantViolated():
            hint = (
                "this is a bug in Fencehold; no wrong answer was given. Please report it, with the data directory"
            )
            return fail(Exit.INTERNAL, f"stopped: {error}", hint)
        case OutcomeUnknown():
            hint = "everything acknowledged is safe; check the disk, then start the server again"
            return fail(Exit.NO, f"stopped: {error}", hint)
        case _:
            return fail(
                Exit.NO if was_ready else exit_of(error), f"{'stopped' if was_ready else 'cannot serve'}: {error}"
            )


def _no_address(error: OSError, config: Config) -> typer.Exit:
    where = f"{config.host}:{config.port}"
    if error.errno == errno.EADDRINUSE:
        hint = "a server may run there already (try: fencehold ping); or choose another --port"
        return fail(Exit.UNAVAILABLE, f"{where} is in use", hint)
    return fail(Exit.UNAVAILABLE, f"cannot serve on {where}: {error.strerror or error}")
