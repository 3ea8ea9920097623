"""Errors that are both redis-py's and ours: handlers written for either catch them.

::

    redis.exceptions                 fencehold.errors
    LockError ─────────┬─ NotAcquired ─── LockTimeout      `with` did not get it in time
                       ├─ NotHeld ─────── NotOwner         nothing is held by this lock object here
                       ├─ Misused ─────── UsageError       the call makes no sense as it stands
                       └─ NotHonoured ─── Unsupported      an argument of redis-py that means nothing here
    LockNotOwnedError ─── Gone ────────── HoldLost         it was held, and is lost
    ConnectionError ───── Unreachable ─── Unavailable      certainly nothing happened
    TimeoutError ──────── InDoubt ─────── OutcomeUnknown   it may have happened

What else Fencehold refuses with (`QueueFull`, `PermissionDenied` …) is raised as it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as theirs

from fencehold import errors as ours


class NotAcquired(theirs.LockError, ours.LockTimeout):
    """It was not to be had in the time given."""

    def __init__(self, message: str, lock_name: str | None = None) -> None:
        ours.LockTimeout.__init__(self, message, names=(lock_name,) if lock_name else ())
        self.message, self.lock_name = message, lock_name


class _Named:
    """How all the others are made: as redis-py's are, with the name of the lock."""

    def __init__(self, message: str, lock_name: str | None = None) -> None:
        Exception.__init__(self, message)  # type: ignore[arg-type]
        self.message: str | None = message
        self.lock_name: str | None = lock_name


class NotHeld(_Named, theirs.LockError, ours.NotOwner):
    """Nothing is held by this lock object, as far as this thread may know."""


class Misused(_Named, theirs.LockError, ours.UsageError):
    """The call makes no sense as it stands. Nothing happened."""


class NotHonoured(_Named, theirs.LockError, ours.Unsupported):
    """An argument that redis-py takes, and that cannot mean here what it means there. Nothing happened."""


class Gone(theirs.LockNotOwnedError, ours.HoldLost):
    """It was held, and is not any more; what was done under it may not have been alone."""

    def __init__(self, message: str, lock_name: str | None = None) -> None:
        ours.HoldLost.__init__(self, message, names=(lock_name,) if lock_name else ())
        self.message, self.lock_name = message, lock_name


class Unreachable(theirs.ConnectionError, ours.Unavailable):
    """Certainly nothing happened."""


class InDoubt(theirs.TimeoutError, ours.OutcomeUnknown):
    """It may have happened; what may be held by it is freed as soon as that is possible."""


@contextmanager
def translated() -> Iterator[None]:
    """Not having reached anything, in the words of both."""
    try:
        yield
    except (Unreachable, InDoubt):
        raise
    except ours.Unavailable as error:
        raise Unreachable(str(error)) from error
    except ours.OutcomeUnknown as error:
        raise InDoubt(str(error)) from error


@contextmanager
def gone(message: str, lock_name: str) -> Iterator[None]:
    """As `translated`; and a hold that is lost is told with this message, as redis-py does."""
    try:
        with translated():
            yield
    except (ours.HoldLost, ours.NotOwner) as error:
        raise _gone(message, lock_name, error) from error


def _gone(message: str, lock_name: str, error: ours.FenceholdError) -> Gone:
    made = Gone(message, lock_name)
    if isinstance(error, ours.HoldLost):
        made.fence, made.reason = error.fence, error.reason
    return made
