"""Secrets of users: kept as slow salted hashes, checked off the event loop, cached for a moment.

1. What is kept of a secret is ``scrypt$n$r$p$salt$hash``: salted, slow on purpose, useless to a reader.
2. To check one takes tens of milliseconds, so it is done in a thread, and few at a time; when the queue is full,
   clients are told to retry later.
3. An unknown user costs as much as a known one: the time taken reveals nothing.
4. A verified secret is cached for a while, as a keyed hash that lives as long as the process, with the very hash
   it was checked against: a secret that was changed is checked again.
"""

import asyncio
import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from fencehold.core.policy import User
from fencehold.errors import Overloaded

_N, _R, _P = 1 << 14, 8, 1
_SALT_BYTES, _HASH_BYTES = 16, 32
_MEMORY_BYTES = 64 << 20
SECRET_BYTES_MAX = 1_024
REMEMBERED_MAX = 4_096
REMEMBERED_S = 60.0
WAITING_MAX = 64
"""Checks that may wait for a thread."""
_THREADS = 1
"""Logins may use one core, however many arrive."""


def hashed(secret: str) -> str:
    """What is kept of a secret."""
    salt = os.urandom(_SALT_BYTES)
    made = _scrypt(secret.encode(), salt, _N, _R, _P)
    return f"scrypt${_N}${_R}${_P}${b64encode(salt).decode()}${b64encode(made).decode()}"


def matches(secret: str, kept: str) -> bool:
    """Whether a secret is the one that was hashed. Slow on purpose."""
    try:
        kind, n, r, p, salt, made = kept.split("$")
        if kind != "scrypt":
            return False
        return hmac.compare_digest(
            _scrypt(secret.encode(), b64decode(salt), int(n), int(r), int(p)), b64decode(made)
        )
    except (ValueError, MemoryError):
        return False


def _scrypt(secret: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY_BYTES, dklen=_HASH_BYTES)


_NOBODY = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
"""What is checked in the place of an unknown user."""


class Secrets:
    """Checks the secrets of users for one server."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._key = os.urandom(32)
        self._remembered: OrderedDict[bytes, float] = OrderedDict()
        self._waiting = 0

    def recall(self, name: str, secret: str, user: User | None) -> bool:
        """Whether a secret was verified a moment ago, and the user's secrets are still the same."""
        until = self._remembered.get(self._trace(name, secret, user))
        return until is not None and until > asyncio.get_running_loop().time()

    async def check(self, name: str, secret: str, user: User | None) -> bool:
        """Whether a secret is one of a user's.

        Raises:
            Overloaded: too many are checked already.
        """
        if len(secret.encode()) > SECRET_BYTES_MAX:
            return False
        if self.recall(name, secret, user):
            return True
        if self._waiting >= WAITING_MAX:
            raise Overloaded(f"{self._waiting} logins are checked already", retry_after_s=1.0)
        kept = (user.secrets or ()) if user is not None and not user.disabled else ()
        self._executor = self._executor or ThreadPoolExecutor(_THREADS, "fencehold logins")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self._executor, _matches_any, secret, kept or (_NOBODY,))
        finally:
            self._waiting -= 1
        if is_right:
            self._remember(self._trace(name, secret, user), loop.time() + REMEMBERED_S)
        return is_right

    def _trace(self, name: str, secret: str, user: User | None) -> bytes:
        kept = "\n".join((user.secrets or ()) if user is not None and not user.disabled else ())
        return hmac.digest(self._key, f"{name}\n{kept}\n{secret}".encode(), "sha256")

    def _remember(self, trace: bytes, until: float) -> None:
        self._remembered[trace] = until
        self._remembered.move_to_end(trace)
        while len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def close(self) -> None:
        """End the thread. The result of a running check is discarded."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def _matches_any(secret: str, kept: tuple[str, ...]) -> bool:
    # Always all of them: the time taken does not reveal which one matched.
    found = [matches(secret, each) for each in kept]
    return any(found)
