"""kazoo's handler for a journal: plain sockets, and a `select` that costs little.

`fencehold.drivers.zookeeper.handler` has the rules of the rest.
"""

import select
import ssl
from collections.abc import Sequence
from typing import Any

from fencehold.drivers.zookeeper.handler import LoopHandler


class PollHandler(LoopHandler):
    """Serves one client, on the event loop it was made on."""

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `select.select`, for any number of files; kazoo's own makes and closes an epoll each time."""
        # What TLS has read ahead is in no socket any more, and no poll would tell of it.
        ahead = {reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()}
        poll = select.poll()
        for file in {*readers, *writers}:
            poll.register(file, select.POLLIN * (file in readers) | select.POLLOUT * (file in writers))
        wait_ms = 0 if ahead else None if timeout is None else timeout * 1_000
        found = dict(poll.poll(wait_ms))
        can_read = [file for file in readers if file in ahead or found.get(file.fileno(), 0) & ~select.POLLOUT]
        can_write = [file for file in writers if found.get(file.fileno(), 0) & ~select.POLLIN]
        return can_read, can_write, []
