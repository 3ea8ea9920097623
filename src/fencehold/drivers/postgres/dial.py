"""Dialling: how a line is made, within a time, and what is asked of the server first.

1. It is told what it is that answers: too old, a standby, one that does not keep what it commits, or a pooler.
2. A pooler shows by the number of the process: it gives one of its own, and not the server's.
"""

import asyncio
from typing import NamedTuple

import psycopg
from psycopg import AsyncConnection

from fencehold.drivers.postgres.address import Address
from fencehold.drivers.postgres.admission import is_denied
from fencehold.drivers.postgres.failures import Rejected, refusal, unreached
from fencehold.drivers.postgres.line import Line, Row
from fencehold.errors import OutcomeUnknown, Unavailable, Unsupported

_VERSION_MIN = 130_000
_QUESTION = b"""
    SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('server_version_num'),
    current_setting('fsync') = 'on', current_setting('synchronous_standby_names') <> ''
"""


class Greeting(NamedTuple):
    """What a server said of itself."""

    pid: int
    keeps: bool
    """Whether what it has committed is on its disk."""
    is_replicated: bool
    """Whether commits wait for a standby."""
    is_pooled: bool
    """Whether a pooler is in between."""


async def dial(address: Address, connect_s: float, answer_s: float) -> tuple[Line, Greeting]:
    """Connect; whoever is given the line ends it.

    Raises:
        Unavailable: nobody answers, or it is a standby.
        PermissionDenied: it does not let us in.
        Unsupported: it is too old.
    """
    until = asyncio.get_running_loop().time() + connect_s
    try:
        async with asyncio.timeout_at(until):
            connection = await AsyncConnection.connect(autocommit=True, **address.params)
    except TimeoutError as error:
        raise Unavailable(f"{address}: no answer in {connect_s:g} s") from error
    except (psycopg.Error, OSError) as error:
        left_s = until - asyncio.get_running_loop().time()
        raise unreached(error, address, denied=await is_denied(error, address.params, left_s)) from error
    pid = connection.pgconn.backend_pid
    line = Line(connection, address, min(connect_s, answer_s))
    try:
        (row,) = await told(line, address, _QUESTION)
        greeting = _greeting(row, pid, address)
        line.prepares = not greeting.is_pooled and address.ours.get("pooler") != "transaction"
        return line, greeting
    except BaseException:
        line.end("it was not wanted")
        raise


async def told(line: Line, address: Address, statement: bytes) -> list[Row]:
    """What a statement gives that does no harm if it is done, or done twice.

    Raises:
        Unavailable, PermissionDenied: it was not done, or it does not matter that it was.
    """
    try:
        return await line.ask(statement)
    except Rejected as error:
        raise refusal(error, address) from error
    except OutcomeUnknown as error:
        raise Unavailable(str(error)) from error


def _greeting(row: Row, shown_pid: int, address: Address) -> Greeting:
    pid, is_standby, version, keeps, is_replicated = row
    if int(version or 0) < _VERSION_MIN:
        raise Unsupported(f"{address}: Postgres {int(version or 0) // 10_000} is too old; 13 or newer is needed")
    if is_standby == b"t":
        raise Unavailable(f"{address}: the server is a standby; name the primary in the URL, or promote it")
    return Greeting(int(pid or 0), keeps == b"t", is_replicated == b"t", int(pid or 0) != shown_pid)
