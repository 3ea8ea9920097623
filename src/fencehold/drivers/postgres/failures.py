"""What an error of Postgres, or of its driver, means: what has happened, and what may have.

1. *The server refused* a statement: it was rolled back, whole. Certainly nothing happened.
2. *The connection is gone*, or its time ran out, after something was sent: it may have happened; and a server
   that has received it, or will yet, may do it still.
3. Nothing was sent: certainly nothing happened.
4. A missing password or right is reported as that: waiting does not help.

Whether a server refused a login, or was only not reached, libpq reports only in words, which are in the server's
language and without the code that goes with them (SQLSTATE). So:

5. The words of a server that speaks English are known, and decide at once.
6. Otherwise it is asked again, on a thread: on a connection on which libpq was told to report codes, too. That is
   a call that psycopg does not wrap; it exposes the pointer for exactly that.
7. Where that call is not found, only the words count: a refusal in another language is taken for a server that was
   not reached, and the words are shown.
"""

import asyncio
import ctypes
import ctypes.util
import re
import select
import sys
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from psycopg import pq
from psycopg.conninfo import make_conninfo

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
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|permission denied for database|"
    r'FATAL: +(?:role|database) ".*" does not exist'
)
_SAID = ":  "
"""The server's own text comes after its severity, a colon and two spaces; libpq's own words have one."""
_CODE = re.compile(r":  ([0-9A-Z]{5}): ")
_DENIED = ("28", "3D000", "42501")
"""Begin the codes of what waiting does not help against: credentials, a database that is not there, rights."""
_VERBOSE = 2
_READY = {
    pq.PollingStatus.READING: select.POLLIN,
    pq.PollingStatus.WRITING: select.POLLOUT,
}


class ReplyLost(Exception):
    """The connection was lost before the answer came: it may have happened, and may yet."""


class Rejected(Exception):
    """The server refused a statement; with its code."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message


def is_lost(sqlstate: str) -> bool:
    """Whether the server may have done what it was asked for all the same."""
    return not sqlstate or sqlstate.startswith(_ENDS)


def refusal(error: Rejected, where: object) -> FenceholdError:
    """The error for a server's refusal."""
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


def unreached(error: BaseException, where: object, denied: type[FenceholdError] | None) -> FenceholdError:
    """The error for a connection that could not be made; `denied` is its kind if the server refused the login."""
    said = f"{where}: {first_line(error)}"
    if denied is not None:
        return denied(said)
    if _STANDBY.search(str(error)):
        return Unavailable(f"{said}; name the server that takes writes, or all of them")
    return Unavailable(said)


def first_line(error: BaseException) -> str:
    """The first line of many: libpq goes on with hints of its own."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def is_denial(code: str) -> bool:
    """Whether a code says that credentials or rights are wrong."""
    return code.startswith(_DENIED)


async def is_denied(error: BaseException, params: Mapping[str, Any], seconds: float) -> bool:
    """Whether a connection that was asked for with these parameters of libpq's was refused for good.

    It takes no longer than so many seconds.
    """
    said = str(error)
    if _REFUSED.search(said):
        return True
    if _SAID not in said or seconds <= 0:
        return False
    try:
        async with asyncio.timeout(seconds):
            codes = await asyncio.to_thread(_codes, make_conninfo(**params), time.monotonic() + seconds)
    except TimeoutError:
        return False
    return any(map(is_denial, codes))


def _codes(conninfo: str, until: float) -> list[str]:
    """The error codes that servers return to an attempt to connect; none if it succeeds."""
    set_verbosity = _set_verbosity()
    if set_verbosity is None:
        return []
    # Any: the pointer is documented, and has no type.
    connection: Any = pq.PGconn.connect_start(conninfo.encode())
    try:
        set_verbosity(connection.pgconn_ptr, _VERBOSE)
        while (status := connection.connect_poll()) in _READY and (left_s := until - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(connection.socket, _READY[status])
            poll.poll(left_s * 1_000)
        return _CODE.findall(connection.error_message.decode(errors="replace"))
    finally:
        connection.finish()


@cache
def _set_verbosity() -> Any:
    """libpq's `PQsetErrorVerbosity`, out of the very library that psycopg uses; None if it cannot be found."""
    module = sys.modules.get(pq.PGconn.__module__)
    # An extension finds the functions of the library it is linked with; psycopg's own Python loads it by its name.
    where = getattr(module, "__file__", None) if pq.__impl__ != "python" else ctypes.util.find_library("pq")
    try:
        function = ctypes.CDLL(where).PQsetErrorVerbosity if where else None
    except (OSError, AttributeError):
        return None
    if function is not None:
        function.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return function
