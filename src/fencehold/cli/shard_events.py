"""Events of all shards of a service, in the order in which they arrive here.

Each shard has its own order, and positions of its own: between two shards there is none to keep.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

from fencehold.cli.wire import connect, map_of
from fencehold.errors import FenceholdError, UsageError

_WAITING_MAX = 10_000
"""Events that wait to be shown. Beyond, nothing more is read from the servers, which then tell a gap."""

Follow = Callable[[int | None], Iterator[dict[str, Any]]]
"""Makes the events of one shard, or of the only one."""


def followed(url: str, has_begin: bool, tier: str, follow: Follow) -> Iterator[dict[str, Any]]:
    """The events of all shards. `has_begin`: they are to begin at a place, not now.

    Raises:
        UsageError: they are to begin at a place, and there are several shards.
    """
    with contextlib.closing(connect(url, tier=tier)) as wire:
        placed = map_of(wire)
    if placed is None:
        return follow(None)
    if has_begin:
        raise UsageError("--after is a position of one shard, and this service has several: leave it out")
    return _merged(placed.shards, follow)


def _merged(shards: int, follow: Follow) -> Iterator[dict[str, Any]]:
    queue: Queue[dict[str, Any] | FenceholdError] = Queue(_WAITING_MAX)

    def read(shard: int) -> None:
        try:
            for event in follow(shard):
                queue.put({**event, "shard": shard})
        except FenceholdError as error:
            queue.put(error)

    for shard in range(shards):
        threading.Thread(target=read, args=(shard,), name=f"fencehold shard {shard}", daemon=True).start()
    while True:
        event = queue.get()
        if isinstance(event, FenceholdError):
            raise event
        yield event
