"""Failures: an error becomes one clear sentence on stderr and an exit code; a traceback only if it is a bug."""

import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec

import typer

from fencehold.cli.exits import Exit, exit_of
from fencehold.errors import FenceholdError, InvariantViolated

P = ParamSpec("P")


def complain(message: str, hint: str = "") -> None:
    """Say what is wrong, and what to do about it."""
    sys.stderr.write(f"fencehold: {message}\n" + (f"  {hint}\n" if hint else ""))


def fail(code: Exit, message: str, hint: str = "") -> typer.Exit:
    """Complain; raise what is returned."""
    complain(message, hint)
    return typer.Exit(code)


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with its errors told as they should be."""

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
    """The command, with our own bugs told for what they are: with all that is known, and a code of their own."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception:
            traceback.print_exc()
            raise fail(Exit.INTERNAL, "this is a bug of Fencehold: please report it, with what is above") from None

    return run


def _stop_writing() -> None:
    # Whoever read our output has seen enough (`fencehold ls | head`). Without this, Python complains at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(Exit.SIGNAL + 13)
