"""The facts of a Postgres server, read once on each new connection.

1. Servers older than 13 and standbys are refused, in words that help.
2. What else it must be is for the caller to judge: whether it keeps what it commits, whether commits wait for a
   standby.
3. A pooler is detected by the process number: the client sees the pooler's own, and not the server's.
"""

from typing import NamedTuple

from fencehold.errors import Unavailable, Unsupported

_VERSION_MIN = 130_000
FACTS = """
    pg_backend_pid(), pg_is_in_recovery(), current_setting('server_version_num')::bigint,
    current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',
    current_setting('synchronous_standby_names') <> ''
"""
"""The columns to select, in the order of `ServerFacts`."""


class ServerFacts(NamedTuple):
    """One server, as it is now."""

    pid: int
    """Of the process that serves this connection."""
    is_standby: bool
    version: int
    syncs: bool
    """Whether what it has committed is on its disk (fsync)."""
    writes_whole_pages: bool
    """Whether its tables survive a power loss whole (full_page_writes)."""
    is_replicated: bool
    """Whether commits wait for a standby."""

    def check(self, where: object) -> None:
        """Refuse a server that cannot be used.

        Raises:
            Unsupported: it is too old.
            Unavailable: it is a standby.
        """
        if self.version < _VERSION_MIN:
            raise Unsupported(f"{where}: Postgres {self.version // 10_000} is too old; 13 or newer is needed")
        if self.is_standby:
            raise Unavailable(
                f"{where}: the server is a standby; name the primary in the URL, or all servers, or promote it"
            )


def facts_in(row: "tuple[bytes | None, ...]") -> ServerFacts:
    """The facts, from a row in the text format."""
    pid, is_standby, version, *flags = row
    syncs, writes_whole_pages, is_replicated = (flag == b"t" for flag in flags)
    return ServerFacts(
        int(pid or 0), is_standby == b"t", int(version or 0), syncs, writes_whole_pages, is_replicated
    )
