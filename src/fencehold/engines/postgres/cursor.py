"""Reading entries in order.

1. A page is the entries that follow, as many as fit: never a gap, never one twice.
2. What is missing at the front was trimmed, and is said to be; anything else that is missing is damage.
3. An entry that was handed out is there under the same epoch until it is trimmed. If it is not, a server took over
   that never had it: going on would make two journals of one.
"""

from fencehold.engines.postgres.aside import Aside
from fencehold.errors import Damaged, Trimmed
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position

_ROWS_MAX = 1_000
_BYTES_MAX = 4 << 20
"""A page holds no further entry once it holds so much."""


class Cursor:
    """A place in the journal."""

    def __init__(self, aside: Aside, after: Position) -> None:
        self.position = after
        self._aside = aside
        self._epoch: Epoch | None = None
        """Of the entry at `position`, if it was handed out here."""

    async def end(self) -> Position:
        """Where the journal ends now.

        Raises:
            Trimmed: what follows is gone.
            Damaged: what was handed out is not there any more.
            Unavailable: nobody answers.
        """
        state = await self._aside.state(self.position)
        if state.trimmed > self.position:
            raise Trimmed(f"entries up to {state.trimmed} were trimmed, {self.position + 1} with them")
        if self._epoch is not None and state.trimmed < self.position and state.epoch_at != self._epoch:
            raise Damaged(
                f"the entry at {self.position} was read before, and is not there now: the server that answers is "
                "one that never had it; have the right one take over"
            )
        return state.end

    async def page(self) -> list[Record]:
        """The entries that follow, at least one. Call it only if the end is after `position`. Raises as `end`."""
        rows = await self._aside.ask(self._aside.statements.page, self.position, _ROWS_MAX, _BYTES_MAX)
        records = [Record(*row) for row in rows]
        following = range(self.position + 1, self.position + 1 + len(rows))
        if not records or [record.position for record in records] != list(following):
            await self.end()
            raise Damaged(f"entries after {self.position} are missing; restore the tables from a copy")
        self.position, self._epoch, _ = records[-1]
        return records
