"""The entry point. It only handles what can be answered without loading anything."""

import os
import sys

from fencehold import __version__
from fencehold.build import is_compiled
from fencehold.cli.exits import Exit


def main() -> None:
    """The entry point of `fencehold`."""
    words = sys.argv[1:]
    if words == ["--version"]:
        sys.stdout.write(f"fencehold {__version__}{', compiled' if is_compiled() else ''}\n")
        return
    try:
        # Not at the top: loading Typer takes longer than all that --version has to do.
        from fencehold.cli import completion  # noqa: PLC0415
        from fencehold.cli.app import build, prepared  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        sys.stderr.write(f"fencehold: {missing.name} is not installed: pip install 'fencehold[cli]'\n")
        sys.exit(Exit.UNAVAILABLE)
    app = build(prepared(words))
    if os.environ.get(completion.VARIABLE) == "complete_bash":
        completion.for_bash(lambda: app(args=words, prog_name="fencehold"))
    else:
        app(args=prepared(words), prog_name="fencehold")
