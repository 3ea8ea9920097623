"""The saver: when a snapshot is due, and its taking beside the node's work.

1. A snapshot is worth its cost when replaying what came since would cost more: so it is due after so many commands
   (an entry without any counts as one, and what was replayed at the start counts, too), and the more is held, the
   more. It is also due after so many bytes, or after as many as the last one has if that is more: so a journal is
   no larger than a few snapshots or that bound, and a large state is not saved over and over.
2. Where room is scarce (`is_urgent`) it is due whenever it gives back a fair part of it: when a sixteenth of what
   was saved came since, or went. Then nothing is kept for those who read just behind.
3. It is not begun where there is no room for it: one that is broken off would only take what is left.
4. It is begun between two entries, when all that was applied is durable, so it is of durable entries only; drawing
   it shares the event loop step by step.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator

from fencehold.core.machine import Machine
from fencehold.core.snapshot import Snapshot
from fencehold.core.state import State
from fencehold.errors import FenceholdError
from fencehold.journal.port import Journal
from fencehold.types import Position

BYTES_MAX = 64 << 20
ENTRY_OVERHEAD_BYTES = 256
"""What an entry takes beside its own bytes, whatever keeps it: it is there to be counted, not to be exact."""
_FAIR = 16
"""A snapshot gives back a fair part of the room if it is one in so many."""
_RETRY_S = 1.0
"""After one that failed, before the next is tried for want of room."""
_ITEM_BYTES = 2_048
"""What a hold, a waiter or a session takes in a snapshot at the most, as long as nobody knows better."""
_HEAD_BYTES = 64 << 10


class Saver:
    """Takes one snapshot at a time, then trims."""

    def __init__(self, journal: Journal, commands_max: int = 100_000, bytes_max: int = BYTES_MAX) -> None:
        self._journal = journal
        self._commands_max = commands_max
        self._commands = 0
        self._bytes = 0
        """Appended since the last one was begun."""
        self._unsaved_bytes = 0
        """Appended after what the one that stands is of."""
        self._saved_bytes = 0
        """How large the one that stands is."""
        self._saved_items = 0
        self._drawn_bytes = 0
        """How much of the one under way is drawn."""
        self._task: asyncio.Task[None] | None = None
        self._retry_at = 0.0
        self._swept_at: Position | None = None
        """Nothing of before this position is kept any more."""
        self.saved_at = Position(0)
        self.failure: FenceholdError | None = None
        """Why the last one failed, if it did. The next is tried when it is due."""
        self.bytes_max = bytes_max
        self.is_urgent = False
        self.free_bytes: int | None = None
        """How large one may be, if that is known."""
        self.on_given_back: Callable[[], None] = _nothing
        """Called when room was given back, or could not be."""

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def begin(self, entries: int, size_bytes: int = 0, snapshot_bytes: int = 0) -> None:
        """Called before the first entry of a leader: so much had to be replayed, after a snapshot of that size."""
        self._commands, self._bytes, self._unsaved_bytes = entries, size_bytes, size_bytes
        self._saved_bytes, self._saved_items, self._swept_at = snapshot_bytes, 0, None

    def consider(self, machine: Machine, commands: int, size_bytes: int = 0) -> None:
        """Called when all that was applied is durable: begin a snapshot if one is due."""
        self._commands += commands or 1
        self._bytes += size_bytes + ENTRY_OVERHEAD_BYTES
        self._unsaved_bytes += size_bytes + ENTRY_OVERHEAD_BYTES
        if self._task is not None:
            return
        # While somebody draws a backup it waits: a state has one snapshot under way at a time.
        if machine.state.saving is None and self._is_due(machine.state):
            self._start(self._save(Position(machine.position), machine.snapshot(), _items(machine.state)))
        elif self.is_urgent and self._swept_at != self.saved_at:
            self._start(self._sweep())

    def next_bytes(self, state: State) -> int:
        """How large the next one may be, or what of it is yet to be drawn: at the most, as far as can be told."""
        each_bytes = 2 * self._saved_bytes // self._saved_items if self._saved_items else _ITEM_BYTES
        by_items = _HEAD_BYTES + _items(state) * each_bytes
        return max(0, min(self._saved_bytes + self._unsaved_bytes, by_items) - self._drawn_bytes)

    def _is_due(self, state: State) -> bool:
        if not self._has_room(state):
            return False
        if self._commands >= self._commands_max + len(state.held):
            return True
        if asyncio.get_running_loop().time() < self._retry_at:
            return False
        if not self.is_urgent:
            return self._bytes >= max(self.bytes_max, self._saved_bytes)
        least = self.bytes_max // _FAIR
        is_smaller = _items(state) <= self._saved_items - self._saved_items // _FAIR
        return self._bytes >= max(least, self._saved_bytes // _FAIR) or (is_smaller and self._saved_bytes > least)

    def _has_room(self, state: State) -> bool:
        return self.free_bytes is None or self.next_bytes(state) <= self.free_bytes

    def _start(self, work: Coroutine[None, None, None]) -> None:
        self._task = asyncio.create_task(work)

    async def _save(self, position: Position, snapshot: Snapshot, items: int) -> None:
        self._commands = self._bytes = 0
        before = self._unsaved_bytes
        try:
            await self._journal.save(position, self._counted(snapshot))
            self._saved_bytes, self._saved_items = self._drawn_bytes, items
            self._unsaved_bytes -= before
            await self._trim(position)
            self.saved_at, self.failure = position, None
        except FenceholdError as error:
            # The one before it stands, and nothing was trimmed: the journal only grows a little longer.
            self._fail(error)
        finally:
            snapshot.close()
            self._end_work()

    async def _sweep(self) -> None:
        """Give back what an earlier trim kept for a while."""
        try:
            await self._trim(self.saved_at)
        except FenceholdError as error:
            self._fail(error)
        finally:
            self._end_work()

    async def _trim(self, position: Position) -> None:
        is_urgent = self.is_urgent
        await self._journal.trim(urgent=is_urgent)
        if is_urgent:
            self._swept_at = position

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._drawn_bytes += len(chunk)
            yield chunk

    def _fail(self, error: FenceholdError) -> None:
        self.failure = error
        self._retry_at = asyncio.get_running_loop().time() + _RETRY_S
        # Not tried over and over at the same place, but soon: what it was for is still there.
        self._bytes = self._unsaved_bytes

    def _end_work(self) -> None:
        self._drawn_bytes = 0
        self._task = None
        self.on_given_back()

    async def end(self) -> None:
        """Give up the one under way, if any."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._task = None
        self._commands = self._bytes = self._unsaved_bytes = self._drawn_bytes = 0


def _items(state: State) -> int:
    """How much there is to save, counted in what takes most of it."""
    return len(state.held) + len(state.crowds) + len(state.waiters) + len(state.sessions) + len(state.kept)


def _nothing() -> None:
    """Nobody wants to know."""
