"""The saver: when a snapshot is due, and its taking beside the node's work.

1. A snapshot is worth its cost when replaying what came since would cost more: so it is due after so many commands
   (an entry without any counts as one, and what was replayed at the start counts, too), and the more is held, the
   more. It is also due after so many bytes, or after as many as the last one has if that is more: so a journal is
   no larger than a few snapshots or that bound, and a large state is not saved over and over.
2. Where room is scarce (`is_urgent`) it is due whenever it gives back a fair part of it: when a sixteenth of what
   was saved came since, or went. Then nothing is kept for readers just behind.
3. It is not begun where there is no room for it: one that is aborted would only take what is left. How large it
   would be is estimated, never too low; where that is too much, it is drawn and discarded now and then, as a
   measurement.
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
"""What an entry takes beside its own bytes, in any engine: a rough figure, so that it is counted at all."""
_FAIR = 16
"""A snapshot gives back a fair part of the room if it is one in so many."""
_RETRY_S = 1.0
"""After one that failed, before the next is tried for want of room."""
_WEIGH_SHARE = 10
"""The state is weighed for no more than one part in so many of the time."""


class Saver:
    """Takes one snapshot at a time, then trims."""

    def __init__(self, journal: Journal, commands_max: int = 100_000, bytes_max: int = BYTES_MAX) -> None:
        self._journal = journal
        self._commands_max = commands_max
        self._commands = 0
        self._bytes = 0
        """Appended since the last one was begun."""
        self._unsaved_bytes = 0
        """Appended after the position of the last complete one."""
        self._saved_bytes = 0
        """How large the last complete one is."""
        self._saved_items = 0
        self._known_bytes = 0
        """How large the state was when it was drawn last."""
        self._grown_bytes = 0
        """By how much it has grown since, at the most."""
        self._drawn_bytes = 0
        """How much of the one under way is drawn."""
        self._needless_bytes: int | None = None
        """What it will give back; None if none is under way."""
        self._weigh_at = 0.0
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
        self.is_blind = False
        """That is not known, and there was no room a moment ago."""
        self.on_given_back: Callable[[], None] = _nothing
        """Called when something was trimmed."""
        self.on_written: Callable[[int], None] = _nothing
        """Called with so many bytes of a snapshot that are on their way to the journal."""

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def begin(self, entries: int, size_bytes: int = 0, snapshot_bytes: int = 0) -> None:
        """Called before the first entry of a leader: so much had to be replayed, after a snapshot of that size."""
        self._commands, self._bytes, self._unsaved_bytes = entries, size_bytes, size_bytes
        self._saved_bytes = self._known_bytes = snapshot_bytes
        # Not by more than that, unless much was held back to be granted: the first one that is drawn shows it.
        self._grown_bytes, self._saved_items, self._swept_at = 2 * size_bytes, 0, None

    def consider(self, machine: Machine, commands: int, size_bytes: int = 0, grown_bytes: int = 0) -> None:
        """Called when all that was applied is durable: begin a snapshot if one is due.

        The last entry is of so many bytes, and has made the state larger by no more than so many.
        """
        self._commands += commands or 1
        self._bytes += size_bytes + ENTRY_OVERHEAD_BYTES
        self._unsaved_bytes += size_bytes + ENTRY_OVERHEAD_BYTES
        self._grown_bytes += grown_bytes
        if self._task is not None:
            return
        if self.is_urgent and self._swept_at != self.saved_at and not self._is_retrying():
            self._start(self._sweep())
        # While a backup is drawn it waits: a state has one snapshot under way at a time.
        elif machine.state.saving is None and self._is_due(machine.state):
            self._begin(machine)

    def needed_bytes(self) -> int:
        """How much room must be left: for the rest of the one under way, and for one more after that.

        The state may be as large by then as it is now; what the one under way makes unnecessary is free by then.
        """
        state_bytes = self._known_bytes + self._grown_bytes
        if self._needless_bytes is None:
            return state_bytes
        rest_bytes = max(0, state_bytes - self._drawn_bytes)
        return rest_bytes + max(0, state_bytes - self._needless_bytes)

    def _begin(self, machine: Machine) -> None:
        if self._fits():
            self._start(self._save(Position(machine.position), machine.snapshot(), _items(machine.state)))
        elif asyncio.get_running_loop().time() >= self._weigh_at:
            self._start(self._weigh(machine.snapshot()))

    def _fits(self) -> bool:
        if self.is_blind:
            # It might fail, and take what is left: worth it only where it gives back several times as much.
            return self.needed_bytes() <= self._unsaved_bytes // _FAIR
        return self.free_bytes is None or self.needed_bytes() <= self.free_bytes

    def _is_due(self, state: State) -> bool:
        if self._commands >= self._commands_max and self._commands >= self._commands_max + len(state.held):
            return True
        if self._retry_at and self._is_retrying():
            return False
        if not self.is_urgent:
            return self._bytes >= self.bytes_max and self._bytes >= self._saved_bytes
        least = self.bytes_max // _FAIR
        is_smaller = _items(state) <= self._saved_items - self._saved_items // _FAIR
        return self._bytes >= max(least, self._saved_bytes // _FAIR) or (is_smaller and self._saved_bytes > least)

    def _is_retrying(self) -> bool:
        return bool(self._retry_at) and asyncio.get_running_loop().time() < self._retry_at

    def _start(self, work: Coroutine[None, None, None]) -> None:
        self._task = asyncio.create_task(work)

    async def _save(self, position: Position, snapshot: Snapshot, items: int) -> None:
        self._commands = self._bytes = 0
        before, grown_bytes = self._unsaved_bytes, self._grown_bytes
        self._needless_bytes = self._saved_bytes + before
        try:
            await self._journal.save(position, self._counted(snapshot))
            self._saved_bytes, self._saved_items = self._drawn_bytes, items
            self._unsaved_bytes -= before
            self._know(self._drawn_bytes, grown_bytes)
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

    async def _weigh(self, snapshot: Snapshot) -> None:
        """Draw the state and discard it, to measure its size."""
        began_at, grown_bytes = asyncio.get_running_loop().time(), self._grown_bytes
        try:
            size_bytes = 0
            for chunk in snapshot:
                size_bytes += len(chunk)
                await asyncio.sleep(0)
            self._know(size_bytes, grown_bytes)
        finally:
            snapshot.close()
            now = asyncio.get_running_loop().time()
            self._weigh_at = now + max(_RETRY_S, _WEIGH_SHARE * (now - began_at))
            self._end_work()

    def _know(self, size_bytes: int, grown_bytes: int) -> None:
        """The state was so large, as of when it had grown by so much."""
        self._known_bytes = size_bytes
        self._grown_bytes -= grown_bytes

    async def _trim(self, position: Position) -> None:
        is_urgent = self.is_urgent
        await self._journal.trim(urgent=is_urgent)
        if is_urgent:
            self._swept_at = position
        self.on_given_back()

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._drawn_bytes += len(chunk)
            self.on_written(len(chunk))
            yield chunk

    def _fail(self, error: FenceholdError) -> None:
        self.failure = error
        self._retry_at = asyncio.get_running_loop().time() + _RETRY_S
        # Not tried over and over at the same place, but soon: what it was for is still there.
        self._bytes = self._unsaved_bytes

    def _end_work(self) -> None:
        self._drawn_bytes, self._needless_bytes = 0, None
        self._task = None

    async def end(self) -> None:
        """Abort the one under way, if any."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._task = None
        self._commands = self._bytes = self._unsaved_bytes = self._grown_bytes = self._drawn_bytes = 0


def _items(state: State) -> int:
    """How much there is to save, counted in what takes most of it."""
    return len(state.held) + len(state.crowds) + len(state.waiters) + len(state.sessions) + len(state.kept)


def _nothing(*_: int) -> None:
    """No callback was set."""
