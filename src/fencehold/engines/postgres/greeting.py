"""What a server must be before anything is entrusted to it. It is asked once for each connection.

1. It takes writes: a standby is passed over, and said to be one.
2. It keeps what it has acknowledged: `fsync` and `full_page_writes` are on. Without, a power loss may take back
   entries that were answered, and epochs with them, or tear the tables.
3. If the URL names several servers, one may take the place of another. Then standbys must be synchronous, or what
   was acknowledged is lost with the first server, and fences go back.

Whoever knows better says so in the URL, by name: ``unsafe=fsync``, ``full_page_writes``, ``asynchronous``.

The same question sets what our statements rely on: READ COMMITTED, commits that wait for the disk, no statement
that runs for ever, and plans that are made once and go by the keys, whatever the planner thinks of an empty table.
"""

from typing import Any

from psycopg import AsyncConnection

from fencehold.engines.postgres.address import Address
from fencehold.errors import Unavailable, Unsupported, UsageError

_VERSION_MIN = 130_000
_QUESTION = """
    SELECT pg_is_in_recovery(), current_setting('server_version_num')::bigint, current_setting('fsync') = 'on',
    current_setting('full_page_writes') = 'on', current_setting('synchronous_standby_names') <> '',
    (SELECT count(set_config(name, value, false)) FROM unnest($1::text[], $2::text[]) AS set (name, value))
"""
_UNSAFE = {
    "fsync": "does not sync what it commits (fsync is off): a power loss takes back what was acknowledged; "
    "switch it on",
    "full_page_writes": "may tear its tables in a power loss (full_page_writes is off); switch it on",
    "asynchronous": "has no synchronous standby (synchronous_standby_names is empty), but the URL names several "
    "servers: what was acknowledged is lost if another takes over; name the standbys there",
}


async def greet(connection: AsyncConnection[Any], address: Address, statement_timeout_s: float, name: str) -> None:
    """Ask a server what it is, and set what we rely on.

    Raises:
        Unavailable: it is a standby.
        UsageError: it does not keep what it acknowledges.
        Unsupported: it is too old.
        psycopg.Error: it did not answer.
    """
    settings = _settings(address, statement_timeout_s)
    cursor = await connection.execute(_QUESTION, (list(settings), list(settings.values())), binary=True)
    row = await cursor.fetchone()
    if row is None:
        raise Unavailable(f"{name}: the server did not say what it is")
    is_standby, version, is_synced, is_whole, is_replicated, _ = row
    if version < _VERSION_MIN:
        raise Unsupported(f"{name}: Postgres {version // 10_000} is too old; 13 or newer is needed")
    if is_standby:
        raise Unavailable(
            f"{name}: the server is a standby; name the primary in the URL, or all servers, or promote it"
        )
    _refuse("fsync", is_synced, address, name)
    _refuse("full_page_writes", is_whole, address, name)
    _refuse("asynchronous", is_replicated or len(address.hosts) == 1, address, name)


def _refuse(what: str, is_fine: bool, address: Address, name: str) -> None:
    if not is_fine and what not in address.unsafe:
        raise UsageError(f"{name}: the server {_UNSAFE[what]}, or say unsafe={what} in the URL")


def _settings(address: Address, statement_timeout_s: float) -> dict[str, str]:
    return {
        "synchronous_commit": address.synchronous_commit,
        "default_transaction_isolation": "read committed",
        "statement_timeout": f"{max(1, round(statement_timeout_s * 1_000))}ms",
        "idle_in_transaction_session_timeout": "10s",
        # Only what may put a commit in doubt is worth the reading.
        "client_min_messages": "warning",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        # Compiling a statement took 100 ms where running it took 0.1.
        "jit": "off",
    }
