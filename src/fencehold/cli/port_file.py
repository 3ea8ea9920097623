"""Writes the port that was chosen to a file."""

import os
import tempfile
from pathlib import Path

from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail


def tell_port(port_file: Path | None, port: int) -> None:
    """Written atomically: a reader that waits for the file must not read half a number."""
    if port_file is None:
        return
    try:
        with tempfile.NamedTemporaryFile("w", dir=port_file.parent, delete=False) as draft:
            draft.write(f"{port}\n")
        os.chmod(draft.name, 0o644)
        os.replace(draft.name, port_file)
    except OSError as error:
        raise fail(Exit.UNAVAILABLE, f"cannot write {port_file}: {error.strerror}") from None
