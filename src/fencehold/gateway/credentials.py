"""Credentials: who a client of a gateway says it is, and how that is passed on. This is the one place for both.

1. A gateway checks nothing itself: what a client shows is what the gateway shows to the service on that client's
   behalf, on connections that are used for nobody else.
2. A client that says nothing is nobody to the service, too. The login that the gateway's own URL has is for its
   own questions (health, figures), and never lent.
"""

import base64
import binascii
from collections.abc import MutableMapping
from typing import NamedTuple
from urllib.parse import quote

from fencehold.errors import UsageError

TOKEN_USER = "token"
"""The user that a bearer token is shown as: it takes the place of the secret."""
_BYTES_MAX = 4_096


class Credentials(NamedTuple):
    """A user and a secret; both empty: the client said nothing."""

    user: str = ""
    secret: str = ""

    def __repr__(self) -> str:
        # Whatever is shown of it, the secret is not.
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


def url_with(url: str, credentials: Credentials) -> str:
    """The URL of the service, with what this client says of itself in the place of what the URL says."""
    scheme, _, rest = url.partition("://")
    hosts = rest.rpartition("@")[2]
    if credentials == ANONYMOUS:
        return f"{scheme}://{hosts}"
    return f"{scheme}://{quote(credentials.user, safe='')}:{quote(credentials.secret, safe='')}@{hosts}"


def forget_own_logins(environment: MutableMapping[str, str]) -> None:
    """Take logins out of a gateway's environment: the SDK would use them for clients that say nothing."""
    for name in list(environment):
        if name.startswith(("FENCEHOLD_USER", "FENCEHOLD_SECRET", "FENCEHOLD_TOKEN")):
            del environment[name]
