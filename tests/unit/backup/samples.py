"""Journals with something in them, and backups of them."""

from collections.abc import Iterable
from io import BytesIO
from typing import TypeVar

from fencehold.backup import export
from fencehold.backup.frames import Head, Writer, framed_entry
from fencehold.core import commands as c
from fencehold.core.machine import Machine
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.journal.codec import encode
from fencehold.journal.port import Journal, Record, Snapshot
from fencehold.types import Epoch, Position
from tests.loops import run

T = TypeVar("T")

NOW_US = 1_800_000_000_000_000
"""Some time in 2027."""

ENTRIES = (
    c.Entry(0, (c.OpenSession(30_000, 1_000, "secret", "m"), c.OpenSession(60_000))),
    c.Entry(100, (c.Acquire(1, ("a",), 1), c.Acquire(2, ("a",), 1, owner="t"))),
    c.Entry(200, (c.Acquire(2, ("b", "c"), 2, ttl_ms=5_000), c.Acquire(1, ("s",), 2, mode=c.Mode.SHARED))),
    c.Entry(300, (c.Acquire(1, ("p",), 3, mode=c.Mode.PERMIT, limit=3, lock_delay_ms=900), c.Break("p"))),
    c.Entry(400, (c.Release(1, ("s",), 3, 4), c.Announce("node 1", "10.0.0.1:7420"))),
    c.Entry(500),
    c.Entry(100, (c.Renew((1, 2)), c.Acquire(2, ("d",), 3))),
)
"""Sessions, all kinds of holds, a waiter, a lock-delay, answers to be remembered, a leader."""


def machine_of(entries: Iterable[c.Entry]) -> Machine:
    machine = Machine()
    for entry in entries:
        machine.apply(machine.position + 1, entry)
    return machine


def store_of(entries: Iterable[c.Entry] = ENTRIES, *, snapshot_at: int = 0, trimmed: bool = False) -> MemoryStore:
    """A store that a leader of epoch 3 has written, with a snapshot at a position."""
    store, entries = MemoryStore(), list(entries)
    store.epoch = Epoch(3)
    store.records = [Record(Position(at), Epoch(3), encode(entry)) for at, entry in enumerate(entries, start=1)]
    if snapshot_at:
        data = b"".join(machine_of(entries[:snapshot_at]).snapshot())
        store.snapshot = Snapshot(Position(snapshot_at), data)
    if trimmed:
        store.trimmed = Position(snapshot_at)
        del store.records[:snapshot_at]
    return store


def backup_of(store: MemoryStore | None = None, *, now_us: int = NOW_US) -> bytes:
    sink = BytesIO()
    run(export(MemoryJournal(store or store_of()), sink, now_us=now_us, made_by="1.2.3"))
    return sink.getvalue()


async def machine_in(journal: Journal) -> Machine:
    """The machine that a node which opens the journal comes to."""
    opened = await journal.open()
    machine = Machine() if opened.snapshot is None else Machine.restore(opened.snapshot.data)
    assert opened.snapshot is None or machine.position == opened.snapshot.position
    assert [record async for record in journal.read(Position(machine.position))] == []
    await journal.close()
    return machine


def frames_of(head: Head, records: Iterable[Record], snapshot: bytes = b"") -> bytes:
    """A backup that is whole, whatever its head says of it."""
    sink = BytesIO()
    writer = Writer(sink)
    writer.begin(head)
    writer.snapshot(snapshot)
    for record in records:
        writer.frame(framed_entry(record))
    writer.end()
    return sink.getvalue()
