"""Exporting: a prefix of the journal that was replayed, taken beside whoever leads."""

from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import pytest

from fencehold.backup import export, load, survey
from fencehold.core import commands as c
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import AlreadyOwned, Damaged, Unavailable, UsageError
from fencehold.journal.codec import encode
from fencehold.journal.port import Record, Snapshot
from fencehold.types import Epoch, Position
from tests.loops import run
from tests.unit.backup.samples import ENTRIES, NOW_US, backup_of, machine_of, store_of


@pytest.mark.parametrize("snapshot_at", range(len(ENTRIES) + 1))
@pytest.mark.parametrize("trimmed", [False, True])
def test_a_backup_leads_to_the_state_of_the_journal(snapshot_at: int, trimmed: bool) -> None:
    """Wherever its snapshot stands, and whether or not what came before was trimmed."""
    loaded = load(BytesIO(backup_of(store_of(snapshot_at=snapshot_at, trimmed=trimmed))), "backup")
    assert loaded.replay.machine.state_hash() == machine_of(ENTRIES).state_hash()
    assert loaded.head.snapshot_position == loaded.contents.snapshot_position == snapshot_at


def test_a_backup_says_what_is_in_it() -> None:
    """In its head, and by replaying it: the same."""
    head, contents = load(BytesIO(backup_of(store_of(snapshot_at=4))), "backup")
    assert (head.engine, head.made_by, head.made_at_us) == ("memory", "1.2.3", NOW_US)
    found = contents.contents("memory")
    assert (found.epoch, found.snapshot_position, found.position, found.entries) == (3, 4, 7, 3)
    assert (found.logical_ms, found.fence) == (head.logical_ms, head.fence) == (1_600, 6)
    assert (found.sessions, found.holds, found.waiters, found.ttl_ms_longest) == (2, 4, 1, 60_000)


def test_a_survey_finds_the_same_and_writes_nothing() -> None:
    """What is in a journal can be asked without making a backup; an empty one has nothing in it."""
    contents, notes = run(survey(MemoryJournal(store_of(snapshot_at=4))))
    assert contents == load(BytesIO(backup_of(store_of(snapshot_at=4))), "backup").contents
    assert notes == ()
    contents, _ = run(survey(MemoryJournal(MemoryStore())))
    assert contents[1:] == (0,) * 10


async def test_an_empty_journal_makes_no_backup() -> None:
    """More likely than not, it is the wrong one."""
    sink = BytesIO()
    with pytest.raises(UsageError, match="empty"):
        await export(MemoryJournal(MemoryStore()), sink, now_us=NOW_US, made_by="")
    assert sink.getvalue() == b""


class Busy(MemoryJournal):
    """A journal whose leader appends, and now and then saves and trims, whenever one entry is read."""

    def __init__(self, store: MemoryStore, *, trims: int) -> None:
        super().__init__(store)
        self.trims = trims
        self.appended = 0

    async def read(self, after: Position) -> AsyncIterator[Record]:
        async for record in super().read(after):
            yield record
            self._go_on()

    def _go_on(self) -> None:
        store = self._store
        store.records.append(Record(Position(store.end + 1), store.epoch, encode(c.Entry(10))))
        self.appended += 1
        if self.trims:
            self.trims -= 1
            machine = machine_of([*ENTRIES, *[c.Entry(10)] * self.appended])
            store.snapshot = Snapshot(store.end, b"".join(machine.snapshot()))
            store.records.clear()
            store.trimmed = store.snapshot.position

    async def lead(self, known: Epoch | None = None) -> Epoch:
        raise AssertionError("a backup takes no epoch")


def test_a_leader_that_goes_on_is_not_disturbed() -> None:
    """What is appended while it is read belongs to a later backup; nobody leads meanwhile."""
    store, sink = store_of(), BytesIO()
    run(export(Busy(store, trims=0), sink, now_us=NOW_US, made_by=""))
    loaded = load(BytesIO(sink.getvalue()), "backup")
    assert loaded.replay.machine.state_hash() == machine_of(ENTRIES).state_hash()
    assert store.end == 2 * len(ENTRIES)
    assert store.epoch == 3


@pytest.mark.parametrize("trims", [1, 2, 4])
def test_reading_begins_anew_when_the_leader_trims(trims: int) -> None:
    """A prefix with a hole in it is never written: the newer snapshot is taken instead."""
    store, sink = store_of(), BytesIO()
    journal = Busy(store, trims=trims)
    for entry in range(20):
        store.records.append(Record(Position(store.end + 1), Epoch(3), encode(c.Entry(10))))
        journal.appended = entry + 1
    run(export(journal, sink, now_us=NOW_US, made_by=""))
    head, replay = load(BytesIO(sink.getvalue()), "backup")
    assert head.snapshot_position > 0
    assert replay.machine.state_hash() == machine_of([*ENTRIES, *[c.Entry(10)] * (head.position - 7)]).state_hash()


class Hasty(Busy):
    """Trims whatever is being read, every time."""

    async def read(self, after: Position) -> AsyncIterator[Record]:
        self.trims = 1
        self._go_on()
        self._store.records.append(Record(Position(self._store.end + 1), Epoch(3), encode(c.Entry(10))))
        self.appended += 1
        async for record in super().read(after):
            yield record


async def test_it_gives_up_when_it_cannot_keep_up() -> None:
    """Reading anew has a bound, and the error says what to do."""
    sink = BytesIO()
    with pytest.raises(Unavailable, match="trimmed 5 times"):
        await export(Hasty(store_of(), trims=0), sink, now_us=NOW_US, made_by="")
    assert sink.getvalue() == b""


@pytest.mark.parametrize("wrong", [b"\x01no entry", b"\x07of the future"])
async def test_a_journal_that_cannot_be_replayed_makes_no_backup(wrong: bytes) -> None:
    """That is found when it is made, and the message names the position."""
    store, sink = store_of(), BytesIO()
    store.records[4] = store.records[4]._replace(entry=wrong)
    with pytest.raises(Damaged, match="position 5"):
        await export(MemoryJournal(store), sink, now_us=NOW_US, made_by="")
    assert sink.getvalue() == b""


def test_a_snapshot_of_another_position_makes_no_backup() -> None:
    """The engine's word and the snapshot's own must be the same."""
    store = store_of(snapshot_at=4)
    assert store.snapshot is not None
    store.snapshot = Snapshot(Position(3), store.snapshot.data)
    with pytest.raises(Damaged, match="kept at position 3 is of position 4"):
        backup_of(store)
    store.snapshot = Snapshot(Position(4), b"no snapshot")
    with pytest.raises(Damaged, match="the snapshot at position 4"):
        backup_of(store)


async def test_a_directory_that_a_server_owns_is_refused(tmp_path: Path) -> None:
    """Nothing is read beside an owner that may be in the middle of a write."""
    owner = FileJournal(tmp_path / "data")
    await owner.open()
    with pytest.raises(AlreadyOwned):
        await export(FileJournal(tmp_path / "data"), BytesIO(), now_us=NOW_US, made_by="")
    await owner.close()


async def test_many_entries_are_told_one_by_one() -> None:
    """Whoever shows how far it is hears of each entry, and of how many there are."""
    told: list[tuple[int, int]] = []
    store = store_of(snapshot_at=2)
    await export(
        MemoryJournal(store),
        BytesIO(),
        now_us=NOW_US,
        made_by="",
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(done, 5) for done in range(1, 6)]
