"""The login of a client: a user and a secret, or a token, from the URL, the environment, or files.

1. The URL wins. Otherwise it is a token, or a user with a secret: from the environment, or from the file that the
   environment or the configuration names, so that a URL needs no secret.
2. A token is sent like a secret: its user is called `token`.
3. No secret is in a message or a `repr`.
"""

import os
from pathlib import Path
from typing import NamedTuple

from fencehold.drivers.address import Login
from fencehold.errors import UsageError

TOKEN_USER = "token"
_BYTES_MAX = 4_096


class LoginFiles(NamedTuple):
    """What a configuration names: never a secret itself."""

    user: str = ""
    secret_file: str = ""
    token_file: str = ""


NOTHING = LoginFiles()


def login_of(user: str, secret: str, files: LoginFiles = NOTHING) -> Login:
    """The login to use, with this user and secret from the URL.

    Raises:
        UsageError: a file cannot be read, or is empty.
    """
    if secret:
        return Login(user, secret)
    user = user or os.environ.get("FENCEHOLD_USER", "") or files.user
    if not user and (token := _said("FENCEHOLD_TOKEN", files.token_file)):
        return Login(TOKEN_USER, token)
    return Login(user, _said("FENCEHOLD_SECRET", files.secret_file)) if user else Login()


def words_of(login: Login) -> tuple[str, ...]:
    """The words of the greeting that authenticate the client."""
    return ("AUTH", login.user or "default", login.password) if any(login) else ()


def _said(variable: str, file: str) -> str:
    """The value of a variable, or the content of the file named by `…_FILE`, or by the configuration."""
    if said := os.environ.get(variable):
        return said
    path = os.environ.get(f"{variable}_FILE") or file
    return read_secret(Path(path).expanduser()) if path else ""


def read_secret(path: Path) -> str:
    """The first line of a file.

    Raises:
        UsageError: it cannot be read, or is empty.
    """
    try:
        with path.open("rb") as source:
            secret = source.read(_BYTES_MAX).decode().partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"cannot read a secret from {path}: {reason}") from None
    if not secret:
        raise UsageError(f"{path} must contain a secret, but its first line is empty")
    return secret
