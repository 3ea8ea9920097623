"""Where appends are made: on the loop while the disk is quick and the entry small, else on the thread."""

import itertools
import threading
from pathlib import Path

import pytest

from fencehold.engines.file import FileJournal
from fencehold.engines.file import journal as file_journal
from fencehold.engines.file.worker import (
    LONE_BYTES_MAX,
    LONE_QUICK_S_MAX,
    QUICK_S_MAX,
    SMALL_BYTES_MAX,
    AppendPace,
    ThreadedPace,
)
from fencehold.runtime.disk import Disk
from fencehold.types import Position


def test_small_appends_are_made_on_the_loop_while_the_disk_is_quick() -> None:
    """The size decides, as long as syncs are quick."""
    pace = AppendPace()
    assert pace.allows(1, is_lone=False)
    assert pace.allows(SMALL_BYTES_MAX, is_lone=False)
    assert not pace.allows(SMALL_BYTES_MAX + 1, is_lone=False)
    pace.took(QUICK_S_MAX)
    assert pace.allows(1, is_lone=False)


def test_large_appends_of_the_only_client_are_made_on_the_loop_while_the_disk_is_quicker_still() -> None:
    """There is nobody else to read from meanwhile; but a slow sync would keep its own next commands waiting."""
    pace = AppendPace()
    assert pace.allows(SMALL_BYTES_MAX + 1, is_lone=True)
    assert pace.allows(LONE_BYTES_MAX, is_lone=True)
    assert not pace.allows(LONE_BYTES_MAX + 1, is_lone=True)
    for _ in range(100):
        pace.took(1.5 * LONE_QUICK_S_MAX)
    assert not pace.allows(SMALL_BYTES_MAX + 1, is_lone=True)
    assert pace.allows(SMALL_BYTES_MAX, is_lone=True)


def test_one_slow_sync_changes_nothing() -> None:
    """A neighbour made the disk slow once: the next appends are made on the loop as before."""
    pace = AppendPace()
    pace.took(QUICK_S_MAX / 4)
    pace.took(10.0)
    assert pace.allows(1, is_lone=False)


def test_appends_of_a_slow_disk_go_to_the_thread_until_they_are_quick_again() -> None:
    """It holds up the loop for a few syncs, and then no more, however long it is slow."""
    pace = AppendPace()
    on_loop = 0
    for _ in range(1_000):
        on_loop += pace.allows(1, is_lone=False)
        pace.took(0.01)
    assert on_loop <= 2
    for _ in range(50):
        pace.took(QUICK_S_MAX / 4)
    assert pace.allows(1, is_lone=False)


class WatchedDisk(Disk):
    """Tells which threads synced."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def datasync(self, fd: int) -> None:
        self.threads.append(threading.get_ident())
        super().datasync(fd)


async def test_a_journal_appends_small_entries_where_it_is_and_large_ones_elsewhere(tmp_path: Path) -> None:
    """Both land in one order, whichever thread wrote them."""
    disk = WatchedDisk()
    journal = FileJournal(tmp_path / "journal", disk=disk)
    await journal.open()
    epoch = await journal.lead()
    entries = [b"small", b"x" * (SMALL_BYTES_MAX + 1), b"small again"]
    for position, entry in enumerate(entries, start=1):
        await journal.append(entry, epoch=epoch, position=Position(position))
    assert [record.entry async for record in journal.read(Position(0))] == entries
    await journal.close()
    here = threading.get_ident()
    # A noisy machine may make the first sync slow; the large entry is never synced here.
    assert disk.threads[1] != here
    assert len(disk.threads) == 3


async def test_a_lone_client_has_its_large_entries_appended_where_it_is(tmp_path: Path) -> None:
    """Asked to append inside the call, the journal does so with what it would hand to its thread otherwise."""
    disk = WatchedDisk()
    journal = FileJournal(tmp_path / "journal", disk=disk)
    journal.pace = QuickPace
    await journal.open()
    epoch = await journal.lead()
    large = b"x" * (SMALL_BYTES_MAX + 1)
    assert journal.append_here(large, epoch=epoch, position=Position(1))
    assert not journal.append_here(b"x" * (LONE_BYTES_MAX + 1), epoch=epoch, position=Position(2))
    await journal.append(large, epoch=epoch, position=Position(2))
    assert [record.entry async for record in journal.read(Position(0))] == [large, large]
    await journal.close()
    assert [thread == threading.get_ident() for thread in disk.threads] == [True, False]


class QuickPace(AppendPace):
    """Of a disk that is always quick."""

    def took(self, seconds: float) -> None:
        super().took(0)


class ToldPace(ThreadedPace):
    """Never on the loop; remembers what appends took."""

    told_s: tuple[float, ...] = ()

    def took(self, seconds: float) -> None:
        self.told_s += (seconds,)


async def test_what_the_loop_has_to_do_does_not_make_the_disk_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append on the thread counts for what it takes there, however long the loop is kept from hearing of it."""
    here, on_loop, on_thread = threading.get_ident(), itertools.count(0, 1_000), itertools.count(0, 1)
    monkeypatch.setattr(
        file_journal, "perf_counter", lambda: next(on_loop if threading.get_ident() == here else on_thread)
    )
    journal = FileJournal(tmp_path / "journal")
    journal.pace = ToldPace
    await journal.open()
    assert journal._running is not None
    pace = journal._running._pace
    await journal.append(b"one", epoch=await journal.lead(), position=Position(1))
    await journal.close()
    assert isinstance(pace, ToldPace)
    assert pace.told_s == (1,)
