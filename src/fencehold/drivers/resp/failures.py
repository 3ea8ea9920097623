"""What a failure of a Redis means about the world, in one place for all that use one.

1. An error that Redis answers is an answer: what was asked was not done. Only a connection that was lost leaves
   that open.
2. Whether trying again helps is in the kind of the error: `Unavailable` where it may, `PermissionDenied` and
   `UsageError` where it does not.
3. A password that is not taken is `PermissionDenied`, whenever that comes out: Redis is there, and it refused.
"""

import re
from collections.abc import Iterable

from redis import exceptions

from fencehold.drivers.connect_errors import of_attempt
from fencehold.errors import (
    FenceholdError,
    OutcomeUnknown,
    PermissionDenied,
    Unavailable,
    Unsupported,
    UsageError,
)

_MOVED = ("MOVED", "ASK", "CROSSSLOT")
_DEMOTED = ("READONLY", "MASTERDOWN", "LOADING", "CLUSTERDOWN")
"""Answers of a server that may have been replaced by another."""
_HINTS = {
    "READONLY": "it is a replica now, and takes no writes",
    "LOADING": "it is reading its data from disk",
    "MASTERDOWN": "it is a replica that has lost its master",
    "OOM": "it is out of memory (maxmemory), and takes no writes",
    "MISCONF": "it cannot save to disk, and takes no writes",
    "NOREPLICAS": "it has fewer replicas than it needs for writes",
    "BUSY": "it is busy with a long script",
    "TRYAGAIN": "it asks to be tried again",
}


_NO_PASSWORD = "called without any password configured"
"""What Redis says of a password where there is none."""
_CODES = (*_MOVED, *_DEMOTED, *_HINTS, "NOPERM", "NOAUTH", "WRONGPASS", "NOSCRIPT")
_CODE = re.compile(rf"\b({'|'.join(_CODES)})\b")


class Refusal(Exception):
    """An error that Redis answered, in its words."""

    @property
    def code(self) -> str:
        """The error code in Redis's words. For a script that failed, Redis 6 has it somewhere in the middle."""
        found = _CODE.search(str(self))
        return found[0] if found else str(self).partition(" ")[0]

    @property
    def is_demotion(self) -> bool:
        """Whether another server may be the one to ask."""
        return self.code in _DEMOTED

    @property
    def is_unknown_script(self) -> bool:
        return self.code == "NOSCRIPT"


def answered(refusal: Refusal, server: str) -> FenceholdError:
    """The error for a command that Redis refused. Nothing was done."""
    text, code = str(refusal), refusal.code
    if "WRONGTYPE" in text:
        return UsageError("the name is in use in Redis as something else: a semaphore, a lock, or data of others")
    if code == "NOPERM" or "ACL failure" in text or "user executing the script can't" in text:
        return PermissionDenied(f"Redis at {server} does not allow this to its user: {text}")
    if code in ("NOAUTH", "WRONGPASS") or _NO_PASSWORD in text:
        return _not_admitted(server, text)
    if code in _MOVED:
        return Unsupported(
            f"{server} is part of a Redis Cluster, which has no locks here: use redlock://, or one Redis"
        )
    if "fencehold server" in text.lower():
        return UsageError(f"{server} is a Fencehold server, not a Redis: use fencehold://{server}")
    if "unknown command" in text.lower():
        return Unsupported(f"Redis at {server} is too old: 6.0 is needed: {text}")
    return Unavailable(f"Redis at {server} refused it: {_HINTS.get(code, text)}")


def unreached(error: Exception, server: str) -> FenceholdError:
    """The error for a connection that could not be made."""
    if isinstance(error, FenceholdError):
        return error
    if isinstance(error, exceptions.AuthenticationError):
        return _not_admitted(server, str(error))
    if isinstance(error, exceptions.ResponseError):
        code = getattr(error, "status_code", None)
        return answered(Refusal(f"{code} {error}" if code else str(error)), server)
    said = of_attempt(error, "redis") if isinstance(error, OSError | UnicodeError) else str(error)
    return Unavailable(f"Redis at {server} was not reached: {said or type(error).__name__}")


def never_sent(server: str) -> Unavailable:
    """The error for a command that was never written."""
    return Unavailable(f"the connection to Redis at {server} was lost before anything was sent")


def unanswered(server: str, why: str) -> OutcomeUnknown:
    """The error for a command that was written, and that was not answered."""
    return OutcomeUnknown(f"Redis at {server} did not answer: {why}")


def final_among(errors: Iterable[FenceholdError]) -> FenceholdError | None:
    """The first of the errors of several servers that waiting does not help against; None if there is none."""
    return next((error for error in errors if not isinstance(error, Unavailable | OutcomeUnknown)), None)


def _not_admitted(server: str, text: str) -> PermissionDenied:
    return PermissionDenied(f"Redis at {server} does not let us in: check user and password of the URL ({text})")
