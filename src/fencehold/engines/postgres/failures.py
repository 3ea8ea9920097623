"""What an error of the driver says about the world.

1. *The server said no* to a statement: it was rolled back, whole. What was asked is certainly absent.
2. *The connection is gone*, or its time ran out, after something was sent: it may have happened; and a server
   that has received it, or will yet, may do it still. `Lost` says so, and never leaves this engine.
3. Nothing was sent: certainly absent.
"""

import psycopg

from fencehold.errors import Damaged, FenceholdError, NotAdmitted, Overloaded, Unavailable, UsageError

_CONNECTION = ("08", "57P")
"""Begin the codes of errors that end a connection: a commit under way when they came may have been made."""
_DAMAGE = ("XX001", "XX002")
_READ_ONLY = "25006"
_DENIED = "42501"
_FULL = "53100"
_ROOM_S = 1.0
"""How soon to try again when the server's disk is full: somebody has to make room."""


class Lost(Exception):
    """The reply is lost: it may have happened, and may yet."""


class Unanswered(Unavailable):
    """Nobody answered, though it was asked: fine for whoever only reads, or may do a thing twice."""


def is_lost(error: psycopg.Error) -> bool:
    """Whether the server may have done what it was asked for all the same."""
    return error.sqlstate is None or error.sqlstate.startswith(_CONNECTION)


def refusal(error: psycopg.Error, where: object) -> FenceholdError:
    """What it means that a server said no."""
    said = f"{where}: Postgres said: {first_line(error)} ({error.sqlstate})"
    if error.sqlstate in _DAMAGE:
        return Damaged(f"{said}; restore the database from a copy")
    if error.sqlstate == _DENIED:
        return UsageError(f"{said}; the tables must belong to the user in the URL, or be granted to it")
    if error.sqlstate == _READ_ONLY:
        return Unavailable(f"{said}; name the server that takes writes in the URL")
    if error.sqlstate == _FULL:
        return Overloaded(f"{said}; make room on its disk", retry_after_s=_ROOM_S)
    return Unavailable(said)


def unreached(error: BaseException, host: str, *, denied: bool) -> Unavailable:
    """What it means that no connection came about; `denied` says whether the server did not let us in."""
    kind = NotAdmitted if denied else Unavailable
    return kind(f"{host}: {first_line(error)}")


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
