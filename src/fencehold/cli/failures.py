"""Failures: an error becomes one clear sentence on stderr and an exit code; a traceback only if it is a bug.

With `--json`, the sentence is in a line of JSON, with the same keys in every command: a script that reads stdout
as JSON can read stderr in the same way.
"""

import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec

import typer

from fencehold.cli.exits import Exit, exit_of
from fencehold.cli.output import note
from fencehold.errors import FenceholdError, InvariantViolated

P = ParamSpec("P")


_in_json: ContextVar[bool] = ContextVar("_in_json", default=False)
"""Whether the running command was given `--json`."""


def complain(message: str, hint: str = "") -> None:
    """Report what is wrong, and what to do about it."""
    note(f"fencehold: {message}" + (f"\n  {hint}" if hint else ""))


def complain_in_json(code: int, message: str, hint: str = "", **facts: Any) -> None:
    """The same for a program, with further facts."""
    word = Exit(code).name.lower() if code in list(Exit) else "signal"
    said = {"error": word, "exit": int(code), "message": message, "hint": hint or None, **facts}
    sys.stderr.write(json.dumps(said, ensure_ascii=False) + "\n")


def fail(code: Exit, message: str, hint: str = "", **facts: Any) -> typer.Exit:
    """Report the failure; raise what is returned. `facts` go into the JSON: for people they are in the message."""
    if _in_json.get():
        complain_in_json(code, message, hint, **facts)
    else:
        complain(message, hint)
    return typer.Exit(code)


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with its errors reported in the right form."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, typer.BadParameter, InvariantViolated):
            raise
        except FenceholdError as error:
            raise fail(exit_of(error), str(error), getattr(error, "hint", "")) from None
        except KeyboardInterrupt:
            raise typer.Exit(Exit.SIGNAL + 2) from None
        except BrokenPipeError:
            _stop_writing()

    return _reported(run)


def _reported(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with our own bugs reported as bugs: with a traceback and their own exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        before = _in_json.set(bool(kwargs.get("as_json")))
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception:
            traceback.print_exc()
            raise fail(
                Exit.INTERNAL, "this is a bug in Fencehold: please report it, with the lines above"
            ) from None
        finally:
            _in_json.reset(before)

    return run


def _stop_writing() -> None:
    # The reader of our output has closed the pipe (`fencehold ls | head`). Python would complain at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(Exit.SIGNAL + 13)
