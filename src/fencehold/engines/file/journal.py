"""The port, kept by files; and which thread does what.

The rules it obeys:

1. The event loop waits for no file, but for small appends while the disk is quick (see `pace`). One thread appends
   and leads; another reads, saves and trims, so that no append waits behind a snapshot.
2. Cancelling a call does not undo it. An append under way when its caller is cancelled ends on its thread, and is
   counted; the next append is checked against where the log ends then.
3. `close` lets every call under way end, then ends both threads. Nothing of this journal runs after it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from time import perf_counter
from typing import Any, TypeVar

from fencehold.engines.file.directory import Directory, seed_name
from fencehold.engines.file.log import Log
from fencehold.engines.file.segments import Cursor
from fencehold.engines.file.snapshots import Draft, trim
from fencehold.engines.file.worker import AppendPace, FileWorker
from fencehold.errors import OutcomeUnknown, Unavailable, UsageError
from fencehold.journal.health import Health
from fencehold.journal.port import Declared, Opened, Record
from fencehold.journal.room import Room
from fencehold.journal.sync_times import SyncTimes
from fencehold.runtime.disk import Disk
from fencehold.types import Epoch, Position

T = TypeVar("T")

_SAVE_BYTES = 256 << 10
"""Chunks of a snapshot are gathered up to this size before they go to the thread: a hand-over costs 0.1 ms."""


class FileJournal:
    """A journal in a directory, for one process at a time."""

    declared = Declared(engine="file", durable=True, shared=False)
    worker: type[FileWorker] = FileWorker
    """What does the blocking work. Tests that count entries, not threads, put one here that does it at once."""
    pace: type[AppendPace] = AppendPace
    """What decides whether the loop itself may append. Tests that stop the disk put one here that never does."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        segment_bytes_max: int = 16 << 20,
        allocate_bytes: int = 1 << 20,
        disk: Disk | None = None,
    ) -> None:
        self._path = os.path.abspath(path)
        self._disk = Disk() if disk is None else disk
        self._segment_bytes_max = segment_bytes_max
        self._allocate_bytes = allocate_bytes
        self._running: _Running | None = None
        self.sync_times = SyncTimes()

    async def open(self) -> Opened:
        if self._running is not None:
            raise UsageError(f"{self._path}: this journal is open already")
        running = _Running(
            self._path,
            self._disk,
            self.worker,
            self.pace,
            segment_bytes_max=self._segment_bytes_max,
            allocate_bytes=self._allocate_bytes,
            sync_times=self.sync_times,
        )
        try:
            opened = await running.on_appender(running.log.open)
        except BaseException:
            await running.end()
            raise
        self._running = running
        return opened

    async def read(self, after: Position) -> AsyncIterator[Record]:
        running = self._opened()
        end = running.log.end
        cursor = Cursor(running.directory, after)
        while cursor.position < end:
            for record in await running.beside_appends(cursor.step, end):
                yield record

    async def tail(self, after: Position) -> AsyncIterator[Record]:
        running = self._opened()
        cursor = Cursor(running.directory, after)
        while self._running is running:
            if cursor.position >= running.log.end:
                await running.hear()
                continue
            for record in await running.beside_appends(cursor.step, running.log.end):
                yield record

    async def lead(self, known: Epoch | None = None) -> Epoch:
        running = self._opened()
        return await running.on_appender(running.log.lead, known)

    async def append(self, entry: bytes, *, epoch: Epoch, position: Position) -> None:
        running = self._opened()
        self._check_size(entry)
        await running.append(entry, epoch, position)

    def append_here(self, entry: bytes, *, epoch: Epoch, position: Position) -> bool:
        running = self._opened()
        self._check_size(entry)
        return running.append_here(entry, epoch, position, is_lone=True)

    async def save(self, position: Position, chunks: Iterable[bytes]) -> None:
        running = self._opened()
        async with running.saving:
            await self._save(running, position, chunks)

    async def seed(self, position: Position, chunks: Iterable[bytes]) -> None:
        running = self._opened()
        async with running.saving:
            await running.on_appender(running.log.refuse_to_seed, position)
            draft = running.draft = Draft(running.directory, position, seed_name(position))
            try:
                await running.beside_appends(draft.begin)
                await self._draw(running, draft, chunks)
                await running.beside_appends(draft.finish)
                # The appender's: no entry may come between the look that finds it empty and the seed.
                await running.on_appender(running.log.seed, position)
            finally:
                running.discard_draft()

    async def trim(self, *, urgent: bool = False) -> None:
        running = self._opened()
        running.log.refuse_if_stopped()
        await running.beside_appends(trim, running.directory)

    async def health(self, within_s: float) -> Health:
        try:
            # Not by the journal's own threads: an append must not wait behind a look at a slow disk.
            async with asyncio.timeout(within_s):
                return Health(await asyncio.to_thread(self._disk.volume, self._path))
        except TimeoutError:
            return Health(note=f"{self._path}: the disk did not report its health within {within_s:g} s")
        except OSError as error:
            return Health(note=f"{self._path}: {error.strerror or error}")

    async def room(self, within_s: float) -> Room:
        health = await self.health(within_s)
        what, volume = f"the disk of {self._path}", health.volume
        if volume is None:
            return Room(what, note=health.note)
        # What only the system's administrator may still use counts as used.
        return Room(what, volume.total_bytes - volume.free_bytes, volume.total_bytes)

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.end()

    def _check_size(self, entry: bytes) -> None:
        if not 0 < len(entry) <= self.declared.entry_bytes_max:
            raise UsageError(f"an entry has 1 to {self.declared.entry_bytes_max} bytes, not {len(entry)}")

    def _opened(self) -> "_Running":
        if self._running is None:
            raise Unavailable(f"{self._path}: this journal is not open: open it first")
        return self._running

    async def _save(self, running: "_Running", position: Position, chunks: Iterable[bytes]) -> None:
        running.log.refuse_if_stopped()
        # Before anything is awaited: the fewer entries after the position, the more a trim gives back.
        running.log.roll()
        await self._check_snapshot(running, position)
        draft = running.draft = Draft(running.directory, position)
        try:
            await running.beside_appends(draft.begin)
            await self._draw(running, draft, chunks)
            await running.beside_appends(draft.publish)
        except OutcomeUnknown as error:
            running.log.stop(str(error))
            raise
        finally:
            running.discard_draft()

    async def _draw(self, running: "_Running", draft: Draft, chunks: Iterable[bytes]) -> None:
        gathered = bytearray()
        for chunk in chunks:
            gathered += chunk
            if len(gathered) >= _SAVE_BYTES:
                await running.beside_appends(draft.add, bytes(gathered))
                gathered.clear()
            # The making of the snapshot shares the loop with the node's work: let that run after every step.
            await asyncio.sleep(0)
        await running.beside_appends(draft.add, bytes(gathered))

    async def _check_snapshot(self, running: "_Running", position: Position) -> None:
        newest = max(await running.beside_appends(running.directory.snapshots), default=Position(0))
        if position < newest:
            raise UsageError(f"{self._path}: a snapshot at {position} would be older than the one at {newest}")
        if position > running.log.end:
            raise UsageError(
                f"{self._path}: a snapshot at {position} would be after the end of the journal, {running.log.end}"
            )


class _Running:
    """What an open journal has and a closed one has not: the log, two threads, and the tails that wait for
    more."""

    def __init__(
        self,
        path: str,
        disk: Disk,
        worker: type[FileWorker],
        pace: type[AppendPace],
        *,
        segment_bytes_max: int,
        allocate_bytes: int,
        sync_times: SyncTimes,
    ) -> None:
        self.directory = Directory(path, disk)
        self.log = Log(
            self.directory,
            segment_bytes_max=segment_bytes_max,
            allocate_bytes=allocate_bytes,
            sync_times=sync_times,
        )
        self.saving = asyncio.Lock()
        self.draft: Draft | None = None
        self._news = asyncio.Event()
        self._tails = 0
        self._ended = False
        self._pace = pace()
        self._appender = worker(f"fencehold append {path}", self._wake)
        self._other = worker(f"fencehold side {path}", _nothing)

    def on_appender(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        return self._appender.do(work, *args)

    async def append(self, entry: bytes, epoch: Epoch, position: Position) -> None:
        if self.append_here(entry, epoch, position, is_lone=False):
            return
        self._pace.took(await self.on_appender(self._append, entry, epoch, position))

    def _append(self, entry: bytes, epoch: Epoch, position: Position) -> float:
        """On the thread: append, and say how long that took.

        The hand-over there and back says nothing of the disk. It takes longer the more the loop has to do, and
        would keep appends on the thread for as long.
        """
        began = perf_counter()
        self.log.append(entry, epoch, position)
        return perf_counter() - began

    def append_here(self, entry: bytes, epoch: Epoch, position: Position, *, is_lone: bool) -> bool:
        """Append on the event loop, if the thread is idle and the disk is quick; returns whether it did."""
        if not self._appender.is_idle or not self._pace.allows(len(entry), is_lone=is_lone):
            return False
        began = perf_counter()
        try:
            self._appender.do_here(self.log.append, entry, epoch, position)
        finally:
            self._pace.took(perf_counter() - began)
        return True

    def beside_appends(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        if self._ended:
            raise Unavailable(f"{self.directory.path}: this journal was closed")
        return self._other.do(work, *args)

    async def hear(self) -> None:
        """Wait until something was appended, or the journal is closed."""
        self._tails += 1
        try:
            await self._news.wait()
        finally:
            self._tails -= 1

    def discard_draft(self) -> None:
        """Abort the snapshot being written, if any: on its own thread, which may be writing it."""
        draft, self.draft = self.draft, None
        if draft is not None and not self._ended:
            self._other.do(draft.discard)

    async def end(self) -> None:
        """Let the work under way end, close the files, end the threads."""
        self.discard_draft()
        self._ended = True
        self._wake()
        self._appender.do(self.log.close)
        await asyncio.gather(self._appender.end(), self._other.end())

    def _wake(self) -> None:
        if self._tails:
            news, self._news = self._news, asyncio.Event()
            news.set()


def _nothing() -> None:
    """Only the caller waits for what is done beside appends."""
