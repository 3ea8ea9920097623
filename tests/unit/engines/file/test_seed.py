"""Seeding a directory: whatever goes wrong on the way, it is empty as before or seeded whole."""

import asyncio
import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fencehold.engines.file import FileJournal
from fencehold.engines.file.directory import Directory, seed_name, segment_name, snapshot_name
from fencehold.engines.file.log import Log
from fencehold.engines.file.snapshots import Draft
from fencehold.errors import Damaged, FenceholdError, OutcomeUnknown, Unavailable, UsageError
from fencehold.journal.port import Opened, Snapshot
from fencehold.runtime.disk import Disk
from fencehold.types import Position
from tests.unit.engines.file.power import PowerDisk, PowerLost
from tests.unit.engines.file.test_power_loss import Worst
from tests.unit.engines.file.wreck import append_all, contents, open_and_read, opened_log, read_after, restore

SEEDED = Snapshot(Position(41), b"the state after 41 " * 200)
CALLS = range(1, 60)
LOSSES_PER_CALL = 6


def opened_alone(path: Path, disk: Disk | None = None) -> Log:
    return Log(Directory(str(path), disk or Disk()), segment_bytes_max=2_000, allocate_bytes=700)


def seed(path: Path, log: Log, disk: Disk) -> None:
    """What the journal does on its two threads, on one."""
    draft = Draft(Directory(str(path), disk), SEEDED.position, seed_name(SEEDED.position))
    draft.begin()
    draft.add(SEEDED.data)
    draft.finish()
    log.seed(SEEDED.position)


def untouched(_: Log) -> None:
    """A directory nobody wrote to."""


def led(log: Log) -> None:
    """One whose epochs were taken."""
    log.lead()


def with_an_empty_segment(log: Log) -> None:
    """One whose first append failed after it had made room."""
    log.lead()
    log._begin_segment(10)


BEFORE: tuple[Callable[[Log], None], ...] = (untouched, led, with_an_empty_segment)


@pytest.mark.slow
@pytest.mark.parametrize("before", BEFORE, ids=lambda before: before.__name__)
def test_power_lost_while_seeding_leaves_it_empty_or_seeded_whole(
    tmp_path: Path, before: Callable[[Log], None]
) -> None:
    """Whenever the power goes, what is found is one of the two, stays it, and can be written to."""
    found = set()
    for calls in CALLS:
        for number in range(LOSSES_PER_CALL):
            path = tmp_path / f"{calls} {number}"
            rng: random.Random = Worst() if number == 0 else random.Random(calls * 1_000 + number)
            found.add(_seeded_until_the_power_goes(path, before, calls, rng))
            shutil.rmtree(path)
    assert found == {True, False}


def _seeded_until_the_power_goes(
    path: Path, before: Callable[[Log], None], calls: int, rng: random.Random
) -> bool:
    root, after = path / "root", path / "after"
    root.mkdir(parents=True)
    with opened_log(root) as (log, _):
        before(log)
    disk = PowerDisk(root, calls=10_000)
    log = opened_alone(root, disk)
    log.open()
    disk.calls_left = calls
    returned = False
    with contextlib.suppress(PowerLost):
        seed(root, log, disk)
        returned = True
    disk.lose(rng, after)
    opened, records = open_and_read(after)
    assert records == []
    is_seeded = opened.snapshot is not None
    assert (opened.snapshot, opened.end) == ((SEEDED, 41) if is_seeded else (None, 0))
    assert is_seeded or not returned
    _check_that_it_goes_on(after, opened)
    return is_seeded


def _check_that_it_goes_on(path: Path, expected: Opened) -> None:
    """What was found once is found again, without notes; appends follow it."""
    with opened_log(path) as (log, opened):
        assert opened._replace(notes=()) == expected._replace(notes=())
        assert opened.notes == ()
        log.lead()
        records = append_all(log, [b"after"])
        assert records[0].position == expected.end + 1
    assert open_and_read(path)[1] == records


def test_a_process_killed_while_seeding_is_finished_by_the_next(tmp_path: Path) -> None:
    """Killed at any call, then opened: what that opening found, a power loss right after it leaves as it is."""
    for calls in CALLS:
        root = tmp_path / f"{calls}"
        root.mkdir()
        disk = PowerDisk(root, calls=10_000)
        log = opened_alone(root, disk)
        log.open()
        disk.calls_left = calls
        with contextlib.suppress(PowerLost):
            seed(root, log, disk)
        disk.kill(calls=10_000)
        found = opened_alone(root, disk).open()
        disk.lose(Worst(), tmp_path / f"{calls} after")
        assert open_and_read(tmp_path / f"{calls} after")[0]._replace(notes=()) == found._replace(notes=())


def test_power_lost_while_a_seeding_is_finished_loses_nothing(tmp_path: Path) -> None:
    """A published seed is put in its place by opening, however often that is cut short."""
    for calls in range(1, 40):
        root, after = tmp_path / f"{calls}", tmp_path / f"{calls} after"
        root.mkdir()
        _publish_only(root)
        disk = PowerDisk(root, calls)
        with contextlib.suppress(PowerLost):
            opened_alone(root, disk).open()
        disk.lose(random.Random(calls), after)
        opened, _ = open_and_read(after)
        assert (opened.snapshot, opened.end) == (SEEDED, 41)


def _publish_only(root: Path) -> None:
    draft = Draft(Directory(str(root), Disk()), SEEDED.position, seed_name(SEEDED.position))
    draft.begin()
    draft.add(SEEDED.data)
    draft.publish()


def test_finishing_a_seeding_is_noted(tmp_path: Path) -> None:
    """Opening never repairs in silence."""
    root = tmp_path / "journal"
    root.mkdir()
    _publish_only(root)
    opened, _ = open_and_read(root)
    assert opened.notes == (
        f"{root}/{seed_name(Position(41))}: put in its place, left by a seeding that was cut short",
    )
    assert set(contents(root)) == {
        "epoch",
        "lock",
        "mark",
        segment_name(Position(42)),
        snapshot_name(Position(41)),
    }


class FailingDisk(Disk):
    """Fails once, at the n-th change since it was armed."""

    def __init__(self) -> None:
        self.calls_left = 0

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise OSError(errno.EIO, "injected")

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._count()
        return super().open(path, flags)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._count()
        return super().pwrite(fd, data, offset)

    def sync(self, fd: int) -> None:
        self._count()
        super().sync(fd)

    def replace(self, source: str, target: str) -> None:
        self._count()
        super().replace(source, target)


def test_a_disk_that_fails_is_told_for_what_it_is(tmp_path: Path) -> None:
    """`Unavailable` leaves it empty, and it can be seeded at once; `OutcomeUnknown` is settled by opening anew."""
    told = []
    for calls in CALLS:
        root = tmp_path / f"{calls}"
        disk = FailingDisk()
        error = asyncio.run(_seed_with(root, disk, calls))
        told.append(type(error))
        opened, _ = open_and_read(root)
        assert opened.snapshot in ((SEEDED,) if error is None else (None, SEEDED))
    assert {OutcomeUnknown, Unavailable, type(None)} == set(told)
    # As long as nothing was published it is a no, then it is not known, and in the end nothing fails any more.
    assert told == sorted(told, key=[Unavailable, OutcomeUnknown, type(None)].index)


async def _seed_with(root: Path, disk: FailingDisk, calls: int) -> FenceholdError | None:
    journal = FileJournal(root, disk=disk)
    await journal.open()
    disk.calls_left = calls
    try:
        await journal.seed(SEEDED.position, [SEEDED.data])
    except Unavailable as error:
        await journal.seed(SEEDED.position, [SEEDED.data])
        return error
    except OutcomeUnknown as error:
        with pytest.raises(Unavailable, match="open it anew"):
            await journal.seed(SEEDED.position, [SEEDED.data])
        with pytest.raises(Unavailable, match="open it anew"):
            await journal.lead()
        return error
    finally:
        await journal.close()
    return None


def test_a_seed_beside_entries_is_refused(tmp_path: Path) -> None:
    """No crash leaves that: whoever put it there must decide."""
    with opened_log(tmp_path) as (log, _):
        log.lead()
        append_all(log, [b"an entry that was acknowledged"])
    files = contents(tmp_path)
    _publish_only(tmp_path)
    with pytest.raises(Damaged, match=f"{seed_name(Position(41))}: stands beside entries or a snapshot"):
        open_and_read(tmp_path)
    restore(tmp_path, files)
    assert open_and_read(tmp_path)[0].end == 1


def test_a_seed_beside_a_snapshot_is_refused(tmp_path: Path) -> None:
    """Neither does it leave two beginnings."""
    with opened_log(tmp_path) as (log, _):
        seed(tmp_path, log, Disk())
    _publish_only(tmp_path)
    with pytest.raises(Damaged, match="stands beside entries or a snapshot"):
        open_and_read(tmp_path)


def test_a_damaged_seed_is_refused(tmp_path: Path) -> None:
    """A published seed was whole. One that is not any more is damage, and nothing is begun with it."""
    _publish_only(tmp_path)
    file = tmp_path / seed_name(Position(41))
    data = bytearray(file.read_bytes())
    data[50] ^= 1
    file.write_bytes(data)
    with pytest.raises(Damaged, match=f"{file.name}: the snapshot is damaged"):
        open_and_read(tmp_path)
    assert [name for name in contents(tmp_path) if name != "lock"] == [file.name]


def test_a_lost_epoch_or_segment_of_a_seeded_journal_is_missed(tmp_path: Path) -> None:
    """What recovery refuses in any journal it refuses in a seeded one, though nothing was appended yet."""
    with opened_log(tmp_path) as (log, _):
        seed(tmp_path, log, Disk())
    files = contents(tmp_path)
    for name in ("epoch", segment_name(Position(42)), snapshot_name(Position(41))):
        restore(tmp_path, {other: data for other, data in files.items() if other != name})
        with pytest.raises(Damaged):
            open_and_read(tmp_path)


def test_a_log_goes_on_after_the_seed_without_being_opened_anew(tmp_path: Path) -> None:
    """Also where an empty segment of position 1 was in use: it is left, and needless."""
    with opened_log(tmp_path, segment_bytes_max=500) as (log, _):
        with_an_empty_segment(log)
        seed(tmp_path, log, Disk())
        with pytest.raises(UsageError):
            log.refuse_to_seed(Position(50))
        records = append_all(log, [b"entry " * 30 for _ in range(10)])
        assert [record.position for record in records] == list(range(42, 52))
    opened, found = open_and_read(tmp_path)
    assert (opened.snapshot, opened.end, found) == (SEEDED, 51, records)
    assert read_after(tmp_path, opened) == records
