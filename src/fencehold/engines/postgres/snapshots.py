"""Keeping a snapshot, beginning a journal with one, reading it back, and trimming what it made unnecessary.

1. A snapshot is written chunk by chunk, each a transaction, under an id of its own, invisible to others. One
   statement makes it the current one: whole, or not at all.
2. Ids grow, and the current one is never followed by a smaller one. So chunks of a smaller id can be deleted at
   any time, also while they are being written: they will never be current.
3. A draft is deleted when it is aborted, but never once its publication was sent: that may still arrive.
4. To trim, first the journal is said to begin later; then what is before that is deleted, a thousand entries at a
   time, so that no transaction is long. Readers go by where it is said to begin, not by what is still there.
5. Deleted rows are vacuumed at once, not when autovacuum comes by: so the tables grow no larger than what comes in
   between two trims, whatever the server's settings. That is left out if it cannot be done.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from typing import NamedTuple

from fencehold.engines.postgres.queries import Queries, Unanswered
from fencehold.errors import Damaged, FenceholdError, OutcomeUnknown, Unavailable, UsageError
from fencehold.journal.port import Opened, Snapshot
from fencehold.types import BEGINNING, Position

_CHUNK_BYTES = 256 << 10
"""Chunks of a snapshot are gathered up to this size: a row each."""
_CHUNKS_AT_ONCE = 16
_TRIES_MAX = 5
_ENTRIES_AT_ONCE = 1_000
_DELETED_CHUNKS_AT_ONCE = 32


class KeptSnapshot(NamedTuple):
    """A snapshot in the tables; id 0 if there is none."""

    id: int
    position: Position
    chunks: int
    bytes: int


async def open_journal(queries: Queries) -> Opened:
    """What the journal holds: the current snapshot, and where it ends.

    Raises:
        Damaged: parts are missing.
        Unavailable: no server answers, or other nodes replace snapshots faster than they can be read.
    """
    for _ in range(_TRIES_MAX):
        kept = await _standing(queries)
        snapshot = await _read(queries, kept)
        state = await queries.state()
        covered = BEGINNING if kept.id == 0 else kept.position
        if (snapshot is not None or kept.id == 0) and state.trimmed <= covered:
            return Opened(snapshot, state.epoch, state.end)
        # Another node may have replaced it while it was read, and have trimmed up to the new one.
        if kept == await _standing(queries):
            raise Damaged(
                f"the snapshot at {kept.position} is not whole, or entries after it are missing; "
                "restore the tables from a copy"
            )
    raise Unavailable("others replace the snapshot faster than it can be read; try again")


async def save(queries: Queries, position: Position, chunks: Iterable[bytes]) -> None:
    """Keep a snapshot in place of any older one. Raises as the port says."""
    state, older = await queries.state(), await _standing(queries)
    if position > state.end:
        raise UsageError(f"a snapshot at {position} would be after the end of the journal, {state.end}")
    if position < older.position:
        raise UsageError(f"a snapshot at {position} would be older than the one at {older.position}")
    draft = await _draft(queries, position, chunks)
    stands = await _put(queries, draft, queries.ask(queries.statements.publish, *draft))
    if stands.id != draft.id:
        raise Unavailable(f"another snapshot was saved meanwhile: the one at {stands.position}")


async def seed(queries: Queries, position: Position, chunks: Iterable[bytes]) -> None:
    """Begin an empty journal with a snapshot. Raises as the port says."""
    if position <= BEGINNING:
        raise UsageError(f"a journal is seeded at a position above 0, not {position}")
    state, older = await queries.state(), await _standing(queries)
    if state.end or older.id:
        raise UsageError(f"only an empty journal can be seeded, and this one ends at {state.end}")
    draft = await _draft(queries, position, chunks)
    stands = await _put(queries, draft, queries.run(queries.statements.seed.format_map(draft._asdict())))
    if stands.id != draft.id:
        raise UsageError("only an empty journal can be seeded, and this one is not empty any more")


async def _standing(queries: Queries) -> KeptSnapshot:
    rows = await queries.ask(queries.statements.stands)
    if not rows:
        raise Damaged("the row of the snapshot is gone: its table was emptied; restore the tables from a copy")
    return KeptSnapshot(*rows[0])


async def _read(queries: Queries, kept: KeptSnapshot) -> Snapshot | None:
    """The snapshot; None if it is not whole, or there is none."""
    data, number = bytearray(), 0
    while number < kept.chunks:
        rows = await queries.ask(queries.statements.read_chunks, kept.id, number, _CHUNKS_AT_ONCE)
        if not rows:
            break
        data += b"".join(row[0] for row in rows)
        number += len(rows)
    is_whole = kept.id > 0 and (number, len(data)) == (kept.chunks, kept.bytes)
    return Snapshot(kept.position, bytes(data)) if is_whole else None


async def _draft(queries: Queries, position: Position, chunks: Iterable[bytes]) -> KeptSnapshot:
    """Write a snapshot that is not the current one yet."""
    ((made,),) = await queries.ask(queries.statements.begin_draft)
    number = size = 0
    gathered = bytearray()
    try:
        for chunk in chunks:
            gathered += chunk
            while len(gathered) >= _CHUNK_BYTES:
                await queries.ask(queries.statements.add_chunk, made, number, bytes(gathered[:_CHUNK_BYTES]))
                del gathered[:_CHUNK_BYTES]
                number, size = number + 1, size + _CHUNK_BYTES
            # The making of the snapshot shares the loop with the node's work: let that run after every step.
            await asyncio.sleep(0)
        await queries.ask(queries.statements.add_chunk, made, number, bytes(gathered))
    except BaseException:
        queries.begin(queries.statements.discard, made)
        raise
    return KeptSnapshot(made, position, number + 1, size + len(gathered))


async def _put(queries: Queries, draft: KeptSnapshot, publication: Awaitable[object]) -> KeptSnapshot:
    """Have a draft take its place; returns the current snapshot after that.

    Raises:
        Unavailable: the one before is still the current one.
        OutcomeUnknown: that, or the draft.
    """
    try:
        await publication
    except Unanswered as error:
        raise OutcomeUnknown(f"whether the snapshot at {draft.position} was saved is unknown: {error}") from error
    except Unavailable:
        queries.begin(queries.statements.discard, draft.id)
        raise
    try:
        return await _standing(queries)
    except Unavailable as error:
        raise OutcomeUnknown(f"whether the snapshot at {draft.position} was saved is unknown: {error}") from error


async def trim(queries: Queries) -> None:
    """Delete what the current snapshot made unnecessary. Raises as the port says."""
    statements = queries.statements
    await queries.ask(statements.cover)
    if await _delete_entries(queries):
        await _sweep(queries, statements.vacuum_entries)
    if await _delete_chunks(queries):
        await _sweep(queries, statements.vacuum_chunks)


async def _delete_entries(queries: Queries) -> bool:
    rows = await queries.ask(queries.statements.first)
    if not rows:
        raise Unavailable("the row of the journal is gone: its tables were emptied; restore them from a copy")
    trimmed, first = rows[0]
    if first is None or first > trimmed:
        return False
    while first <= trimmed:
        last = min(first + _ENTRIES_AT_ONCE - 1, trimmed)
        await queries.ask(queries.statements.delete_entries, first, last)
        first = last + 1
    return True


async def _delete_chunks(queries: Queries) -> bool:
    deleted = False
    while await queries.ask(queries.statements.delete_chunks, _DELETED_CHUNKS_AT_ONCE):
        deleted = True
    return deleted


async def _sweep(queries: Queries, statement: str) -> None:
    with suppress(FenceholdError):
        await queries.run(statement)
