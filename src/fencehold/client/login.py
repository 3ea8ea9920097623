"""Who asks: a user and a secret, or a token, said in the URL, in the environment, or in files.

1. What the URL says wins. Otherwise it is a token, or a user with a secret: from the environment, or from the file
   that the environment or the configuration names, so that no secret needs to stand in a URL.
2. A token goes the way of a secret: its user is called `token`.
3. What is said here is in no message and no `repr`.
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
    """The login to use, where a URL says this.

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
    """What a greeting says of who asks."""
    return ("AUTH", login.user or "default", login.password) if any(login) else ()


def _said(variable: str, file: str) -> str:
    """What a variable says, or the file that its neighbour names, or the one that the configuration names."""
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
        raise UsageError(f"a secret is to be in {path}, whose first line is empty")
    return secret
