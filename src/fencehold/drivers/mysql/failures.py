"""What an error of the driver means: what has happened, and what may have.

1. *The server refused* a statement: the transaction it was part of is rolled back. Certainly nothing happened.
2. *The connection is gone*, or was ended, after something was sent: it may have happened; and a server that has
   received it may do it yet.
3. A deadlock, or a lock that was not granted in time: nothing happened, and trying again at once may help.
"""

import pymysql

from fencehold.errors import FenceholdError, PermissionDenied, Unavailable, UsageError

_AGAIN = (1205, 1213, 1020)
"""A lock wait that took too long; a deadlock; a row that changed since it was read."""
_LOST = (1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1180, 1317, 1927, 3024, 4031)
"""The server ends, or has ended, the connection or the statement: in the middle of whatever it was at."""
_READ_ONLY = (1290, 1792, 1836, 3100)
_DENIED = (1044, 1045, 1130, 1142, 1143, 1227, 1370, 1410, 1698, 1820, 1862, 3118, 3955, 4151)
"""A password, a right or a host that is not taken; a password that has expired, and an account that is locked."""
_NO_DATABASE = 1049
NO_TABLE = 1146
_DRIVER_CODES = 2000
"""From here up to the next thousand, errors are the driver's own."""


def code_of(error: BaseException) -> int:
    """The number of an error; 0 if it has none."""
    code = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else 0
    return code if isinstance(code, int) else 0


def is_lost(error: BaseException) -> bool:
    """Whether the server may have done what it was asked for all the same."""
    code = code_of(error)
    return not code or code in _LOST or _DRIVER_CODES <= code < _DRIVER_CODES + 1000


def is_passing(error: BaseException) -> bool:
    """Whether the same, asked again at once, may succeed."""
    return code_of(error) in _AGAIN


def refusal(error: BaseException, where: object) -> FenceholdError:
    """The error for a server's refusal."""
    code = code_of(error)
    said = f"{where}: {words_of(error)}"
    if code in _DENIED:
        return PermissionDenied(said)
    if code in _READ_ONLY:
        return Unavailable(f"{said}; name the server that takes writes in the URL")
    if code == _NO_DATABASE:
        return UsageError(f"{said}; make it first")
    return Unavailable(said)


def words_of(error: BaseException) -> str:
    """The error's text, with its number; and the system's, if it was that."""
    code = code_of(error)
    words = str(error.args[-1]) if error.args else type(error).__name__
    told = f"{words} ({code})" if code else words
    return f"{told}: {error.__cause__}" if isinstance(error.__cause__, OSError) else told
