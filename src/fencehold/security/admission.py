"""Admission: authentication by a certificate, a user with a secret, or a token. One function for all listeners.

1. A certificate was checked by the handshake; a token is checked by its hash, which the policy has, or a file of
   the node; a secret by `check_user`, which is slow on purpose, but never blocks the event loop.
2. Nothing else is an identity: no address, no name that a client gives itself, no header.
3. Failures cost time (`throttle`), and get the same message whatever was wrong: it does not reveal whether the
   user exists.
4. Credentials are in no message, log or `repr`.
5. A listener in its own process has checked the certificates of its clients, and speaks for them: by a token that
   an administrator has given to `listener/…`, and by nothing else. It speaks for clients, never as a node.
6. A login that a listener passes on names the client's address, so that failures cost that address its time and
   not all clients of the listener. That is believed of a listener alone: one that the node has started itself, or
   that has such a token. From any other client it is ignored, and the login checked as any other.
7. A listener that the node has started itself may learn whether that node leads, as probes without credentials ask
   it that. It is anonymous all the same: everything else is refused to it.
"""

import ipaddress
import math
import ssl
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import NamedTuple, TypeAlias

from fencehold.core.policy import Token, token_id
from fencehold.errors import PermissionDenied
from fencehold.security.certificates import (
    ALONE,
    COMES_FROM,
    SPEAKS_FOR,
    TOKEN_USER,
    NoPrincipal,
    check_principal,
    principal_of,
    read_der,
)
from fencehold.security.listener import network_of
from fencehold.security.throttle import Throttle
from fencehold.security.tokens import TOKEN_BYTES_MAX, Tokens, digest_of

CheckUser: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Whether a user has this secret. It is slow, and runs on a thread of its own."""
Recall: TypeAlias = Callable[[str, str], bool]
"""Whether a user was found to have this secret a moment ago, and has it still."""

FindToken: TypeAlias = Callable[[str], tuple[str, Token] | None]
"""The owner of the policy's token with this hash, and the token."""

SECRET_BYTES_MAX = 1_024
LISTENERS = "listener/"
"""The prefix of the principal of a token that may speak for others."""


class How(Enum):
    """How a client was authenticated."""

    CERTIFICATE = "certificate"
    SECRET = "secret"
    TOKEN = "token"
    LISTENER = "listener"
    """Vouched for by a listener, which has checked a certificate."""
    NOT = ""


class Known(NamedTuple):
    """The caller, and how it was authenticated; anonymous without credentials."""

    principal: str = ""
    how: How = How.NOT
    token: str = ""
    """The name of the token, if it was one of the policy."""
    digest: str = ""
    """The hash of the token, if it was one of a file."""
    certificate: bytes = b""
    """The key of the certificate, if it was one (`certificates.key_of`)."""
    expires_s: float = math.inf
    """Until when that is valid, in Unix seconds: the connection ends then."""
    listener: str = ""
    """The owner of the token, if it is a listener which speaks for the principal."""

    def __repr__(self) -> str:
        return f"Known({self.principal!r}, {self.how.name})"


ANONYMOUS = Known()
OWN_LISTENER = Known(how=How.LISTENER)
"""Anonymous, too, but one of the node's own listeners."""


class Shown(NamedTuple):
    """The credentials that a client shows; any of them may be missing."""

    certificate: ssl.SSLObject | None = None
    user: str = ""
    secret: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return f"Shown(certificate={self.certificate is not None}, user={self.user!r})"


class Origin(NamedTuple):
    """The origin of a login."""

    address: str
    is_passed_on: bool = False
    """A trusted listener passed it on; otherwise it is the address of the connection."""
    is_alone: bool = False
    """Later logins on the same connection have this origin, too."""


class WrongLogin(PermissionDenied):
    """No such user, or another secret; or no such token."""

    def __init__(self) -> None:
        super().__init__("no such user, or another secret")


class Admission:
    """What a node needs to authenticate clients."""

    def __init__(
        self,
        *,
        tokens: Tokens | None = None,
        check_user: CheckUser | None = None,
        recall: Recall = lambda _user, _secret: False,
        throttle: Throttle | None = None,
    ) -> None:
        self.tokens = tokens
        self.check_user = check_user
        self.find_token: FindToken = lambda _digest: None
        self.recall = recall
        """A client that reconnects with a secret verified before need not queue behind those that guess."""
        self.throttle = throttle or Throttle()
        self.own_listeners: frozenset[str] = frozenset()
        """The hashes of the keys that this node has given to the listeners beside it: with them addresses are
        passed on, and the node's role is asked for, and nothing else."""

    @property
    def has_logins(self) -> bool:
        """Whether any client could log in with a secret or a token."""
        return self.tokens is not None or self.check_user is not None

    def is_own_listener(self, user: str, secret: str) -> bool:
        """Whether this is a listener that the node has started, asking for itself: it speaks for no client."""
        return user == SPEAKS_FOR and bool(secret) and digest_of(secret) in self.own_listeners

    async def admit(self, peer: str, shown: Shown) -> Known:
        """Authenticate a client at an address, by a token, a secret, or else a certificate.

        Raises:
            PermissionDenied: the credentials are wrong. It is raised late, see `throttle`.
            Overloaded: too many logins from that address wait; nothing was checked.
        """
        origin, shown = self.origin_of(peer, shown)
        if not shown.token and not shown.user:
            return by_certificate(shown.certificate)
        if self.is_own_listener(shown.user, shown.secret):
            return OWN_LISTENER
        if shown.user and self.recall(shown.user, shown.secret):
            return Known(shown.user, How.SECRET)
        async with self.throttle.turn(network_of(origin.address)) as fail:
            known = await self._known(shown)
            if known is ANONYMOUS:
                fail()
        if known is ANONYMOUS:
            raise WrongLogin
        return known

    def origin_of(self, peer: str, shown: Shown) -> tuple[Origin, Shown]:
        """The origin of a login that an address has sent, and the login as its client gave it."""
        if not shown.user.startswith(COMES_FROM):
            return Origin(peer), shown
        said, _, user = shown.user.removeprefix(COMES_FROM).partition(" ")
        if not user:
            # An empty login was passed on. It counts as a wrong login, not as a client without credentials.
            return Origin(peer), shown
        key, _, secret = shown.secret.partition(" ")
        is_listener = digest_of(key) in self.own_listeners or self._by_token(key).principal.startswith(LISTENERS)
        address = _address_in(said.removesuffix(ALONE)) if is_listener else ""
        origin = Origin(address, is_passed_on=True, is_alone=said.endswith(ALONE)) if address else Origin(peer)
        return origin, shown._replace(user=user, secret=secret)

    async def _known(self, shown: Shown) -> Known:
        if shown.user.startswith(SPEAKS_FOR):
            listener = await self._known(Shown(token=shown.secret)) if shown.secret else ANONYMOUS
            return _spoken_for(shown.user.removeprefix(SPEAKS_FOR), listener)
        token = shown.token or (shown.secret if shown.user == TOKEN_USER else "")
        if token:
            return self._by_token(token)
        if self.check_user is None or len(shown.secret.encode(errors="replace")) > SECRET_BYTES_MAX:
            return ANONYMOUS
        is_right = await self.check_user(shown.user, shown.secret)
        return Known(shown.user, How.SECRET) if is_right else ANONYMOUS

    def _by_token(self, token: str) -> Known:
        """The owner of this token: by the policy, or else by the file of this node."""
        if not 0 < len(token) <= TOKEN_BYTES_MAX:
            return ANONYMOUS
        digest = digest_of(token)
        found = self.find_token(digest)
        if found is not None:
            principal, kept = found
            expires_s = kept.expires_s or math.inf
            is_valid = time.time() < expires_s
            return Known(principal, How.TOKEN, token_id(digest), expires_s=expires_s) if is_valid else ANONYMOUS
        line = self.tokens.find(digest) if self.tokens is not None else None
        if line is None:
            return ANONYMOUS
        expires_s = math.inf if line.expires_at is None else line.expires_at.timestamp()
        return Known(line.principal, How.TOKEN, digest=digest, expires_s=expires_s)


def _address_in(said: str) -> str:
    """An address in canonical form, without a zone, which could contain anything; empty: it is none."""
    try:
        return str(ipaddress.ip_address(said.partition("%")[0]))
    except ValueError:
        return ""


def _spoken_for(principal: str, listener: Known) -> Known:
    if listener.how is not How.TOKEN or not listener.principal.startswith(LISTENERS):
        return ANONYMOUS
    try:
        # A listener cannot be spoken for.
        if principal.startswith(LISTENERS):
            return ANONYMOUS
        # The other fields of the listener's token stay: what ends with that token ends for its clients, too.
        principal = check_principal(principal)
        return listener._replace(principal=principal, how=How.LISTENER, listener=listener.principal)
    except NoPrincipal:
        return ANONYMOUS


def by_certificate(peer: ssl.SSLObject | None) -> Known:
    """The principal of the certificate that a connection showed, if it did.

    Raises:
        NoPrincipal: its certificate names none, or is ambiguous.
    """
    principal = principal_of(peer) if peer is not None else ""
    if not principal or peer is None:
        return ANONYMOUS
    return Known(principal, How.CERTIFICATE, certificate=read_der(peer.getpeercert(binary_form=True) or b"").key)
