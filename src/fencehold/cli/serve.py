"""`fencehold serve`: a server alone, or one of several nodes, until it is told to stop.

1. SIGTERM and SIGINT: no more is taken, what was taken is answered, the data is let go; exit 0. A second one: now.
2. What keeps it from serving is one sentence, a hint and an exit code.
3. On a terminal it greets; anywhere else it writes one line of log per event, to stderr.
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
from fencehold.cli.settings import SETTINGS, File, read
from fencehold.errors import (
    AlreadyOwned,
    Damaged,
    FenceholdError,
    InvariantViolated,
    NotAdmitted,
    OutcomeUnknown,
    UsageError,
)
from fencehold.server import Config

_JOURNAL, _CLUSTER, _REST = "Where the journal is", "One of several nodes", "Where it listens, what it says"


def _option(setting: str, panel: str, words: str, *flags: str, **more: Any) -> Any:
    """The option of a setting, which its variable may say as well."""
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
        "The password of the user that --engine names; or say it in $FENCEHOLD_ENGINE_PASSWORD.",
        metavar="FILE",
    ),
]
Data = Annotated[
    Path | None,
    _option(
        "data",
        _JOURNAL,
        "The directory of the journal of a server alone; made if there is none.",
        metavar="DIRECTORY",
        show_default=str(SETTINGS["data"].default),
    ),
]
Memory = Annotated[bool | None, _option("memory", _JOURNAL, "Keep nothing: all is gone with it.", "--memory")]
NodeName = Annotated[
    str | None,
    _option(
        "node",
        _CLUSTER,
        "What this node is called among those that share its engine.",
        metavar="NAME",
        show_default="HOSTNAME:PORT",
    ),
]
Advertise = Annotated[
    str | None,
    _option(
        "advertise",
        _CLUSTER,
        "Where clients and the other nodes reach this one.",
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
        "The port; 0: any that is free.",
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
        "Listen for HTTP on this port, too, usually 7422, in a process of its own.",
        "--http",
        parser=port_number,
        metavar="PORT",
    ),
]
Insecure = Annotated[
    bool | None,
    _option(
        "insecure",
        _REST,
        "Listen where other machines can connect, though nothing is encrypted or authenticated.",
        "--insecure",
    ),
]
PortFile = Annotated[
    Path | None,
    _option("port_file", _REST, "Write the port to this file once connections are taken.", metavar="FILE"),
]
LogJson = Annotated[bool | None, _option("json", _REST, "Write the log as lines of JSON.", "--json")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", envvar="FENCEHOLD_CONFIG", help="Read from this TOML file what is not said here."
    ),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Say what it would be started with, and whether that is right; start nothing."),
]


def serve(
    context: typer.Context,
    engine: EngineUrl = None,
    engine_password_file: PasswordFile = None,
    data: Data = None,
    memory: Memory = None,
    node: NodeName = None,
    advertise: Advertise = None,
    leader_timeout: LeaderTimeout = None,
    host: Host = None,
    port: Port = None,
    grpc: GrpcPort = None,
    http: HttpPort = None,
    insecure: Insecure = None,
    port_file: PortFile = None,
    as_json: LogJson = None,
    config: ConfigFile = None,
    check: Check = False,
) -> None:
    """Start a server: one alone with its journal in a directory, or one of several nodes that share an engine.

    Every option can be set in the environment and in a file, too; an option wins over its variable, that over the
    file.
    """
    known = configured(_given(context), read(config) if config is not None else File())
    if check:
        show(known)
        return
    _raise_open_files_limit()
    _serve(known)


def _given(context: typer.Context) -> dict[str, Said]:
    """What options and variables say. The parameters are `None` where they say nothing, so that a file may."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {
        "json" if name == "as_json" else name: Said(
            value, "option" if source.name == "COMMANDLINE" else "environment"
        )
        for name, value in context.params.items()
        if name not in ("config", "check") and value is not None and (source := sources[name]) is not None
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
    )
    try:
        serving.run()
    except (FenceholdError, OSError) as error:
        raise _failed(error, config, serving.was_ready) from error
    finally:
        if known.port_file is not None:
            known.port_file.unlink(missing_ok=True)


def _raise_open_files_limit() -> None:
    """Take as many open files as are allowed: every client is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _prepared(data: Path) -> Path:
    """The directory's absolute path; those above it are made, it itself is made by whoever owns it."""
    path = data.expanduser().absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail(
            Exit.UNAVAILABLE, f"cannot make {path.parent}: {error.strerror}", "choose another --data"
        ) from None
    return path


def _failed(error: FenceholdError | OSError, config: Config, was_ready: bool) -> typer.Exit:
    """What kept the server from serving, and what to do."""
    match error:
        case OSError():
            return _no_address(error, config)
        case AlreadyOwned():
            hint = "that may be a server that runs already (try: fencehold ping); or choose another --data"
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
                "this is a bug of Fencehold; no wrong answer was given. Please report it, with the data directory"
            )
            return fail(Exit.INTERNAL, f"stopped: {error}", hint)
        case OutcomeUnknown():
            hint = "what was answered is safe; look at the disk, then start the server again"
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
