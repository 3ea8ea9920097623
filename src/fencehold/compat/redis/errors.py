"""Errors that are both redis-py's and ours: handlers written for either catch them.

::

    redis.exceptions                 fencehold.errors
    LockError ─────────┬─ NotAcquired ─── LockTimeout      `with` did not get it in time
                       ├─ NotHeld ─────── NotOwner         nothing is held by this lock object here
                       ├─ Misused ─────── UsageError       the call makes no sense as it stands
                       └─ NotHonoured ─── Unsupported      an argument of redis-py that means nothing here
    LockNotOwnedError ─── Gone ────────── HoldLost         it was held, and is lost
    ConnectionError ───── Unreachable ─── Unavailable      certainly nothing happened
                       └─ TooBusy ─────── Overloaded       nor did here: the service is overloaded
    AuthenticationError,
    NoPermissionError ─── Denied ──────── PermissionDenied the password is wrong, or a permission is missing
    TimeoutError ──────── InDoubt ─────── OutcomeUnknown   it may have happened

Fencehold's other refusals (`QueueFull`, `LimitExceeded` …) are raised as they are.

Each is made by redis-py's own `__init__`, and the attributes of Fencehold's are set here: what redis-py's errors
carry, and need for their `repr`, changes with its versions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as theirs

from fencehold import errors as ours


class _Named(theirs.LockError):
    """The base of errors about a lock: made as redis-py's are, with its name."""

    def __init__(self, message: str, lock_name: str | None = None) -> None:
        super().__init__(message, lock_name)
        # Older versions keep all arguments here, which would be shown as a tuple.
        self.args = (message,)


class NotAcquired(_Named, ours.LockTimeout):
    """It was not acquired in the time given."""

    def __init__(self, message: str, lock_name: str | None = None) -> None:
        super().__init__(message, lock_name)
        self.names, self.explanation = _names(lock_name), None


class NotHeld(_Named, ours.NotOwner):
    """Nothing is held by this lock object, as far as this thread can see."""


class Misused(_Named, ours.UsageError):
    """The call makes no sense as it stands. Nothing happened."""


class NotHonoured(_Named, ours.Unsupported):
    """An argument of redis-py that cannot have the same meaning here. Nothing happened."""


class Gone(_Named, theirs.LockNotOwnedError, ours.HoldLost):
    """It was held, and is no longer; what was done under it may not have been exclusive."""

    def __init__(self, message: str, lock_name: str | None = None) -> None:
        super().__init__(message, lock_name)
        self.names, self.fence, self.reason = _names(lock_name), 0, ""


class Unreachable(theirs.ConnectionError, ours.Unavailable):
    """Certainly nothing happened."""


class TooBusy(Unreachable, ours.Overloaded):
    """Certainly nothing happened: the service is overloaded, and says when to retry."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Denied(theirs.AuthenticationError, theirs.NoPermissionError, ours.PermissionDenied):
    """Not allowed: other credentials or permissions help, waiting does not. Nothing happened."""


class InDoubt(theirs.TimeoutError, ours.OutcomeUnknown):
    """It may have happened; what may be held by it is released as soon as possible."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of an unreachable service as those of both libraries."""
    try:
        yield
    except (Unreachable, InDoubt, Denied):
        raise
    except ours.PermissionDenied as error:
        raise Denied(str(error)) from error
    except ours.Overloaded as error:
        raise TooBusy(str(error), error.retry_after_s) from error
    except ours.Unavailable as error:
        raise Unreachable(str(error)) from error
    except ours.OutcomeUnknown as error:
        raise InDoubt(str(error)) from error


@contextmanager
def gone(message: str, lock_name: str) -> Iterator[None]:
    """As `translated`; and a lost hold is raised with this message, as redis-py does."""
    try:
        with translated():
            yield
    except (ours.HoldLost, ours.NotOwner) as error:
        raise _gone(message, lock_name, error) from error


def _names(lock_name: str | None) -> tuple[str, ...]:
    return (lock_name,) if lock_name else ()


def _gone(message: str, lock_name: str, error: ours.FenceholdError) -> Gone:
    made = Gone(message, lock_name)
    if isinstance(error, ours.HoldLost):
        made.fence, made.reason = error.fence, error.reason
    return made
