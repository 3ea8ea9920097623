"""Credentials: who a client of a gateway says it is, and how that is passed on. This is the one place for both.

1. A gateway checks nothing itself: what a client shows is what the gateway shows to the service on that client's
   behalf, on connections that serve no other client.
2. A client without credentials is anonymous to the service, too. The login in the gateway's own URL is for its own
   questions (health, figures), and never lent; nor is a certificate that the URL or the environment names.
3. A client that shows a certificate to the gateway, and no login, is the principal it names: the gateway has
   checked it, and vouches for it to the service by a token of its own (`security/admission.py`). Without such a
   token the client is anonymous.
4. With a login the gateway sends the service the client's address, by that token or by the key of the node that
   started it: a client that guesses secrets through a gateway is slowed down, and no other behind it; and the
   audit log has the address of a session with its own connection.
"""

import base64
import binascii
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fencehold.drivers.address import TlsFiles
from fencehold.errors import PermissionDenied, UsageError
from fencehold.gateway.problems import Unauthenticated
from fencehold.security.certificates import (
    ALONE,
    COMES_FROM,
    SPEAKS_FOR,
    NoPrincipal,
    Read,
    principal_in,
    read_pem,
)

TOKEN_USER = "token"
"""The user that a bearer token is shown as: it takes the place of the secret."""
CERTIFICATE = "certificate"
"""The key, in the state of an HTTP request, of its client's certificate in PEM."""
_BYTES_MAX = 4_096

LOGIN_S = 60.0
"""How long a verified login stays valid here; a server caches it as long (`security.secrets`)."""

KEY_VARIABLE = "FENCEHOLD_LISTENER_KEY"
"""By which a node gives the listeners beside it their key. A new one is made whenever the node starts."""

caller: ContextVar[str] = ContextVar("caller", default="")
"""The address of the client being served; a listener sets it. Empty: unknown."""


class Credentials(NamedTuple):
    """A user and a secret; both empty: the client sent none. Or the principal of a certificate."""

    user: str = ""
    secret: str = ""
    is_vouched: bool = False
    """The gateway has checked a certificate of this user."""

    def __repr__(self) -> str:
        # Never shows the secret.
        return f"Credentials({self.user!r})"


ANONYMOUS = Credentials()


def read_authorization(value: str) -> Credentials:
    """Read the header or metadata `authorization`.

    Raises:
        UsageError: it is neither Basic nor Bearer. It is not shown.
    """
    if not value:
        return ANONYMOUS
    scheme, _, said = value.partition(" ")
    if len(value) > _BYTES_MAX:
        raise UsageError(f"authorization has at most {_BYTES_MAX} bytes")
    if scheme.lower() == "bearer" and said.strip():
        return Credentials(TOKEN_USER, said.strip())
    if scheme.lower() == "basic":
        try:
            user, colon, secret = base64.b64decode(said, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise UsageError("authorization: Basic takes user:secret in base64") from None
        if colon:
            return Credentials(user, secret)
    raise UsageError("authorization is `Basic …` (user:secret in base64) or `Bearer …` (a token)")


def named_by(pem: bytes) -> Credentials:
    """The principal of the certificate that a client has shown, and the handshake has checked.

    One that names no principal, or an ambiguous one, or has expired since, makes the client anonymous: it may do
    what needs no login.
    """
    try:
        read, principal = _read(pem)
    except NoPrincipal:
        return ANONYMOUS
    return Credentials(principal, is_vouched=True) if read.not_after > datetime.now(UTC) else ANONYMOUS


def shown_in(scope: Mapping[str, Any]) -> Credentials:
    """The principal of the certificate of an HTTP request's connection; ANONYMOUS: it showed none."""
    pem = scope.get("state", {}).get(CERTIFICATE, b"")
    return named_by(pem) if pem else ANONYMOUS


@lru_cache(maxsize=1_024)
def _read(pem: bytes) -> tuple[Read, str]:
    read = read_pem(pem.decode("ascii", "replace"))
    return read, principal_in(read)


class Voucher:
    """The token by which a gateway speaks for clients whose certificates it has checked; there may be none."""

    def __init__(self, file: Path | None = None, key: str = "") -> None:
        """Read it once, so that an error is reported before it is needed.

        `key`: by which the node that started the gateway knows it, if one did.

        Raises:
            UsageError: it cannot be read.
        """
        self._file = file
        self._key = key
        self.token()

    def token(self) -> str:
        """What the file holds now: a token may be replaced while the gateway runs."""
        if self._file is None:
            return ""
        try:
            return self._file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the listener's token from {self._file}: {error}") from None

    def own_login(self) -> tuple[str, str]:
        """The gateway's own login, to ask whether a node leads; both empty: none."""
        if self._key:
            return SPEAKS_FOR, self._key
        token = self.token()
        return (TOKEN_USER, token) if token else ("", "")

    def login_of(self, credentials: Credentials, *, is_alone: bool = False) -> tuple[str, str]:
        """The user and the secret to show for a client; both empty: none.

        `is_alone`: on a connection that no other client with the same login will use.
        """
        user, secret = credentials.user, credentials.secret
        token = self.token() if credentials.is_vouched or not self._key else ""
        if credentials.is_vouched:
            user, secret = (f"{SPEAKS_FOR}{credentials.user}", token) if token else ("", "")
        key, address = self._key or token, caller.get()
        if user and key and address:
            return f"{COMES_FROM}{address}{ALONE if is_alone else ''} {user}", f"{key} {secret}"
        return user, secret


def refuse_to_lend(user: str, files: TlsFiles | None) -> None:
    """A client without credentials must not be taken for the gateway, whose certificate the files may hold.

    Raises:
        Unauthenticated: it would be.
    """
    if not user and files is not None and files.cert is not None:
        raise Unauthenticated("authenticate: with a login, or with a certificate that this listener may vouch for")


def not_let_in(denied: PermissionDenied, credentials: Credentials | None) -> Unauthenticated:
    """The error for a client that the service did not admit. One without credentials is told how to send them in
    its own protocol."""
    if credentials != ANONYMOUS:
        return Unauthenticated(str(denied))
    return Unauthenticated(
        "this service requires authentication: send `authorization` (Basic with user and secret, or Bearer with a "
        "token), or show a client certificate that this listener may speak for"
    )


def forget_own_logins(environment: MutableMapping[str, str]) -> None:
    """Remove logins from a gateway's environment: the SDK would use them for clients that send none."""
    for name in list(environment):
        if name.startswith(("FENCEHOLD_USER", "FENCEHOLD_SECRET", "FENCEHOLD_TOKEN", KEY_VARIABLE)):
            del environment[name]
