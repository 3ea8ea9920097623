"""A journal into a file, without disturbing the leader; or a snapshot that a leader sends, if only the leader has
access.

1. It only reads: no epoch is taken, so a running service is not disturbed. An engine with one owner refuses a
   second one; its server has to stop first.
2. What is written is a prefix of the journal: a snapshot and every entry after it, up to the end of the reading.
   If the leader trims what is being read, reading restarts from the newer snapshot.
3. It is replayed before it is written: a journal that cannot be replayed is not backed up.
4. Memory holds the snapshot and the machine only: entries, however many, wait in a temporary file.
"""

from collections.abc import Callable
from tempfile import SpooledTemporaryFile
from typing import IO, BinaryIO, cast

from fencehold.backup.frames import Head, Writer, framed_entry, frames_in
from fencehold.backup.replay import Contents, Replay
from fencehold.errors import Damaged, Trimmed, Unavailable, UsageError
from fencehold.journal.port import Journal, Opened, Snapshot
from fencehold.types import Epoch

Progress = Callable[[int, int], None]
"""Called with how many entries are done, and the total."""

READINGS_MAX = 5
"""How often reading restarts when the leader trims what is being read."""
_SPOOL_BYTES = 8 << 20


def no_progress(done: int, total: int) -> None:
    """No progress is reported."""


async def export(
    journal: Journal, sink: BinaryIO, *, now_us: int, made_by: str, on_progress: Progress = no_progress
) -> tuple[Contents, tuple[str, ...]]:
    """Write all that the journal holds, which is not open yet; returns what that was, and what opening it
    repaired.

    After an error, the file is not a backup.

    Raises:
        UsageError: the journal is empty.
        Damaged: it cannot be replayed.
        AlreadyOwned: another process owns it.
        Unavailable: the engine cannot be reached, or trims faster than it can be read.
        OSError: the file cannot take more.
    """
    with cast(BinaryIO, SpooledTemporaryFile(max_size=_SPOOL_BYTES)) as spool:
        opened, replay = await _read(journal, spool, on_progress)
        writer = Writer(sink)
        writer.begin(_head_of(journal.declared.engine, replay, now_us, made_by))
        if opened.snapshot is not None:
            writer.snapshot(opened.snapshot.data)
        spool.seek(0)
        for frame in frames_in(spool):
            writer.frame(frame)
        writer.end()
    return replay.contents(journal.declared.engine), opened.notes


def write_snapshot(
    snapshot: Snapshot, sink: BinaryIO, *, engine: str, epoch: Epoch, now_us: int, made_by: str
) -> Contents:
    """Write a snapshot that a leader sent as a backup; returns what is in it.

    `now_us` was read before the snapshot was requested: every grant after the snapshot came after that time, too.

    Raises:
        Damaged: no machine comes from it, or one of another position.
        OSError: the file cannot take more.
    """
    replay = Replay(snapshot, epoch)
    writer = Writer(sink)
    writer.begin(_head_of(engine, replay, now_us, made_by))
    writer.snapshot(snapshot.data)
    writer.end()
    return replay.contents(engine)


async def survey(journal: Journal, on_progress: Progress = no_progress) -> tuple[Contents, tuple[str, ...]]:
    """What the journal holds, and what opening it repaired. Raises as `export`, but an empty one is no error."""
    opened, replay = await _read(journal, None, on_progress)
    return replay.contents(journal.declared.engine), opened.notes


async def _read(journal: Journal, spool: IO[bytes] | None, on_progress: Progress) -> tuple[Opened, Replay]:
    for _ in range(READINGS_MAX):
        try:
            return await _read_once(journal, spool, on_progress)
        except Trimmed:
            if spool is not None:
                spool.seek(0)
                spool.truncate()
    raise Unavailable(
        f"the journal was trimmed {READINGS_MAX} times while it was read; try again when it is quieter"
    )


async def _read_once(journal: Journal, spool: IO[bytes] | None, on_progress: Progress) -> tuple[Opened, Replay]:
    opened = await journal.open()
    try:
        if spool is not None and not opened.end:
            raise UsageError("the journal is empty: there is nothing to export; is it the right one?")
        replay = Replay(opened.snapshot, opened.epoch)
        first = replay.snapshot_position
        async for record in journal.read(after=first):
            replay.follow(record)
            if spool is not None:
                spool.write(framed_entry(record))
            on_progress(record.position - first, opened.end - first)
    finally:
        await journal.close()
    if replay.machine.position < opened.end:
        raise Damaged(f"the journal ends at position {opened.end}, and was read up to {replay.machine.position}")
    return opened, replay


def _head_of(engine: str, replay: Replay, now_us: int, made_by: str) -> Head:
    machine = replay.machine
    return Head(
        engine=engine,
        epoch=replay.epoch,
        snapshot_position=replay.snapshot_position,
        position=machine.position,
        logical_ms=machine.now_at,
        fence=machine.fence,
        made_at_us=now_us,
        made_by=made_by,
    )
