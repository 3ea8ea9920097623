"""Keeping a snapshot, beginning a journal with one, and reading it back.

1. A snapshot is written chunk by chunk, each a transaction, under an id of its own that nobody sees. One
   statement makes it the one that stands: whole, or not at all.
2. Ids grow, and the one that stands is never followed by a smaller one. So chunks of a smaller id can be deleted
   at any time, whoever writes them: they will never stand.
3. A draft is deleted when it is given up, but never once its publication was sent: that may still arrive.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import NamedTuple

from fencehold.engines.postgres.aside import Aside
from fencehold.engines.postgres.failures import Unanswered
from fencehold.errors import Damaged, OutcomeUnknown, Unavailable, UsageError
from fencehold.journal.port import Opened, Snapshot
from fencehold.types import BEGINNING, Position

_CHUNK_BYTES = 256 << 10
"""Chunks of a snapshot are gathered up to this size: a row each."""
_CHUNKS_AT_ONCE = 16
_TRIES_MAX = 5


class Kept(NamedTuple):
    """A snapshot in the tables; id 0 if there is none."""

    id: int
    position: Position
    chunks: int
    bytes: int


async def open_journal(aside: Aside) -> Opened:
    """What the journal holds: the snapshot that stands, and where it ends.

    Raises:
        Damaged: parts are missing.
        Unavailable: nobody answers, or others replace snapshots faster than they can be read.
    """
    for _ in range(_TRIES_MAX):
        kept = await _standing(aside)
        snapshot = await _read(aside, kept)
        state = await aside.state()
        covered = BEGINNING if kept.id == 0 else kept.position
        if (snapshot is not None or kept.id == 0) and state.trimmed <= covered:
            return Opened(snapshot, state.epoch, state.end)
        # Another node may have replaced it while it was read, and have trimmed up to the new one.
        if kept == await _standing(aside):
            raise Damaged(
                f"the snapshot at {kept.position} is not whole, or entries after it are missing; "
                "restore the tables from a copy"
            )
    raise Unavailable("others replace the snapshot faster than it can be read; try again")


async def save(aside: Aside, position: Position, chunks: Iterable[bytes]) -> None:
    """Keep a snapshot in place of any older one. Raises as the port says."""
    state, older = await aside.state(), await _standing(aside)
    if position > state.end:
        raise UsageError(f"a snapshot at {position} would be after the end of the journal, {state.end}")
    if position < older.position:
        raise UsageError(f"a snapshot at {position} would be older than the one at {older.position}")
    draft = await _draft(aside, position, chunks)
    stands = await _put(aside, draft, aside.ask(aside.statements.publish, *draft))
    if stands.id != draft.id:
        raise Unavailable(f"another snapshot was saved meanwhile, and stands: the one at {stands.position}")


async def seed(aside: Aside, position: Position, chunks: Iterable[bytes]) -> None:
    """Begin an empty journal with a snapshot. Raises as the port says."""
    if position <= BEGINNING:
        raise UsageError(f"a journal is seeded at a position above 0, not {position}")
    state, older = await aside.state(), await _standing(aside)
    if state.end or older.id:
        raise UsageError(f"only an empty journal can be seeded, and this one ends at {state.end}")
    draft = await _draft(aside, position, chunks)
    stands = await _put(aside, draft, aside.run(aside.statements.seed.format_map(draft._asdict())))
    if stands.id != draft.id:
        raise UsageError("only an empty journal can be seeded, and this one is not empty any more")


async def _standing(aside: Aside) -> Kept:
    rows = await aside.ask(aside.statements.stands)
    if not rows:
        raise Damaged("the row of the snapshot is gone: its table was emptied; restore the tables from a copy")
    return Kept(*rows[0])


async def _read(aside: Aside, kept: Kept) -> Snapshot | None:
    """The snapshot; None if it is not whole, or there is none."""
    data, number = bytearray(), 0
    while number < kept.chunks:
        rows = await aside.ask(aside.statements.read_chunks, kept.id, number, _CHUNKS_AT_ONCE)
        if not rows:
            break
        data += b"".join(row[0] for row in rows)
        number += len(rows)
    is_whole = kept.id > 0 and (number, len(data)) == (kept.chunks, kept.bytes)
    return Snapshot(kept.position, bytes(data)) if is_whole else None


async def _draft(aside: Aside, position: Position, chunks: Iterable[bytes]) -> Kept:
    """Write a snapshot that does not stand yet."""
    ((made,),) = await aside.ask(aside.statements.begin_draft)
    number = size = 0
    gathered = bytearray()
    try:
        for chunk in chunks:
            gathered += chunk
            while len(gathered) >= _CHUNK_BYTES:
                await aside.ask(aside.statements.add_chunk, made, number, bytes(gathered[:_CHUNK_BYTES]))
                del gathered[:_CHUNK_BYTES]
                number, size = number + 1, size + _CHUNK_BYTES
            # The making of the snapshot shares the loop with the node's work: let that run after every step.
            await asyncio.sleep(0)
        await aside.ask(aside.statements.add_chunk, made, number, bytes(gathered))
    except BaseException:
        aside.leave(aside.statements.discard, made)
        raise
    return Kept(made, position, number + 1, size + len(gathered))


async def _put(aside: Aside, draft: Kept, asking: Awaitable[object]) -> Kept:
    """Have a draft take its place; returns what stands then.

    Raises:
        Unavailable: what stood before stands.
        OutcomeUnknown: that, or the draft.
    """
    try:
        await asking
    except Unanswered as error:
        raise OutcomeUnknown(f"whether the snapshot at {draft.position} stands is not known: {error}") from error
    except Unavailable:
        aside.leave(aside.statements.discard, draft.id)
        raise
    try:
        return await _standing(aside)
    except Unavailable as error:
        raise OutcomeUnknown(f"whether the snapshot at {draft.position} stands is not known: {error}") from error
