"""What an error of the driver says about the world.

1. *The server said no* to a statement: it was rolled back, whole. Certainly nothing happened.
2. *The connection is gone*, or its time ran out, after something was sent: it may have happened; and a server
   that has received it, or will yet, may do it still.
3. Nothing was sent: certainly nothing happened.
4. A password or a right that is missing is said to be that: waiting does not help.
"""

import re

from fencehold.drivers.postgres.admission import is_denial
from fencehold.errors import FenceholdError, OutcomeUnknown, PermissionDenied, Unavailable, Unsupported, UsageError

AGAIN = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, a lock not had in time: nothing happened, and the same again may go well."""
MISSING = frozenset({"3F000", "42P01", "42883"})
"""There is no such schema, table or function."""
_ENDS = ("08", "57P")
"""Begin the codes of errors that end a connection: a commit under way when they came may have been made."""
_READ_ONLY = "25006"
_OTHER_ISOLATION = "25001"
_OUTGROWN = ("53200", "54000")
_NOT_TEXT = ("22P05", "22021")
_STANDBY = re.compile(r"session is read-only|server is in hot standby")


class Rejected(Exception):
    """The server said no to a statement; with its code."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message


def is_lost(sqlstate: str) -> bool:
    """Whether the server may have done what it was asked for all the same."""
    return not sqlstate or sqlstate.startswith(_ENDS)


def refusal(error: Rejected, where: object) -> FenceholdError:
    """What it means that a server said no."""
    said = f"{where}: Postgres said: {error.message} ({error.sqlstate})"
    if is_lost(error.sqlstate):
        return OutcomeUnknown(said)
    if is_denial(error.sqlstate):
        return PermissionDenied(said)
    if error.sqlstate == _READ_ONLY:
        return Unavailable(f"{said}; it is a standby, or set to read only: name the server that takes writes")
    if error.sqlstate in _OUTGROWN:
        return Unavailable(f"{said}; the server has no room for it: raise max_locks_per_transaction or its memory")
    if error.sqlstate == _OTHER_ISOLATION:
        return UsageError(said)
    if error.sqlstate in _NOT_TEXT:
        return UsageError(f"{said}; the encoding of the database cannot say that: make one with UTF8")
    if error.sqlstate in MISSING:
        return Unsupported(f"{said}; what a backend keeps there was removed while it was in use")
    return Unavailable(said)


def unreached(error: BaseException, where: object, *, denied: bool) -> FenceholdError:
    """What it means that no connection came about; `denied` says whether a server did not let us in."""
    said = first_line(error)
    if denied:
        return PermissionDenied(f"{where}: {said}")
    if _STANDBY.search(str(error)):
        return Unavailable(f"{where}: {said}; name the server that takes writes, or all of them")
    return Unavailable(f"{where}: {said}")


def first_line(error: BaseException) -> str:
    """The first of many words."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
