"""Reading entries, a page at a time.

1. Positions have no gaps. What is missing at the front was trimmed, and a snapshot stands in its place; anything
   else that is missing is damage.
2. A page is bounded in bytes: it is sized by the entries seen so far, and one that is larger than an answer may
   be is asked for again in halves.
"""

from typing import NamedTuple

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.cluster import Cluster, TooMuch
from fencehold.drivers.etcd.transactions import Message
from fencehold.engines.etcd import records
from fencehold.engines.etcd.keys import Keys
from fencehold.engines.etcd.snapshots import pointer_at
from fencehold.errors import Damaged, Trimmed
from fencehold.journal.port import Record
from fencehold.types import Position

PAGE_BYTES = 1 << 20
PAGE_ENTRIES_MAX = 512
_PAGE_ENTRIES_FIRST = 32


class Page(NamedTuple):
    """Some entries in a row, and what was known when they were read."""

    records: list[Record]
    end: Position
    """Of the journal."""
    revision: int
    """Of etcd: a watch from the next one on misses nothing."""


class Pages:
    """The entries after a position, in order."""

    def __init__(self, cluster: Cluster, keys: Keys, after: Position) -> None:
        self._cluster = cluster
        self._keys = keys
        self._entries_max = _PAGE_ENTRIES_FIRST
        self.position = after
        """Of the last entry handed out."""

    async def next(self) -> Page:
        """The next entries; none if there are none yet.

        Raises:
            Trimmed, Damaged, Unavailable: as the port says.
        """
        found = await self._ask()
        end = Position(self.position + found.count)
        page: list[Record] = []
        for pair in found.kvs:
            record = self.take(pair)
            if record is None:
                raise await self._why_missing(Position(self.position + 1))
            page.append(record)
        self._adapt(page)
        return Page(page, end, found.header.revision)

    def take(self, pair: Message) -> Record | None:
        """The next entry, if this is it; None if there is another at its place, or a beginning."""
        position = self._keys.position(pair.key)
        record = records.decode(position, pair.value)
        if record is not None and position == self.position + 1:
            self.position = position
            return record
        return None

    async def _ask(self) -> Message:
        while True:
            start = self._keys.entry(Position(self.position + 1))
            request = messages.RangeRequest(key=start, range_end=self._keys.entries_end, limit=self._entries_max)
            try:
                return await self._cluster.read(request)
            except TooMuch:
                self._entries_max = max(1, self._entries_max // 2)

    def _adapt(self, page: list[Record]) -> None:
        if page:
            largest = max(len(record.entry) for record in page)
            fit = min(PAGE_BYTES // largest, 2 * self._entries_max, PAGE_ENTRIES_MAX)
            self._entries_max = max(1, fit)

    async def _why_missing(self, position: Position) -> Trimmed | Damaged:
        pointer = await pointer_at(self._cluster, self._keys)
        if pointer is not None and pointer.position >= position:
            return Trimmed(f"entries up to {pointer.position} were trimmed, {position} with them")
        return Damaged(f"position {position}: the entry is gone from etcd, and no snapshot covers it")
