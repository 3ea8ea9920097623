"""The outbox: what was read and is not delivered yet, in order and bounded; and its progress. It does no I/O.

1. Its records and bytes are bounded. While there is no room, its reader reads no more: then the connection to the
   service fills up, and in the end the service reports which events are gone. Nothing is dropped here.
2. A batch stays in it until it is delivered, or known to be in the target. Shards share it, and its bound; each
   has a cursor of its own.
3. After a failure the next try waits: exponential back-off, up to a bound, with jitter.
"""

from collections import deque
from collections.abc import Callable, Collection
from itertools import islice
from typing import NamedTuple

from fencehold.sinks.port import Cursor, Cursors, Place, Record

_NOWHERE: Cursor = (-1, -1)
_RECORD_BYTES = 600
"""What a record takes beside its texts."""


class Bounds(NamedTuple):
    """How much a sink keeps, and how it retries."""

    records_max: int = 100_000
    bytes_max: int = 64 << 20
    batch_max: int = 500
    batch_bytes_max: int = 1 << 20
    gather_s: float = 0.02
    """How long the first event waits for others to travel with: a delivery of one costs as much as one of many."""
    pause_s_first: float = 0.1
    pause_s_max: float = 15.0


class Counters:
    """Counts of events so far."""

    def __init__(self) -> None:
        self.delivered = self.retried = self.dropped = self.gaps = self.batches = 0
        self.error = ""
        """The last error, while it lasts."""


class Outbox:
    """Pending records."""

    def __init__(self, bounds: Bounds, draw: Callable[[], float]) -> None:
        self._bounds = bounds
        self._draw = draw
        self._records: deque[Record] = deque()
        self._failures = 0
        self.size_bytes = 0
        self.cursors: Cursors = {}
        """Of the last record of each shard that is in the target."""
        self.delivered_unix_ms = 0
        self.counters = Counters()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def gather_s(self) -> float:
        """How long to wait for more before the next delivery: not at all if there is a batch, or one failed."""
        is_ready = len(self._records) >= self._bounds.batch_max or self._failures > 0
        return 0.0 if is_ready else self._bounds.gather_s

    @property
    def is_full(self) -> bool:
        return len(self._records) >= self._bounds.records_max or self.size_bytes >= self._bounds.bytes_max

    def put(self, record: Record) -> None:
        """Take one more, which comes after all that came before."""
        self._records.append(record)
        self.size_bytes += _size_bytes(record)

    def batch(self) -> list[Record]:
        """The next records to deliver; none if there are none."""
        found: list[Record] = []
        size_bytes = 0
        for record in islice(self._records, self._bounds.batch_max):
            size_bytes += len(record.body)
            if found and size_bytes > self._bounds.batch_bytes_max:
                break
            found.append(record)
        return found

    def on_delivered(self, batch: Collection[Record]) -> None:
        """All of a batch is in the target."""
        self.counters.delivered += len(batch)
        self.counters.batches += 1
        self.counters.gaps += sum(record.kind == "gap" for record in batch)
        self.counters.error = ""
        self._failures = 0
        self._remove(len(batch))

    def on_opened(self, cursors: Cursors) -> None:
        """The target reports its cursors: what is there already is not delivered again."""
        there = [record for record in self._records if record.cursor <= cursors.get(record.shard, _NOWHERE)]
        self.counters.delivered += len(there)
        self.counters.gaps += sum(record.kind == "gap" for record in there)
        for record in there:
            self.cursors[record.shard] = record.cursor
        self._keep(lambda record: record.cursor > cursors.get(record.shard, _NOWHERE))

    def clear(self, shard: int, cursor: Cursor | None) -> None:
        """Drop all pending records of a shard: it is read again after this place."""
        self._keep(lambda record: record.shard != shard)
        self.cursors.pop(shard, None)
        if cursor is not None:
            self.cursors[shard] = cursor

    def on_rejected(self, places: Collection[Place]) -> None:
        """Some records are permanently wrong."""
        wrong, before = set(places), len(self._records)
        self._keep(lambda record: record.place not in wrong)
        self.counters.dropped += before - len(self._records)

    def _keep(self, is_kept: Callable[[Record], bool]) -> None:
        self._records = deque(filter(is_kept, self._records))
        self.size_bytes = sum(map(_size_bytes, self._records))

    def on_failed(self, batch: Collection[Record], error: str) -> float:
        """A delivery failed; returns how many seconds to wait before the next try."""
        self.counters.retried += len(batch)
        self.counters.error = error
        self._failures += 1
        pause_s = self._bounds.pause_s_first * 2.0 ** min(self._failures - 1, 20)
        return min(pause_s, self._bounds.pause_s_max) * (0.5 + self._draw() / 2)

    def _remove(self, count: int) -> None:
        for _ in range(count):
            record = self._records.popleft()
            self.size_bytes -= _size_bytes(record)
            self.cursors[record.shard] = record.cursor


def _size_bytes(record: Record) -> int:
    return _RECORD_BYTES + 2 * len(record.body)
