"""The application: which command lives in which module. Only the module of the command asked for is loaded."""

import inspect
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fencehold import __version__
from fencehold.build import is_compiled
from fencehold.cli import completion
from fencehold.cli.failures import complain_in_json, guarded

SERVER, SCRIPTS, EYES, RIGHTS = "Server", "Locks for scripts", "Inspection", "Who may do what"

COMMANDS: dict[str, tuple[str, str, str]] = {
    "serve": ("serve", "serve", SERVER),
    "listener": ("listener", "LISTENER", SERVER),
    "cluster": ("cluster", "cluster", SERVER),
    "shards": ("shards", "SHARDS", SERVER),
    "cells": ("cells", "CELLS", SERVER),
    "home": ("homes", "HOME", SERVER),
    "doctor": ("doctor", "doctor", SERVER),
    "bench": ("bench", "bench", SERVER),
    "demo": ("demo", "demo", SERVER),
    "backup": ("backup", "backup", SERVER),
    "journal": ("journal", "JOURNAL", SERVER),
    "security": ("security", "SECURITY", SERVER),
    "audit": ("audit", "AUDIT", SERVER),
    "run": ("run", "run", SCRIPTS),
    "acquire": ("leases", "acquire", SCRIPTS),
    "extend": ("leases", "extend", SCRIPTS),
    "release": ("leases", "release", SCRIPTS),
    "ls": ("inspection", "ls", EYES),
    "info": ("inspection", "info", EYES),
    "sessions": ("inspection", "sessions", EYES),
    "status": ("inspection", "status", EYES),
    "ping": ("inspection", "ping", EYES),
    "watch": ("watch", "watch", EYES),
    "sink": ("sink", "SINK", EYES),
    "top": ("top", "top", EYES),
    "history": ("history", "history", EYES),
    "break": ("force_release", "break_", EYES),
    "policy": ("policy", "POLICY", RIGHTS),
    "user": ("users", "USER", RIGHTS),
    "token": ("service_tokens", "TOKEN", RIGHTS),
    "role": ("policy", "ROLE", RIGHTS),
    "whoami": ("policy", "whoami", RIGHTS),
    "can": ("policy", "can", RIGHTS),
}
"""Each command: its module, its function (for a group, its functions by name), and its heading in the help."""

_PROMISE = "Distributed locks as safe as consensus, that your database itself can enforce."

GROUPS = {
    "sink": "Deliver events to Kafka, Redis, NATS, a database, a file or a URL.",
    "listener": "Serve gRPC or HTTP in front of a server.",
    "shards": "Show the shards, their slots and leaders; move slots.",
    "cells": "Show the cells of a service, plan a change of their map, apply one.",
    "home": "Move the home of names to another cell, or promote one when it is lost.",
    "journal": "Export a journal, move it to another engine, inspect one.",
    "policy": "Show the policy of a server, plan a change of it, apply one.",
    "user": "Add, change, disable and remove users.",
    "token": "Create, list and revoke service tokens.",
    "role": "Show roles and their rules.",
    "security": "Create an authority, certificates and tokens for a first cluster; renew and revoke them.",
    "audit": "Verify an audit log, and show its last records.",
}


def prepared(words: list[str]) -> list[str]:
    """The command line as it is to be parsed: `--` ends the options, and of `run` it also begins the command.

    The parser swallows the first `--`; a second one is an argument like any other, and survives. `door` is what
    `listener` was called.
    """
    if words[:1] == ["door"]:
        return ["listener", *words[1:]]
    if words[:1] != ["run"] or "--" not in words:
        return words
    at = words.index("--")
    return [*words[:at], "--", *words[at:]]


def build(words: list[str]) -> typer.Typer:
    """The application for this command line."""
    app = _typer(
        "fencehold", "Distributed locks as safe as consensus, that your database itself can enforce.", Root
    )
    app.callback()(_root)
    for name in _needed(words):
        _add(app, name)
    return app


class Root(TyperGroup):
    """The application: a wrong command line is reported in JSON, too, if `--json` was given."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Parse and run; ends the process, unless the caller says otherwise."""
        given = args[0] if args else options.get("args") or ()
        if not _asks_for_json(list(given)) or not options.get("standalone_mode", True):
            return super().main(*args, **options)
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except _WRONG as wrong:
            complain_in_json(wrong.exit_code, wrong.format_message())
            code = wrong.exit_code
        sys.exit(code if isinstance(code, int) else 0)


_WRONG: Any = typer.BadParameter.__mro__[2]
"""All errors of the parser about a wrong command line. Typer does not export their common base class."""


def _asks_for_json(words: list[str]) -> bool:
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _typer(name: str, description: str, kind: type[TyperGroup] = TyperGroup) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=kind,
        help=description,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        # Boxes are for terminals.
        rich_markup_mode="rich" if sys.stdout.isatty() and sys.stderr.isatty() else None,
        pretty_exceptions_enable=False,
    )


def _needed(words: list[str]) -> list[str]:
    """The one command that is called, or completed; all of them for help, and to correct a mistyped one."""
    given = completion.asked_words() if completion.VARIABLE in os.environ else words
    first = next((word for word in given if not word.startswith("-")), "")
    if first in COMMANDS:
        return [first]
    return list(COMMANDS)


def _add(app: typer.Typer, name: str) -> None:
    module, function, panel = COMMANDS[name]
    found = getattr(import_module(f"fencehold.cli.{module}"), function)
    if not isinstance(found, dict):
        app.command(name, help=_help(found), rich_help_panel=panel)(guarded(found))
        return
    group = _typer(name, GROUPS[name])
    for inner, command in found.items():
        group.command(inner, help=_help(command))(guarded(command))
    app.add_typer(group, rich_help_panel=panel)


def _help(command: Callable[..., None]) -> str:
    """The help text from its docstring, each paragraph in one line: the terminal decides where to wrap."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fencehold {__version__}{', compiled' if is_compiled() else ''}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Distributed locks as safe as consensus, that your database itself can enforce."""
