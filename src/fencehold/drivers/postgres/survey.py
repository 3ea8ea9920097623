"""A survey of the servers that a URL names: which of them answer, and which standbys follow the primary.

1. Each server that the URL names is asked over a connection of its own.
2. The primary is asked for the standbys that it streams to, and for those that it waits for and that are not
   there, by the names in `synchronous_standby_names`. If the URL names several servers, these are they, and are
   not counted twice.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection

from fencehold.drivers.postgres.connection import Host, shown
from fencehold.drivers.postgres.failures import first_line

_WHAT = "SELECT pg_is_in_recovery(), current_setting('synchronous_standby_names')"
_STANDBYS = "SELECT application_name, coalesce(host(client_addr), ''), state, sync_state FROM pg_stat_replication"
_STANDBYS_MAX = 32
_NAMES = re.compile(r'"((?:[^"]|"")+)"|([A-Za-z_][A-Za-z0-9_$]*)')
_WORDS = ("first", "any")


class PostgresServerStatus(NamedTuple):
    """One server."""

    name: str
    is_up: bool
    role: str = ""
    """`primary` or `standby`; empty if it does not say."""
    note: str = ""


async def survey(hosts: Sequence[Host], within_s: float) -> list[PostgresServerStatus]:
    """All servers that can be found, in the order of the URL, then those that follow."""
    asked = await asyncio.gather(*(_ask(host, within_s) for host in hosts))
    members = [member for member, _ in asked]
    if len(members) == 1:
        members += asked[0][1]
    return members


async def _ask(host: Host, within_s: float) -> tuple[PostgresServerStatus, list[PostgresServerStatus]]:
    place = shown(host)
    options = f"-c statement_timeout={max(1, round(within_s * 500))}"
    # libpq's own bound is in whole seconds, two at the least; the caller has one for all.
    params = host | {"connect_timeout": str(max(2, round(within_s))), "options": options}
    try:
        async with await AsyncConnection.connect(autocommit=True, **params) as connection:
            return await _told(connection, place)
    except (psycopg.Error, OSError) as error:
        return PostgresServerStatus(place, False, note=first_line(error)), []


async def _told(
    connection: AsyncConnection[Any], place: str
) -> tuple[PostgresServerStatus, list[PostgresServerStatus]]:
    row = await (await connection.execute(_WHAT)).fetchone()
    is_standby, awaited = row if row is not None else (False, "")
    if is_standby:
        return PostgresServerStatus(place, True, "standby"), []
    rows = await (await connection.execute(_STANDBYS)).fetchmany(_STANDBYS_MAX)
    standbys = [_standby(*row) for row in rows]
    there = {name for name, *_ in rows}
    missing = [name for name in names_in(awaited) if name not in there]
    standbys += [
        PostgresServerStatus(name, False, "standby", "commits wait for it, and it is not there")
        for name in missing
    ]
    return PostgresServerStatus(place, True, "primary"), standbys


def _standby(name: str, host: str, state: str | None, sync: str | None) -> PostgresServerStatus:
    # Without the rights to see it, state is NULL: being listed means that it is connected.
    is_up = state in (None, "streaming")
    note = "" if is_up else f"it is not up to date: {state}"
    return PostgresServerStatus(f"{name} {host}".strip(), is_up, "standby", note or (sync or ""))


def names_in(setting: str) -> list[str]:
    """The standbys that `synchronous_standby_names` names; none of a `*`, which is anyone."""
    found = [quoted.replace('""', '"') or plain for quoted, plain in _NAMES.findall(setting)]
    # FIRST 2 (a, b) and ANY 1 (a, b) begin with a word that is no name.
    return found[1:] if found and found[0].lower() in _WORDS and "(" in setting else found
