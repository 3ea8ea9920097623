"""`fencehold serve`: a server of one node, until it is told to stop.

1. SIGTERM and SIGINT: no more is taken, what was taken is answered, the data is let go; exit 0. A second one: now.
2. What keeps it from serving is one sentence, a hint and an exit code.
3. On a terminal it greets; anywhere else it writes one line of log per event, to stderr.
"""

import errno
import os
import resource
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fencehold.cli.exits import Exit, exit_of
from fencehold.cli.failures import fail
from fencehold.cli.serving import Serving
from fencehold.errors import AlreadyOwned, Damaged, FenceholdError, InvariantViolated, OutcomeUnknown, UsageError
from fencehold.server import PORT, Config

DATA = ".fencehold"


def serve(
    host: Annotated[str, typer.Option(envvar="FENCEHOLD_HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="FENCEHOLD_PORT", min=0, max=65_535, help="The port; 0: any that is free.")
    ] = PORT,
    data: Annotated[
        Path, typer.Option(envvar="FENCEHOLD_DATA", help="The directory of the journal; made if there is none.")
    ] = Path(DATA),
    memory: Annotated[
        bool,
        typer.Option("--memory", envvar="FENCEHOLD_MEMORY", help="Keep nothing: all is gone with it."),
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            envvar="FENCEHOLD_INSECURE",
            help="Listen where other machines can connect, though nothing is encrypted or authenticated.",
        ),
    ] = False,
    port_file: Annotated[
        Path | None,
        typer.Option(envvar="FENCEHOLD_PORT_FILE", help="Write the port to this file once connections are taken."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", envvar="FENCEHOLD_JSON", help="Write the log as lines of JSON.")
    ] = False,
) -> None:
    """Start a server: one node, its journal in a directory.

    Every option can be set in the environment, too.
    """
    _raise_open_files_limit()
    config = Config(data=None if memory else _prepared(data), host=host, port=port, insecure=insecure)
    serving = Serving(config, as_json=as_json, on_port=lambda chosen: _tell_port(port_file, chosen))
    try:
        serving.run()
    except (FenceholdError, OSError) as error:
        raise _failed(error, config, serving.was_ready) from error
    finally:
        if port_file is not None:
            port_file.unlink(missing_ok=True)


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


def _tell_port(port_file: Path | None, port: int) -> None:
    """Written whole: whoever waits for the file must not read half a number."""
    if port_file is None:
        return
    try:
        with tempfile.NamedTemporaryFile("w", dir=port_file.parent, delete=False) as draft:
            draft.write(f"{port}\n")
        os.chmod(draft.name, 0o644)
        os.replace(draft.name, port_file)
    except OSError as error:
        raise fail(Exit.UNAVAILABLE, f"cannot write {port_file}: {error.strerror}") from None


def _failed(error: FenceholdError | OSError, config: Config, was_ready: bool) -> typer.Exit:
    """What kept the server from serving, and what to do."""
    match error:
        case OSError():
            return _no_address(error, config)
        case AlreadyOwned():
            hint = "that may be a server that runs already (try: fencehold ping); or choose another --data"
            return fail(Exit.UNAVAILABLE, str(error), hint)
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
