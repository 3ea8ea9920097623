"""The watch on the room: how much more the engine takes, and what is refused so that it is never full.

1. It is measured about every second, and sooner when much is written; meanwhile what is written, be it entries or
   a snapshot, counts as used. A look says what was a moment ago, so what was written since the look before it
   counts as well.
2. *Scarce*: snapshots are taken and entries trimmed as soon as that gives back a fair part. *Tight*: there is room
   for the next snapshot and a reserve, and no more: whatever makes the state grow is refused (`Overloaded`). What
   ends things is still taken, and so are renewals and time. *Spent*: the reserve is nearly gone: only renewals,
   and what is to be journaled for a client that goes away, are taken.
3. It ends by itself, when there is a good deal more room than when it began.
4. An engine that does not say how full it is, and refuses an append for want of room, is tight for a while after.
   Then new work tries it again.
"""

import asyncio
import contextlib
from collections.abc import Callable
from enum import IntEnum

from fencehold.errors import Overloaded
from fencehold.journal.port import Journal
from fencehold.journal.room import Room
from fencehold.node.saver import BYTES_MAX, ENTRY_OVERHEAD_BYTES

_LOOK_S = 1.0
_LOOK_S_MIN = 0.05
"""Between two looks, however much is written."""
_WITHIN_S = 1.0
_SETTLE_S = 0.3
"""After a trim: so long it may take until an engine says that there is more room."""
_FULL_S, _FULL_UNKNOWN_S = 1.0, 5.0
"""For so long nothing new is tried after an engine was full: if it says how full it is, and if it does not."""
_RESERVE_BYTES_MAX = 64 << 20
_RESERVE_SHARE = 8
_SPENT_SHARE = 8
"""The reserve is nearly gone when one part in so many of it is left."""
_LOOKS_SHARE = 64
"""It is measured when one part in so many of what is allowed was written."""
_JUDGE_BYTES_MAX, _JUDGE_SHARE = 256 << 10, 1_024
"""How much is written, and which part of what is allowed, before it is judged again. The state may grow by many
times as much, but by no more than the reserve."""
_SAVE_SHARE = 16
"""Entries take no more than one part in so many before a snapshot replaces them, where the state is small."""


class Level(IntEnum):
    """How much room there is."""

    AMPLE = 0
    SCARCE = 1
    TIGHT = 2
    SPENT = 3


def level_of(free_bytes: int, need_bytes: int, reserve_bytes: int, before: Level) -> Level:
    """What so much room means, if the next snapshot needs so much of it."""
    # Held back already, it takes more to resume: or it would be held back again at once.
    if free_bytes < need_bytes + reserve_bytes * (2 if before >= Level.TIGHT else 1):
        return Level.TIGHT
    return Level.SCARCE if free_bytes < 2 * need_bytes + 3 * reserve_bytes else Level.AMPLE


class RoomWatch:
    """Watches one journal, for a node that leads."""

    def __init__(self, journal: Journal, needed_bytes: Callable[[], int]) -> None:
        """`needed_bytes` says how much the next snapshot takes."""
        self._journal = journal
        self._needed_bytes = needed_bytes
        self.room = Room()
        self.level = Level.AMPLE
        self.on_level: Callable[[], None] = _nothing
        """Called when the level has changed."""
        self.on_looked: Callable[[], None] = _nothing
        """Called after each look."""
        self._written_bytes = 0
        self._looked_bytes = 0
        """What was written when the last look began."""
        self._counted_bytes = 0
        """What was written when the look before it began: all since may not be in what was found."""
        self._judged_bytes = self._judge_bytes = 0
        """What was written when it was judged last, and after how much more that is done again, while all is well:
        on the path of every append, to judge each time would be felt."""
        self._bell = asyncio.Event()
        self._full_at: float | None = None
        self._full_said = ""
        self._held_at: float | None = None

    @property
    def free_bytes(self) -> int | None:
        """How much room there is, with what was written since it was measured."""
        free_bytes = self.room.free_bytes
        if free_bytes is None:
            return None
        return free_bytes - (self._written_bytes - self._counted_bytes)

    @property
    def snapshot_bytes_max(self) -> int | None:
        """How large a snapshot may be that is begun now: part of the reserve is left to what is still taken
        meanwhile."""
        free_bytes = self.free_bytes
        return None if free_bytes is None else free_bytes - self._reserve_bytes() // 2

    @property
    def is_blind(self) -> bool:
        """Whether there was no room a moment ago, and the engine does not say how much there is."""
        return self.room.free_bytes is None and self.level >= Level.TIGHT

    @property
    def held_s(self) -> float | None:
        """For how long new work has been held back; None if it is not."""
        return None if self._held_at is None else asyncio.get_running_loop().time() - self._held_at

    @property
    def entries_bytes_max(self) -> int:
        """How many bytes of entries there may be before a snapshot replaces them, where the state is small."""
        allowed_bytes = self.room.allowed_bytes
        return BYTES_MAX if allowed_bytes is None else min(BYTES_MAX, allowed_bytes // _SAVE_SHARE)

    def refusal(self) -> Overloaded | None:
        """The refusal of new work; None if it is taken."""
        if self.level < Level.TIGHT:
            return None
        why = f"{self.room}{'; ' if self.room.note else ''}{self.room.note}"
        if self.room.free_bytes is None and self._full_said:
            why = self._full_said
        return Overloaded(f"no room for new work: {why}", retry_after_s=_LOOK_S)

    def on_append(self, size_bytes: int) -> None:
        """An entry of that size was appended."""
        self.on_written(size_bytes + ENTRY_OVERHEAD_BYTES)

    def on_written(self, size_bytes: int) -> None:
        """So much was written, or is on its way."""
        self._written_bytes += size_bytes
        allowed_bytes = self.room.allowed_bytes
        if allowed_bytes is None:
            return
        if self._written_bytes - self._looked_bytes >= allowed_bytes // _LOOKS_SHARE:
            self._bell.set()
        if self.level or self._written_bytes - self._judged_bytes >= self._judge_bytes:
            self._judge()

    def on_given_back(self) -> None:
        """Something was trimmed. It counts as used until it is seen to be free: that may take a while, and what is
        written meanwhile does not find it free."""
        asyncio.get_running_loop().call_later(_SETTLE_S, self._bell.set)

    def on_full(self, error: Overloaded) -> None:
        """The engine refused an append for want of room."""
        self._full_at = asyncio.get_running_loop().time()
        self._full_said = str(error)
        self._judge()

    async def watch(self) -> None:
        """Look periodically."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S_MIN)
            # Not by `wait_for`: up to Python 3.11 that forgets a cancellation which comes when the bell rings.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._bell.wait()
            self._bell.clear()

    async def look(self) -> None:
        """Ask the engine, and judge by what it says. Without an answer, what was found last counts."""
        began_bytes = self._written_bytes
        found = await self._journal.room(_WITHIN_S)
        if found.free_bytes is not None or self.room.free_bytes is None:
            self.room = found
            self._counted_bytes, self._looked_bytes = self._looked_bytes, began_bytes
            self._judge_bytes = min(_JUDGE_BYTES_MAX, (found.allowed_bytes or 0) // _JUDGE_SHARE)
        self._judge()
        self.on_looked()

    def forget(self) -> None:
        """The node leads no more: what was found is out of date when it leads again."""
        self.room, self.level, self._held_at = Room(), Level.AMPLE, None
        self._judge()

    def _judge(self) -> None:
        self._judged_bytes = self._written_bytes
        now = asyncio.get_running_loop().time()
        level = Level.TIGHT if self._was_full(now) else Level.AMPLE
        allowed_bytes, free_bytes = self.room.allowed_bytes, self.free_bytes
        if self.room.is_full:
            level = Level.SPENT
        elif allowed_bytes is not None and free_bytes is not None:
            reserve_bytes = self._reserve_bytes()
            level = max(level, level_of(free_bytes, self._needed_bytes(), reserve_bytes, self.level))
            # Here what counts twice does not count: this is the last resort, and releases are not refused lightly.
            if free_bytes + self._looked_bytes - self._counted_bytes < reserve_bytes // _SPENT_SHARE:
                level = Level.SPENT
        if level != self.level:
            self._change(level, now)

    def _was_full(self, now: float) -> bool:
        """Whether the engine was full a moment ago; whatever it says, for some bounds it does not know itself."""
        if self._full_at is None:
            return False
        return now < self._full_at + (_FULL_UNKNOWN_S if self.room.free_bytes is None else _FULL_S)

    def _reserve_bytes(self) -> int:
        return min(_RESERVE_BYTES_MAX, (self.room.allowed_bytes or 0) // _RESERVE_SHARE)

    def _change(self, level: Level, now: float) -> None:
        self.level = level
        if level < Level.TIGHT:
            self._held_at = None
        elif self._held_at is None:
            self._held_at = now
        self.on_level()


def _nothing() -> None:
    """No callback was set."""
