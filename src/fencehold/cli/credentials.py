"""Credentials of an engine: its password comes from a file or the environment, not from a command line."""

import os
from pathlib import Path

from fencehold.errors import UsageError

VARIABLE = "FENCEHOLD_ENGINE_PASSWORD"
_BYTES_MAX = 4_096


def password_of(file: Path | None) -> str:
    """The first line of the file; without a file, the environment variable."""
    if file is None:
        return from_environment()
    try:
        with file.open("rb") as source:
            password = source.read(_BYTES_MAX).decode().partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read the engine's password from {file}: {reason}") from None
    if not password:
        raise UsageError(f"the engine's password must be in the first line of {file}, which is empty")
    return password


def from_environment() -> str:
    return os.environ.get(VARIABLE, "")
