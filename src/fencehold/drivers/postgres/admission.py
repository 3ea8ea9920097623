"""Admission: whether a server refused us, or was only not to be reached.

libpq says of a connection that did not come about only words. Those of the server are in its language, and the
code that goes with them (SQLSTATE) is left out. So:

1. Words of a server that speaks English are known, and tell at once.
2. Otherwise it is asked again, on a thread: on a connection of which libpq was told to say codes, too. That is a
   call that psycopg does not wrap; it gives away the pointer for just that.
3. Where that call cannot be found, only the words count: who is refused in another language is taken for one who
   did not reach the server, and the words are told.
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

_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|permission denied for database|"
    r'FATAL: +(?:role|database) ".*" does not exist'
)
_SAID = ":  "
"""What the server said itself stands behind its severity, a colon and two spaces; libpq's own words have one."""
_CODE = re.compile(r":  ([0-9A-Z]{5}): ")
_DENIED = ("28", "3D000", "42501")
"""Begin the codes of what waiting does not help against: credentials, a database that is not there, rights."""
_VERBOSE = 2
_READY = {
    pq.PollingStatus.READING: select.POLLIN,
    pq.PollingStatus.WRITING: select.POLLOUT,
}


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
    """The codes of what servers say to an attempt to connect; none if it succeeds."""
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
