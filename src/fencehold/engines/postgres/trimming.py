"""Giving room back.

1. First the journal is said to begin later; then what is before that is deleted, a thousand entries at a time,
   so that no transaction is long. Whoever reads goes by what was said, not by what is still there.
2. Deleted rows are swept at once, not when the server's own sweeper comes by: so the tables grow no larger than
   what comes in between two trims, whatever the server's settings. That is left out if it cannot be done.
"""

from contextlib import suppress

from fencehold.engines.postgres.aside import Aside
from fencehold.errors import FenceholdError, Unavailable

_ENTRIES_AT_ONCE = 1_000
_CHUNKS_AT_ONCE = 32


async def trim(aside: Aside) -> None:
    """Delete what the snapshot that stands made needless. Raises as the port says."""
    statements = aside.statements
    await aside.ask(statements.cover)
    if await _delete_entries(aside):
        await _sweep(aside, statements.vacuum_entries)
    if await _delete_chunks(aside):
        await _sweep(aside, statements.vacuum_chunks)


async def _delete_entries(aside: Aside) -> bool:
    rows = await aside.ask(aside.statements.first)
    if not rows:
        raise Unavailable("the row of the journal is gone: its tables were emptied; restore them from a copy")
    trimmed, first = rows[0]
    if first is None or first > trimmed:
        return False
    while first <= trimmed:
        last = min(first + _ENTRIES_AT_ONCE - 1, trimmed)
        await aside.ask(aside.statements.delete_entries, first, last)
        first = last + 1
    return True


async def _delete_chunks(aside: Aside) -> bool:
    deleted = False
    while await aside.ask(aside.statements.delete_chunks, _CHUNKS_AT_ONCE):
        deleted = True
    return deleted


async def _sweep(aside: Aside, statement: str) -> None:
    with suppress(FenceholdError):
        await aside.run(statement)
