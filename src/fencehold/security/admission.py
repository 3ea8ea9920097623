"""Admission: who asks, by a certificate, a user with a secret, or a token. One function for all listeners.

1. A certificate was checked by the handshake; a secret is checked by `check_user`, on a thread of its own, as that
   is slow on purpose; a token by its hash.
2. Nothing else is an identity: no address, no name that a client gives itself, no header.
3. Failures cost time (`throttle`), and are told in the same words whatever was wrong: not whether there is such a
   user.
4. What was shown is in no message, log or `repr`.
"""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import NamedTuple, TypeAlias

from fencehold.errors import PermissionDenied
from fencehold.security.certificates import TOKEN_USER, principal_of
from fencehold.security.listener import network_of
from fencehold.security.throttle import Throttle
from fencehold.security.tokens import Tokens

CheckUser: TypeAlias = Callable[[str, str], bool]
"""Whether a user has this secret. Called on a thread: slow, or from what it remembers."""

SECRET_BYTES_MAX = 1_024
_CHECKS_AT_ONCE = 1
"""Threads that check secrets: one core of several, at the most, whatever comes."""


class How(Enum):
    """How somebody is known."""

    CERTIFICATE = "certificate"
    SECRET = "secret"
    TOKEN = "token"
    NOT = ""


class Known(NamedTuple):
    """Who asks, and how that is known; nobody, if nothing was shown."""

    principal: str = ""
    how: How = How.NOT


NOBODY = Known()


class Shown(NamedTuple):
    """What somebody shows of themselves: as much as is there."""

    certificate: ssl.SSLObject | None = None
    user: str = ""
    secret: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return f"Shown(certificate={self.certificate is not None}, user={self.user!r})"


class WrongLogin(PermissionDenied):
    """No such user, or another secret; or no such token."""

    def __init__(self) -> None:
        super().__init__("no such user, or another secret")


class Admission:
    """What a node needs to find out who asks."""

    def __init__(
        self,
        *,
        tokens: Tokens | None = None,
        check_user: CheckUser | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        self.tokens = tokens
        self.check_user = check_user
        self.throttle = throttle or Throttle()
        self._threads: ThreadPoolExecutor | None = None

    @property
    def has_logins(self) -> bool:
        """Whether there is anybody who could log in with a secret or a token."""
        return self.tokens is not None or self.check_user is not None

    async def admit(self, peer: str, shown: Shown) -> Known:
        """Find out who asks from an address, by what is shown: a token, a secret, or else a certificate.

        Raises:
            PermissionDenied: what was shown is wrong. It was said late, see `throttle`.
            Overloaded: too many logins from there wait; nothing was checked.
        """
        if not shown.token and not shown.user:
            return by_certificate(shown.certificate)
        async with self.throttle.turn(network_of(peer)) as fail:
            known = await self._known(shown)
            if known is NOBODY:
                fail()
        if known is NOBODY:
            raise WrongLogin
        return known

    async def _known(self, shown: Shown) -> Known:
        token = shown.token or (shown.secret if shown.user == TOKEN_USER else "")
        if token:
            principal = self.tokens.principal_of(token) if self.tokens is not None else ""
            return Known(principal, How.TOKEN) if principal else NOBODY
        if self.check_user is None or len(shown.secret.encode(errors="replace")) > SECRET_BYTES_MAX:
            return NOBODY
        loop = asyncio.get_running_loop()
        is_right = await loop.run_in_executor(self._pool(), self.check_user, shown.user, shown.secret)
        return Known(shown.user, How.SECRET) if is_right else NOBODY

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_CHECKS_AT_ONCE, thread_name_prefix="fencehold login")
        return self._threads

    def close(self) -> None:
        """Check nobody any more."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


def by_certificate(peer: ssl.SSLObject | None) -> Known:
    """Who a connection is by the certificate it showed, if it did.

    Raises:
        NoPrincipal: it showed one that names nobody, or not clearly one.
    """
    principal = principal_of(peer) if peer is not None else ""
    return Known(principal, How.CERTIFICATE) if principal else NOBODY
