"""Importing: all of a backup or nothing, and fences that never go back."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import pytest
from msgspec.structs import replace

from fencehold.backup import Loaded, export, fence_after, load, restore
from fencehold.backup.frames import Head
from fencehold.core import commands as c
from fencehold.core.outcomes import Granted
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Damaged, OutcomeUnknown, UsageError
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position
from tests.loops import run
from tests.unit.backup.samples import ENTRIES, NOW_US, backup_of, frames_of, machine_in, machine_of, store_of

MARGIN = 1 << 20
HOUR_US = 3_600_000_000
HEAD = Head("file", 1, 0, 10, 0, 50, NOW_US)


def loaded(data: bytes | None = None) -> Loaded:
    return load(BytesIO(data or backup_of(store_of(snapshot_at=3))), "backup")


def after(fence: int) -> list[c.Entry]:
    """What a journal that begins with the backup has been told."""
    return [*ENTRIES, c.Entry(0, (c.RaiseFence(fence), c.Announce("", "")))]


def test_a_restored_journal_has_everything_but_the_fence() -> None:
    """Sessions, holds, waiters, delays, answers and logical time are those of the backup, to the byte."""
    store = MemoryStore()
    restored = run(restore(MemoryJournal(store), loaded(), 1_000_000))
    assert restored == (8, 1_000_000)
    machine = run(machine_in(MemoryJournal(store)))
    assert machine.state_hash() == machine_of(after(1_000_000)).state_hash()
    assert (machine.now_at, len(machine.state.sessions)) == (1_600, 2)
    assert machine.state.leader_address == ""


@pytest.mark.guarantee("G1")
def test_the_first_grant_after_a_restore_is_above_the_raised_fence() -> None:
    """A node that goes on from there grants no fence of before."""
    store = MemoryStore()
    run(restore(MemoryJournal(store), loaded(), 7_000_000))
    machine = run(machine_in(MemoryJournal(store)))
    (granted,) = machine.apply(9, c.Entry(0, (c.Acquire(1, ("new",)),))).outcomes
    assert isinstance(granted, Granted)
    assert granted.fence == 7_000_001


def test_it_moves_from_memory_to_files_and_back(tmp_path: Path) -> None:
    """Each move keeps all but the fence; positions go on by one each time."""
    store, last = MemoryStore(), MemoryStore()
    run(restore(MemoryJournal(store), loaded(), 100))
    run(restore(FileJournal(tmp_path / "data"), loaded(backup_of(store)), 200))
    sink = BytesIO()
    run(export(FileJournal(tmp_path / "data"), sink, now_us=NOW_US, made_by=""))
    head, replay = back = loaded(sink.getvalue())
    assert (head.engine, head.epoch, head.snapshot_position, head.fence) == ("file", 0, 9, 200)
    assert replay.contents("file").entries == 0
    run(restore(MemoryJournal(last), back, 300))
    forget = c.Announce("", "")
    told = [*ENTRIES, *(c.Entry(0, (c.RaiseFence(fence), forget)) for fence in (100, 200, 300))]
    assert run(machine_in(MemoryJournal(last))).state_hash() == machine_of(told).state_hash()


def test_a_journal_that_is_not_empty_is_left_as_it_was(tmp_path: Path) -> None:
    """Entries or a snapshot: it is refused, and the message says what to do."""
    for store in (store_of(ENTRIES[:1]), store_of(ENTRIES[:2], snapshot_at=2, trimmed=True)):
        before = (list(store.records), store.snapshot, store.end)
        with pytest.raises(UsageError, match=r"not empty: it ends at position \d\. .*name another place"):
            run(restore(MemoryJournal(store), loaded(), 100))
        assert (list(store.records), store.snapshot, store.end) == before


class Lossy(MemoryJournal):
    """Seeds, and loses the reply."""

    async def seed(self, position: Position, chunks: Iterable[bytes]) -> None:
        await super().seed(position, chunks)
        raise OutcomeUnknown("the reply was lost")


def test_an_unknown_outcome_stays_one() -> None:
    """It is never told as a no; what is there is whole, and a second import is refused."""
    store = MemoryStore()
    with pytest.raises(OutcomeUnknown):
        run(restore(Lossy(store), loaded(), 100))
    assert run(machine_in(MemoryJournal(store))).fence == 100
    with pytest.raises(UsageError, match="not empty"):
        run(restore(MemoryJournal(store), loaded(), 200))


def test_a_backup_that_is_whole_and_wrong_is_refused() -> None:
    """What it holds must lead to what its head says: position, fence and logical time."""
    store = store_of()
    head, records = loaded(backup_of(store)).head, store.records
    for field in ("position", "fence", "logical_ms"):
        wrong = replace(head, **{field: getattr(head, field) + 1})
        with pytest.raises(Damaged, match="its head says"):
            loaded(frames_of(wrong, records))
    with pytest.raises(Damaged, match="position 3 stands where 2 belongs"):
        loaded(frames_of(head, records[:1] + records[2:]))
    with pytest.raises(Damaged, match="its head says"):
        loaded(frames_of(head, records[:-1]))
    with pytest.raises(Damaged, match="its snapshot, of position 3, is missing"):
        loaded(frames_of(replace(head, snapshot_position=3), records[3:]))
    with pytest.raises(Damaged, match="the snapshot at position 3"):
        loaded(frames_of(replace(head, snapshot_position=3), records[3:], b"no snapshot"))
    with pytest.raises(Damaged, match="backup: position 2"):
        loaded(frames_of(head, [records[0], Record(Position(2), Epoch(3), b"\x01nothing")]))


# The fence


@pytest.mark.guarantee("G1")
def test_the_fence_is_raised_above_all_that_was_granted_since() -> None:
    """Above the backup's by more than can be granted in the time, above the wall clock, above what is named."""
    assert fence_after(HEAD, now_us=NOW_US) == NOW_US
    assert fence_after(HEAD, now_us=NOW_US + HOUR_US) == NOW_US + HOUR_US
    assert fence_after(HEAD, now_us=NOW_US, above=NOW_US + 5) == NOW_US + 5
    assert fence_after(HEAD, now_us=NOW_US, above=7) == NOW_US
    ahead = replace(HEAD, fence=NOW_US + HOUR_US)
    assert fence_after(ahead, now_us=NOW_US) == NOW_US + HOUR_US + MARGIN
    assert fence_after(ahead, now_us=NOW_US + 3) == NOW_US + HOUR_US + MARGIN + 3
    assert fence_after(ahead, now_us=NOW_US, above=5) == NOW_US + HOUR_US + MARGIN


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("fence", [0, 50, NOW_US - 1, NOW_US + 7, NOW_US + HOUR_US])
def test_two_restores_of_one_backup_share_no_fence(fence: int) -> None:
    """However little time is between them, the second begins above all that the first could grant by then."""
    head = replace(HEAD, fence=fence)
    times = [NOW_US - MARGIN, NOW_US - 1, NOW_US, NOW_US + 1, NOW_US + 500_000, NOW_US + HOUR_US]
    fences = [fence_after(head, now_us=now_us) for now_us in times]
    for earlier, later in zip(range(5), range(1, 6), strict=True):
        assert fences[later] - fences[earlier] == times[later] - times[earlier]
    assert min(fences) >= fence


@pytest.mark.guarantee("G1")
def test_restores_of_restores_never_go_back() -> None:
    """A chain of restores, each from the backup of the one before, as quick as can be: fences grow all the way."""
    head, now_us = HEAD, NOW_US
    for _ in range(100):
        fence = fence_after(head, now_us=now_us)
        assert fence > head.fence
        granted = fence + 1_000
        head, now_us = replace(head, fence=granted, made_at_us=now_us + 2_000), now_us + 4_000


def test_a_clock_behind_the_backup_is_refused() -> None:
    """A clock that is wrong cannot tell how many fences were granted since: an operator must name one."""
    fence_after(HEAD, now_us=NOW_US - MARGIN)
    with pytest.raises(UsageError, match=r"3,600\.0 s behind .* --fence-above"):
        fence_after(HEAD, now_us=NOW_US - HOUR_US)
    assert fence_after(HEAD, now_us=1, above=9_000) == 9_000
    assert fence_after(HEAD, now_us=1, above=9) == HEAD.fence


def test_the_fence_stays_below_what_a_double_can_hold() -> None:
    """Beyond, clients that keep numbers as doubles could not tell two fences apart; that is 2255."""
    assert fence_after(HEAD, now_us=NOW_US, above=2**53 - 1) == 2**53 - 1
    with pytest.raises(UsageError, match="the greatest possible is"):
        fence_after(HEAD, now_us=NOW_US, above=2**53)
    with pytest.raises(UsageError, match="the greatest possible is"):
        fence_after(HEAD, now_us=2**53)
