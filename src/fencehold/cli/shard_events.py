"""Events of all shards of a service, in the order in which they arrive here.

Each shard has its own order and positions: between two shards there is none. To resume later, give a place for
each, as `locks.places` writes them.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any, Protocol

from fencehold.cli.wire import connect, map_of
from fencehold.errors import FenceholdError
from fencehold.locks.places import Place, places_text
from fencehold.locks.views import WHOLE

_WAITING_MAX = 10_000
"""Events that wait to be shown. Beyond, nothing more is read from the servers, which then send a gap."""


class Following(Protocol):
    """The events of one shard, or of the only one."""

    begun: Place | None
    """After which they begin; None: that is not known yet."""

    def follow(self) -> Iterator[dict[str, Any]]:
        """One after the other."""
        ...


class ShardEvents:
    """The events of a service, and up to where they were shown."""

    def __init__(
        self,
        url: str,
        tier: str,
        begin: Callable[[int], dict[int, Place]],
        make: Callable[[int | None, Place | None], Following],
    ) -> None:
        """`begin` returns where each of this many shards is to begin; `make` follows one from there."""
        with contextlib.closing(connect(url, tier=tier)) as wire:
            placed = map_of(wire)
        self._is_one = placed is None
        self.shards = 1 if placed is None else placed.shards
        after = begin(self.shards)
        self._each = [make(None if self._is_one else shard, after.get(shard)) for shard in range(self.shards)]
        self._shown: dict[int, Place] = {}

    @property
    def places(self) -> str:
        """Up to where they were shown. A shard that was not reached has none."""
        begun = {shard: each.begun for shard, each in enumerate(self._each) if each.begun is not None}
        return places_text({**begun, **self._shown}, self.shards)

    def follow(self) -> Iterator[dict[str, Any]]:
        """One after the other, each once."""
        for shard, event in ((0, each) for each in self._each[0].follow()) if self._is_one else self._merged():
            self._shown[shard] = event["position"], WHOLE if event["kind"] == "gap" else event["index"]
            yield event

    def _merged(self) -> Iterator[tuple[int, dict[str, Any]]]:
        queue: Queue[tuple[int, dict[str, Any]] | FenceholdError] = Queue(_WAITING_MAX)

        def read(shard: int, following: Following) -> None:
            try:
                for event in following.follow():
                    queue.put((shard, {**event, "shard": shard}))
            except FenceholdError as error:
                queue.put(error)

        for shard, following in enumerate(self._each):
            name = f"fencehold shard {shard}"
            threading.Thread(target=read, args=(shard, following), name=name, daemon=True).start()
        while True:
            told = queue.get()
            if isinstance(told, FenceholdError):
                raise told
            yield told
