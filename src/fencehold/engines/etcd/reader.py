"""Reading entries, a page at a time, and following the journal as entries are put.

1. Positions have no gaps. What is missing at the front was trimmed, and a snapshot is in its place; anything else
   that is missing is damage.
2. A page is bounded in bytes: it is sized by the entries seen so far, and one that is larger than an answer may
   be is asked for again in halves.
3. A watch only makes a tail quick. When it breaks, skips, was compacted or has been silent for a while, a read
   shows what there is; if that finds what the watch did not deliver, the watch is made anew. So a member that
   hangs, or was cut off from the others, delays a tail and cannot deceive it.
4. An entry is delivered once, in its order, whatever a watch repeats.
5. A watch is for quiet times. It wakes this process, and costs etcd a message, for every entry; when they come
   fast, they are read by the page instead, every so often, until they come slowly again; unless the tail is wanted
   close: then it is a watch all the same.
6. A watch from a revision that has passed is served by etcd only a tenth of a second later, when it next looks for
   such. So a close tail has its watch begin now, and then reads what came before it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.client import AnswerTooLarge, EtcdClient
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.transactions import Message
from fencehold.engines.etcd.layout import JournalKeys, decode_entry
from fencehold.engines.etcd.snapshots import pointer_at
from fencehold.errors import Damaged, Trimmed, Unavailable
from fencehold.journal.port import Record
from fencehold.types import Position

PAGE_BYTES = 1 << 20
PAGE_ENTRIES_MAX = 512
_PAGE_ENTRIES_FIRST = 32
_PAUSE_S = 0.02
"""After a watch that broke or did not begin, so that nothing spins where etcd serves no watches."""
_PACE_S = 0.15
"""Between pages, when entries come fast: how far behind a tail may be then."""
_WINDOW_S = 0.25
_WAKES_MAX = 16
"""Messages of a watch within the window that are too many: several times those of an idle leader."""
_CALM_ENTRIES = 3
_CALM_PAGES = 10
"""So many pages in a row with no more entries each: they come slowly."""
_NOW = 0
"""The revision from which etcd takes a watch to begin with the next."""


class EntryPage(NamedTuple):
    """Some entries in a row, and what was known when they were read."""

    records: list[Record]
    end: Position
    """Of the journal."""
    revision: int
    """Of etcd: a watch from the next one on misses nothing."""


class EntryPages:
    """The entries after a position, in order."""

    def __init__(self, cluster: EtcdClient, keys: JournalKeys, after: Position) -> None:
        self._cluster = cluster
        self._keys = keys
        self._entries_max = _PAGE_ENTRIES_FIRST
        self.position = after
        """Of the last entry handed out."""

    async def next(self) -> EntryPage:
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
        return EntryPage(page, end, found.header.revision)

    def take(self, pair: Message) -> Record | None:
        """The next entry, if this is it; None if there is another at its place, or a beginning."""
        position = self._keys.position(pair.key)
        record = decode_entry(position, pair.value)
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
            except AnswerTooLarge:
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


class JournalTail:
    """A reader that follows the end of a journal."""

    def __init__(self, cluster: EtcdClient, keys: JournalKeys, after: Position, *, closely: bool = False) -> None:
        self._cluster = cluster
        self._keys = keys
        self._pages = EntryPages(cluster, keys, after)
        self._watch: EntryWatch | None = None
        self._closely = closely
        self._hurry = asyncio.Event()
        """It is wanted close, so it does not rest between pages."""
        self._is_joining = False
        """The watch delivers what came after it began; what came before is not all read yet."""
        self._is_closed = False
        self._busy_pages = 0
        """Entries come fast: they are read for so many pages more, at least."""
        self._wakes = 0
        self._window_at = 0.0

    async def records(self) -> AsyncIterator[Record]:
        """Every entry, until closed.

        Raises:
            Trimmed, Damaged, Unavailable: as the port says.
        """
        try:
            while not self._is_closed:
                for record in await self._hear() or await self._read():
                    yield record
        except Unavailable:
            if not self._is_closed:
                raise
        finally:
            self.close()

    def close(self) -> None:
        """Let `records` end."""
        self._is_closed = True
        self._drop_watch()

    def follow_closely(self, wanted: bool) -> None:
        """As the port says."""
        self._closely = wanted
        if wanted:
            self._busy_pages = 0
            self._hurry.set()

    async def _hear(self) -> list[Record]:
        """What the watch delivers next; nothing if it is silent, or there is none any more."""
        if self._busy_pages:
            await self._rest()
        while self._watch is not None and not self._is_joining:
            pairs = await self._watch.next(self._cluster.bounds.silence_s)
            if self._watch is not None and self._watch.is_broken:
                self._drop_watch()
                await asyncio.sleep(_PAUSE_S)
            if not pairs:
                break
            self._look_at_pace()
            if fresh := self._fresh(pairs):
                return fresh
        return []

    async def _rest(self) -> None:
        """Between two pages, but no longer than until it is wanted close."""
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PACE_S):
                await self._hurry.wait()

    def _look_at_pace(self) -> None:
        if self._closely:
            return
        now = asyncio.get_running_loop().time()
        if now - self._window_at > _WINDOW_S:
            self._window_at, self._wakes = now, 0
        self._wakes += 1
        if self._wakes > _WAKES_MAX:
            self._busy_pages = _CALM_PAGES
            self._drop_watch()

    async def _read(self) -> list[Record]:
        if self._closely and self._watch is None:
            await self._watch_from_now()
        page = await self._pages.next()
        if self._busy_pages:
            self._busy_pages = _CALM_PAGES if len(page.records) > _CALM_ENTRIES else self._busy_pages - 1
        if self._is_joining:
            self._is_joining = self._pages.position < page.end
        elif page.records:
            # What a watch should have delivered, if there is one: it is behind, or hangs.
            self._drop_watch()
        elif self._watch is None and not self._busy_pages and (stream := self._cluster.stream()) is not None:
            self._watch = EntryWatch(stream, self._keys, page.revision + 1)
        return page.records

    async def _watch_from_now(self) -> None:
        stream = self._cluster.stream()
        if stream is not None:
            watch = self._watch = EntryWatch(stream, self._keys)
            self._is_joining = await watch.begun(self._cluster.bounds.silence_s)
        if not self._is_joining:
            self._drop_watch()
            await asyncio.sleep(_PAUSE_S)

    def _fresh(self, pairs: list[Message]) -> list[Record]:
        """Those entries that come next. If some are skipped, the watch is not to be trusted."""
        fresh = []
        for pair in pairs:
            if self._keys.position(pair.key) <= self._pages.position:
                continue
            record = self._pages.take(pair)
            if record is None:
                self._drop_watch()
                break
            fresh.append(record)
        return fresh

    def _drop_watch(self) -> None:
        watch, self._watch = self._watch, None
        self._is_joining = False
        if watch is not None:
            watch.close()


class EntryWatch:
    """Entries from a revision on, or from when it begins, as one member delivers them."""

    def __init__(self, stream: Any, keys: JournalKeys, revision: int = _NOW) -> None:
        self._stream = stream
        self._request: Message | None = messages.WatchRequest(
            create_request=messages.WatchCreateRequest(
                key=keys.entries_start,
                range_end=keys.entries_end,
                start_revision=revision,
                filters=[messages.WatchCreateRequest.NODELETE],
                fragment=True,
            )
        )
        self._reading: asyncio.Task[Message | None] | None = None
        self.is_broken = False

    async def begun(self, silence_s: float) -> bool:
        """Whether it has begun, by its first message: that confirms it, before any entry."""
        return await self._message(silence_s) is not None

    async def next(self, silence_s: float) -> list[Message]:
        """The next entries; none after a silence, or if it broke."""
        while (told := await self._message(silence_s)) is not None:
            if told.events:
                return [event.kv for event in told.events]
        return []

    async def _message(self, silence_s: float) -> Message | None:
        """Its next message; None after a silence, or if it broke."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        reading = self._reading
        await asyncio.wait({reading}, timeout=silence_s)
        if not reading.done():
            return None
        self._reading = None
        told = None if reading.cancelled() else reading.result()
        self.is_broken = self.is_broken or told is None
        return told

    def close(self) -> None:
        self.is_broken = True
        self._stream.cancel()
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> Message | None:
        """Its next message; None if it broke."""
        try:
            if self._request is not None:
                await self._stream.write(self._request)
                self._request = None
            told = await self._stream.read()
        except CallFailed:
            return None
        # Cancelled by etcd: the revision was compacted, or the member has lost its leader.
        return None if told is None or told.canceled else told
