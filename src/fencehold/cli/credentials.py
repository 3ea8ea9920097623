"""Credentials of an engine: its password comes from a file or the environment, not from a command line."""

import os
import re
from pathlib import Path
from urllib.parse import quote

from fencehold.engines.registry import shown
from fencehold.errors import UsageError

VARIABLE = "FENCEHOLD_ENGINE_PASSWORD"
_BYTES_MAX = 4_096
# Not of a directory or of memory, which have no users.
_AUTHORITY = re.compile(r"(?!(?:file|memory):)([a-z]+://)(?:([^/?#]*)@)?", re.IGNORECASE)


def password_of(file: Path | None) -> str:
    """What the file says, up to the end of its first line; without one, what the environment says."""
    if file is None:
        return from_environment()
    try:
        with file.open("rb") as source:
            password = source.read(_BYTES_MAX).decode().partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"cannot read the engine's password from {file}: {reason}") from None
    if not password:
        raise UsageError(f"the engine's password is to be in {file}, whose first line is empty")
    return password


def from_environment() -> str:
    return os.environ.get(VARIABLE, "")


def with_password(url: str, password: str) -> str:
    """The URL with the password of the user it names."""
    found = _AUTHORITY.match(url)
    if not password or not found:
        return url
    scheme, login, rest = found[1], found[2], url[found.end() :]
    if not login:
        raise UsageError(f"a password needs its user: write {scheme}USER@… as the engine, not {shown(url)}")
    if ":" in login:
        raise UsageError(f"the engine's password is given twice: take it out of the URL, {shown(url)}")
    return f"{scheme}{login}:{quote(password, safe='')}@{rest}"
