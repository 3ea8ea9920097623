"""The saver: when a snapshot is due, and its taking beside the node's work.

A snapshot is worth its cost when replaying what came since would cost more: so it is due after so many commands
(an entry without any counts as one, and what was replayed at the start counts, too), and the more is held, the
more. It is begun between two entries, when all that was applied is durable, so it is of durable entries only;
drawing it shares the event loop step by step.
"""

import asyncio
import contextlib

from fencehold.core.machine import Machine
from fencehold.core.snapshot import Snapshot
from fencehold.errors import FenceholdError
from fencehold.journal.port import Journal
from fencehold.types import Position


class Saver:
    """Takes one snapshot at a time, then trims."""

    def __init__(self, journal: Journal, commands_max: int = 100_000) -> None:
        self._journal = journal
        self._commands_max = commands_max
        self._commands = 0
        self._task: asyncio.Task[None] | None = None
        self.saved_at = Position(0)
        self.failure: FenceholdError | None = None
        """Why the last one failed, if it did. The next is tried when it is due."""

    def begin(self, entries: int) -> None:
        """Called before the first entry of a leader: so many had to be replayed."""
        self._commands = entries

    def consider(self, machine: Machine, commands: int) -> None:
        """Called when all that was applied is durable: begin a snapshot if one is due."""
        self._commands += commands or 1
        is_due = self._commands >= self._commands_max + len(machine.state.held)
        # While somebody draws a backup it waits: a state has one snapshot under way at a time.
        if is_due and self._task is None and machine.state.saving is None:
            self._commands = 0
            position = Position(machine.position)
            self._task = asyncio.create_task(self._save(position, machine.snapshot()))

    async def _save(self, position: Position, snapshot: Snapshot) -> None:
        try:
            await self._journal.save(position, snapshot)
            await self._journal.trim()
            self.saved_at, self.failure = position, None
        except FenceholdError as error:
            # The one before it stands, and nothing was trimmed: the journal only grows a little longer.
            self.failure = error
        finally:
            snapshot.close()
            self._task = None

    async def end(self) -> None:
        """Give up the one under way, if any."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._task = None
        self._commands = 0
